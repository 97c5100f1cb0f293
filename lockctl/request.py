"""What a run is to do, and what follows from that alone."""

from __future__ import annotations

import os

from lockctl.errors import ConfigError
from lockctl.model import Capabilities, Claim, Grant
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.lease.schedule import Schedule
    from lockctl.url import Url


class Request(Value):
    """One run, as the command line and the configuration want it. Spans in seconds."""

    locks: tuple[str, ...]  # in the order in which the user named them
    words: tuple[str, ...]
    url: Url
    host: str
    user: str
    schedule: Schedule
    wait: float
    splay: float
    first_signal: int
    leftover: str
    kill_on_loss: bool
    contain: str
    max_runtime: float | None
    correctness: bool
    run_unlocked: bool  # when the backend is out of reach
    mode: str
    slots: int
    min_hold: float
    once_per: float | None
    fence: str | None  # the resource at which the token is registered before the command starts
    labels: tuple[tuple[str, str], ...]
    says_holder: bool  # whether it counts who has the lock, when it was refused
    pgoptions: str  # $PGOPTIONS as lockctl was given it

    @property
    def name(self) -> str:
        """The lock that stands for all in messages, reports and ``$LOCKCTL_LOCK``."""
        return self.locks[0]

    def check(self, capabilities: Capabilities) -> None:
        """Raises ``ConfigError`` for what a backend with these *capabilities* does not have."""
        self._check_guarantee(capabilities)
        self._check_modes(capabilities)

    def claim(self) -> Claim:
        """The claim of this run, with an owner of its own."""
        return Claim(
            name=self.name,
            owner=os.urandom(16).hex(),
            ttl=self.schedule.ttl,
            host=self.host,
            pid=os.getpid(),
            user=self.user,
            command=self.words,
            mode=self.mode,
            slots=self.slots,
            labels=self.labels,
        )

    def variables(self, capabilities: Capabilities, grant: Grant) -> list[str]:
        """What the command is told about its lock, as ``NAME=content``."""
        environment = [
            f"LOCKCTL_LOCK={self.name}",
            f"LOCKCTL_TOKEN={grant.token}",
            f"LOCKCTL_FENCING={capabilities.fencing}",
            f"LOCKCTL_TOKEN_DOMAIN={grant.domain}",
            f"LOCKCTL_OWNER={grant.claim.owner}",
            f"LOCKCTL_BACKEND={capabilities.scheme}",
            f"LOCKCTL_TTL={grant.ttl:g}",
        ]
        if grant.parts:
            tokens = {part.claim.name: part.token for part in grant.parts}
            environment.append("LOCKCTL_TOKENS=" + " ".join([f"{name}={tokens[name]}" for name in self.locks]))
        return environment

    def _check_guarantee(self, capabilities: Capabilities) -> None:
        if self.correctness:
            refusals = {
                f"the tokens of {capabilities.scheme} are not guaranteed to rise (fencing: {capabilities.fencing})": (
                    capabilities.fencing != "strict"
                ),
                "--leftover leave lets processes continue without the lock": self.leftover == "leave",
                "--on-unavailable run starts the command without a lock": self.run_unlocked,
            }
            for reason, applies in refusals.items():
                if applies:
                    raise ConfigError(f"--guarantee correctness is not met: {reason}")

    def _check_modes(self, capabilities: Capabilities) -> None:
        refusal = capabilities.refusal(self.mode)
        if refusal is not None:
            raise ConfigError(refusal)
