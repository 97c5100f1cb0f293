"""What a run is to do, and what follows from that alone."""

from __future__ import annotations

import os

from lockctl.model import SHARED, Capabilities, Claim, Grant
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
    ends: tuple[tuple[int, str], ...] = ()  # statuses with which the command says that it ended as planned, and why
    unfenced: bool = False  # whether the user wants no resource, although one may be configured

    @property
    def name(self) -> str:
        """The lock that stands for all in messages, reports and ``$LOCKCTL_LOCK``."""
        return self.locks[0]

    def refusal(self, capabilities: Capabilities) -> tuple[str, tuple[str, ...]] | None:
        """Why it cannot be with a backend of these *capabilities*, and the settings that say so; ``None``: it can."""
        if self.correctness:
            refusals = {
                f"the tokens of {capabilities.scheme} are not guaranteed to rise (fencing: {capabilities.fencing})": (
                    capabilities.fencing != "strict" and "backend"
                ),
                "--leftover leave lets processes continue without the lock": self.leftover == "leave" and "leftover",
                "--on-unavailable run starts the command without a lock": self.run_unlocked and "on_unavailable",
                "--fence none lets the resource accept earlier holders": self.unfenced and "fence",
            }
            for reason, setting in refusals.items():
                if setting:
                    return f"--guarantee correctness is not met: {reason}", ("guarantee", setting)
        lacking = capabilities.refusal(self.mode)
        return None if lacking is None else (lacking, ("backend", "shared" if self.mode == SHARED else "slots"))

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
            f"LOCKCTL_TTL={grant.ttl:.15g}",  # with all digits: 1e+06 is no duration
        ]
        if grant.parts:
            tokens = {part.claim.name: part.token for part in grant.parts}
            environment.append("LOCKCTL_TOKENS=" + " ".join([f"{name}={tokens[name]}" for name in self.locks]))
        return environment


def user_name(environ: Mapping[str, str]) -> str:
    """The login name, as cron and login shells give it, else as ``/etc/passwd`` has it."""
    name = environ.get("LOGNAME") or environ.get("USER")
    if name:
        return name
    number = str(os.geteuid())
    try:
        # not by getpwuid(3), which may ask a directory service that hangs
        with open("/etc/passwd", "rb", buffering=0) as users:
            lines = os.fsdecode(users.read()).splitlines()
    except OSError:
        return number
    for line in lines:
        fields = line.split(":", 3)
        if fields[2:3] == [number]:
            return fields[0]
    return number
