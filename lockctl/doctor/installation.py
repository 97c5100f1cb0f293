"""What delays the start of every run, or keeps cron from finding the command, in this installation."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from importlib import metadata
from importlib.util import MAGIC_NUMBER, cache_from_source
from urllib.parse import unquote, urlsplit

from lockctl.finding import Check, Examination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NAME = "lockctl"
DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of this package
OF_OTHER_SYSTEMS = ("nt", "osx")  # how the names of their schemes begin
PATH_OF_CRON = "/usr/bin:/bin"
SHIMS = ("pyenv", "asdf", "mise", "rtx")  # programs that start a script in the place of a command
BEGINNING = 2000  # bytes of a file that show what it is
WORD = 0xFFFFFFFF

BYTECODE = Check(
    "host.bytecode",
    "Without compiled files every run compiles lockctl anew, which delays the command by a tenth of a second.",
    "{python} -m compileall -q {directory} (as the owner of that directory)",
)
SHIM = Check(
    "host.shim",
    "A shim starts a shell before lockctl, which delays every run by a fifth of a second, and cron does not have it.",
    "call {real}, or: ln -s {real} /usr/local/bin/lockctl",
)
COMMAND = Check(
    "host.command",
    "A crontab line that says only lockctl needs it in a directory of cron's PATH.",
    "lockctl config crontab prints a line with the whole path; or: ln -s {real} /usr/bin/lockctl",
)
CHECKS = (BYTECODE, SHIM, COMMAND)


def examine(environ: Mapping[str, str], program: str, found: Examination) -> None:
    """Look at the files of lockctl, and at what its name means in a shell and in cron. *program* is the one started."""
    found.words.update(python=sys.executable, directory=DIRECTORY, real=own_path(program) or f"DIRECTORY/{NAME}")
    sources = list(_sources(DIRECTORY))
    missing = sum(not _is_compiled(source) for source in sources)
    seen = f"{missing} of {len(sources)} modules are not compiled" if missing else f"{len(sources)} modules"
    found.judge(BYTECODE, seen, warns=missing > 0)
    path = shutil.which("lockctl", path=environ.get("PATH"))
    shim = None if path is None else _shim(path)
    found.judge(SHIM, f"{path} is a shim of {shim}" if shim else "none", warns=shim is not None)
    in_cron = shutil.which("lockctl", path=PATH_OF_CRON)
    found.judge(COMMAND, in_cron or f"not in {PATH_OF_CRON}", warns=in_cron is None)


def own_path(program: str) -> str | None:
    """The program that runs this code: the one that was started, or that of its installation; ``None``: none does.

    The interpreter of *program* may be that of another lockctl: of an archive, or with ``python -m`` of any directory.
    """
    started, place = os.path.abspath(program), os.path.realpath(os.path.dirname(DIRECTORY))
    if os.path.isfile(started) and (os.path.basename(started) == NAME or os.path.realpath(started) == place):
        return started
    for scheme in sysconfig.get_scheme_names():
        if scheme.startswith(OF_OTHER_SYSTEMS):
            continue
        paths = sysconfig.get_paths(scheme)
        script = os.path.join(paths["scripts"], NAME)
        if os.path.isfile(script) and place in _installed(paths["purelib"]):
            return script
    return None


def _installed(directory: str) -> Iterator[str]:
    """From where a program loads what is installed into *directory*: from there, or from the sources (PEP 610)."""
    yield os.path.realpath(directory)
    for distribution in metadata.distributions(name=NAME, path=[directory]):
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            yield os.path.realpath(unquote(urlsplit(origin["url"]).path))


def _sources(directory: str) -> Iterator[str]:
    for folder, _, files in os.walk(directory):
        yield from (os.path.join(folder, file) for file in files if file.endswith(".py"))


def _is_compiled(source: str) -> bool:
    """Whether there is a file that Python would load instead, without a look at the content of the source."""
    try:
        with open(cache_from_source(source), "rb") as file:
            head = file.read(16)
        seen = os.stat(source)
    except OSError:
        return False
    kind = int.from_bytes(head[4:8], "little")  # PEP 552: not 0, by the source's hash
    times = (int(seen.st_mtime) & WORD).to_bytes(4, "little") + (seen.st_size & WORD).to_bytes(4, "little")
    return head[:4] == MAGIC_NUMBER and (kind != 0 or head[8:] == times)


def _shim(path: str) -> str | None:
    """The program that put a shim at *path*; ``None``: it is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(BEGINNING)
    except OSError:
        return None
    return next((name for name in SHIMS if b"%s exec" % name.encode() in text or f"/{name}/shims/" in path), None)
