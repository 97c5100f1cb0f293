"""The jobs of the overlap tests: a program that stamps the time for as long as it is alive.

``canary.py first DIRECTORY [daemon] [closed] [hops] [deaf] [halts] [leaves]``
    is the first job. *daemon*: it leaves a process in a session of its own, twice forked and deaf to TERM,
    HUP and INT, which stamps too; *closed*: that process closes all descriptors that it inherited; *hops*:
    it forks without a pause and goes on in the child, so that its pid is never the same for long; *deaf*:
    the command ignores those signals too; *halts*: the command stops itself; *leaves*: the command ends.
    All that stamps ends when there is a file ``enough``.
``canary.py second DIRECTORY``
    is the next job: it stamps its start and writes which processes of the first job it sees.

It runs with ``python -I -S`` and imports little: it must start fast.
"""

from __future__ import annotations

import os
import sys
import time
from _signal import SIG_IGN, SIGHUP, SIGINT, SIGSTOP, SIGTERM, signal

PERIOD = 0.005  # seconds between two stamps
LIFE = 30.0  # seconds: no canary outlives a test that went wrong for long


def now() -> int:
    """Nanoseconds on the clock that both jobs stamp with."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def stamp(directory: str, name: str, *, hops: bool = False) -> None:
    """Write the time every few milliseconds; also say so when the next job has already begun."""
    out = os.open(f"{directory}/stamps.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    until = now() + int(LIFE * 1_000_000_000)
    first = True
    while (moment := now()) < until and not os.path.exists(f"{directory}/enough"):
        os.write(out, b"%d\n" % moment)
        if os.path.exists(f"{directory}/started"):
            os.write(out, b"overlap\n")
        if first:
            os.rename(_written(directory, f".{name}", str(os.getpid())), f"{directory}/ready.{name}")
            first = False
        if not hops:
            time.sleep(PERIOD)
        elif os.fork():
            os._exit(0)


def first_job(directory: str, traits: list[str]) -> None:
    """Be the first job."""
    _written(directory, "owner", os.environ["LOCKCTL_OWNER"])
    _note_token(directory, "first")
    if "daemon" in traits and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _be_deaf()
            if "closed" in traits:
                os.closerange(0, os.sysconf("SC_OPEN_MAX"))
            stamp(directory, "daemon", hops="hops" in traits)
        os._exit(0)
    if "deaf" in traits:
        _be_deaf()
    if "leaves" in traits:
        while not os.path.exists(f"{directory}/ready.daemon"):
            time.sleep(PERIOD)
        return
    if "halts" in traits:
        _written(directory, "ready.command", str(os.getpid()))
        os.kill(os.getpid(), SIGSTOP)
    stamp(directory, "command")


def second_job(directory: str) -> None:
    """Stamp the start of the next job, then look for processes of the first one."""
    start = now()
    _note_token(directory, "second")
    with open(f"{directory}/owner", encoding="ascii") as file:
        mark = b"LOCKCTL_OWNER=" + file.read().encode()
    seen = [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in _environment(pid).split(b"\0")]
    os.rename(_written(directory, ".second", " ".join([str(start), *seen])), f"{directory}/second")


def _note_token(directory: str, which: str) -> None:
    _written(directory, f"token.{which}", "{LOCKCTL_TOKEN_DOMAIN};{LOCKCTL_TOKEN}".format_map(os.environ))


def _be_deaf() -> None:
    for signum in (SIGTERM, SIGHUP, SIGINT):
        signal(signum, SIG_IGN)


def _written(directory: str, name: str, text: str) -> str:
    path = f"{directory}/{name}"
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def _environment(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""  # gone, or another user's


if __name__ == "__main__":
    if sys.argv[1] == "first":
        first_job(sys.argv[2], sys.argv[3:])
    else:
        second_job(sys.argv[2])
