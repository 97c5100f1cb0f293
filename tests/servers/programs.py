"""Where the programs of the servers are: on this machine, or unpacked below .servers by tests/servers.sh."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import subprocess
from pathlib import Path

UNPACKED = Path(__file__).resolve().parents[2] / ".servers" / "root"
# below any root directory, in the order in which they are tried; tests/servers.sh knows the same places
# (what Debian has in usr/bin for PostgreSQL are wrappers that need an installation)
PLACES = ("usr/lib/postgresql/*/bin", "usr/bin", "usr/sbin", "usr/lib/jvm/*/bin", "usr/share/java")
# what the tested servers may take from the environment is only what tests give them
INHERITED = ("PATH", "HOME", "TMPDIR")


class ProgramMissing(Exception):
    """A program is not on this machine; the message says how to get it."""


def _below(root: Path, name: str) -> str | None:
    for place in PLACES:
        found = sorted(root.glob(f"{place}/{name}"))
        if found:
            return str(found[-1])  # the highest version
    return None


@functools.cache
def find(name: str) -> str:
    """The path of a program or a Java archive. Raises ``ProgramMissing``."""
    found = shutil.which(name) or _below(Path("/"), name) or _below(UNPACKED, name)
    if found is None:
        raise ProgramMissing(f"{name} is not here: `make tools` unpacks it below .servers")
    return found


def environment(**more: str) -> dict[str, str]:
    """The environment of every program: unpacked ones find their libraries, nobody finds settings of the user."""
    result = {name: os.environ[name] for name in INHERITED if name in os.environ}
    libraries = [str(path) for path in sorted(UNPACKED.glob("*/lib/*-linux-gnu*"))]
    libraries += [str(path) for path in sorted(UNPACKED.glob("lib/*-linux-gnu*"))]
    if libraries:
        # no harm to the machine's own programs: only what the machine lacks was unpacked
        result["LD_LIBRARY_PATH"] = ":".join(libraries)
    return {**result, "LC_ALL": "C", "TZ": "UTC", **more}


@functools.cache
def as_ordinary_user() -> tuple[str, ...]:
    """Words before a command that refuses root, and users without a name; none for an ordinary user.

    The user without rights may still pass every directory: those of pytest are closed to others, and a checkout below
    root's home is. access(2), by which PostgreSQL looks for its own programs, respects that only with the secure bit.
    Where root is not a true one, as in some containers, a user namespace gives another number.
    """
    nobody, capability = 65534, "+dac_override"
    plain: tuple[str, ...] = ("setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups")
    plain += (f"--inh-caps={capability}", f"--ambient-caps={capability}")
    choices: list[tuple[str, ...]] = [(*plain, "--securebits=+no_setuid_fixup"), plain]
    if os.geteuid() != 0:
        with contextlib.suppress(KeyError):
            pwd.getpwuid(os.geteuid())
            return ()
        choices.clear()
    for choice in (*choices, ("unshare", "--user", f"--map-user={nobody}", f"--map-group={nobody}")):
        if subprocess.run([*choice, "true"], capture_output=True, check=False, timeout=30).returncode == 0:
            return choice
    raise ProgramMissing("neither setpriv nor unshare gives an ordinary user here, which PostgreSQL asks for")


def run(words: list[str], *, timeout: float = 30.0, **more: str) -> str:
    """The output of a program that ends by itself; *more* are variables.

    Raises ``RuntimeError`` with what it wrote when it fails, ``TimeoutError`` when it does not end.
    """
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{' '.join(words)} did not end in {timeout:g} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
