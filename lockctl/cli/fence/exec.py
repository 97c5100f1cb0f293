"""``lockctl fence exec``: a command that runs while nobody can advance the mark of its resource."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from lockctl import clock, kernel
from lockctl.cli import exit_status
from lockctl.cli.fence.options import RESOURCE, STORE, TIMEOUT, Arguments, own_token
from lockctl.cli.group import verb
from lockctl.cli.main import own_signals
from lockctl.cli.messages import Talk, exhausted
from lockctl.cli.outcome_messages import cannot_run, left_behind
from lockctl.cli.parameters import CommandWord
from lockctl.cli.start import job_environment
from lockctl.errors import ConfigError, Interrupted, LockctlError, UsageError
from lockctl.fence.registration import interruptible
from lockctl.lease.schedule import Schedule
from lockctl.supervise.fork import GuardProcess, fork_guard
from lockctl.supervise.orders import JOB_VARIABLES, Orders
from lockctl.supervise.signals import NAMES, Signals

if TYPE_CHECKING:
    from typing import NoReturn

    from lockctl.fence import Location
    from lockctl.fence.mark import Mark
    from lockctl.supervise.ending import Ending

GRACE = 5.0  # seconds for what the command leaves behind, between the first signal and SIGKILL
ABSENT = 0.0  # there is no lease, so nothing is renewed
ASKS_EVERY = 10.0  # seconds: without a deadline that comes near, a guard that is stopped is missed by nobody else
PATIENCE = 5.0  # seconds for its answer: there is no lease that could end meanwhile
NEVER = 1e9  # seconds to the deadline, about 30 years: a mark that is held does not end by itself


@verb(
    "exec",
    examples={
        "lockctl fence exec /srv/repository -- ./install": (
            "Nobody with another token changes the repository meanwhile."
        ),
        (
            # not as words: ssh joins them, and the shell there would read what is in the domain
            'printf \'%s\\n\' "$LOCKCTL_TOKEN" "$LOCKCTL_TOKEN_DOMAIN" | ssh store \'IFS= read -r t; IFS= read -r d;'
            ' lockctl fence exec --token "$t" --domain "$d" /srv/repository -- ./install\''
        ): "The same on the host that has the resource.",
    },
    context_settings={"allow_interspersed_args": False},
)
@RESOURCE
@click.argument("words", nargs=-1, type=CommandWord(), metavar="[--] COMMAND [ARG]...")
@own_token
@STORE
@TIMEOUT
def command(words: tuple[str, ...], **given: Any) -> NoReturn:
    """Run a command while nobody can advance the mark."""
    arguments = Arguments(**given)
    if words[:1] == ("--",):
        words = words[1:]
    if not words:
        raise UsageError("no command: lockctl fence exec [OPTIONS] RESOURCE -- COMMAND [ARG]...")
    if words[0].startswith("-"):
        raise UsageError("options must come before RESOURCE: lockctl fence exec [OPTIONS] RESOURCE -- COMMAND [ARG]...")
    mark, location = arguments.mark(os.environ), arguments.location()
    if not location.store.lockable:
        message = (
            f"{arguments.scheme}: this store cannot hold a mark while a command runs: use fence check in the command"
        )
        raise ConfigError(message)
    talk = Talk()
    # from here on each signal is a value that waits to be read: so this process ends here, whatever is
    signals = own_signals()
    try:
        status = _run(words, mark, location, arguments.timeout, signals, talk)
    except LockctlError as error:
        if not isinstance(error, Interrupted):
            talk("error", str(error))
        status = exit_status.of_error(error)
    except OSError as failure:  # no more processes or descriptors
        talk("error", exhausted(failure))
        status = exit_status.NOT_EXECUTABLE
    talk.finish()
    os._exit(status)


def _run(words: tuple[str, ...], mark: Mark, location: Location, limit: float, signals: Signals, talk: Talk) -> int:
    environment = job_environment(os.environ)
    variables = [f"{name}={environment[name]}" for name in JOB_VARIABLES if name in environment]  # of an outer run
    variables += [f"LOCKCTL_TOKEN={mark.token}", f"LOCKCTL_TOKEN_DOMAIN={mark.domain}"]  # what was shown, in the end
    guard = fork_guard(words, environment, signals, talk, talk.finish)
    try:
        hold = location.store.holding(location.resource, mark, timeout=limit)
        interruptible(hold.__enter__, limit, signals.descriptor, signals.ending)
        ending = _watch(guard, signals, talk, variables, getattr(location.store, "descriptor", None))
        status = _status(ending, words, talk)
        if ending.leftovers:
            talk("warning", left_behind(ending.leftovers, ending.left))
        try:
            hold.__exit__(None, None, None)
        except LockctlError as lost:
            talk("error", f"the mark was lost before the command ended: {lost}")
            status = exit_status.LOST
        return status
    finally:
        guard.dismiss()


def _watch(guard: GuardProcess, signals: Signals, talk: Talk, variables: list[str], descriptor: int | None) -> Ending:
    """Run the command with everything that belongs to it, until nothing of it is left.

    A mark that the kernel holds is held through *descriptor*, which the command gets, too: so it is held as long as
    a process of the command lives. Any other ends with this process: then nothing of the command gets any grace.
    """
    kernel_held = descriptor is not None
    orders = Orders(
        first_signal=NAMES["TERM"],
        leftover="kill",
        max_runtime=None,
        kernel_held=kernel_held,
        on_terminal=guard.on_terminal,
        kill_on_loss=True,
        contain="no",
    )
    schedule = Schedule(
        ttl=PATIENCE,  # what a guard gets for its answer if we were stopped, too
        grace=GRACE if kernel_held else 0.0,
        margin=2 * PATIENCE,
        interval=ABSENT,
        request_timeout=ABSENT,
        rate_error=ABSENT,
    )
    watch = clock.monotonic if kernel_held else clock.boottime
    timer = kernel.timer_descriptor(watch.clock_id)
    deadline = watch() + NEVER
    guard.tell_deadline(deadline)
    guard.start(orders, schedule, variables, () if descriptor is None else (descriptor,))
    from lockctl.supervise.keeper import Keeper  # while the guard starts the command
    from lockctl.supervise.liveness import Liveness

    # as a lock of the kernel no mark ends by itself while all of us are stopped
    live = Liveness(schedule, kernel_held=True, kill_on_loss=True, asks_every=ASKS_EVERY)
    return Keeper(guard, signals, watch, timer, live, talk).run(deadline, None)


def _status(ending: Ending, words: tuple[str, ...], talk: Talk) -> int:
    if ending.refused:
        talk("error", ending.refused)
        return exit_status.CONFIG
    if ending.error:
        talk("error", cannot_run(words, ending.error))
        return exit_status.of_exec(ending.error)
    if ending.status is None:
        return exit_status.SIGNALED + NAMES["KILL"]
    return exit_status.of_wait_status(ending.status)
