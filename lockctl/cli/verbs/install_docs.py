"""``lockctl install-docs``: pages, completions and samples from this installation to where they are looked for.

Every wheel has them below ``share``. pip puts them where the prefix has it; uv and older pipx leave them in an
environment where neither man nor a shell looks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from importlib import metadata
from typing import TYPE_CHECKING

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.errors import ConfigError, UsageError
from lockctl.names import printable
from lockctl.umask import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SYSTEM = "/usr/local/share"
PACKAGED = "/usr/share/"  # where the package of a distribution puts them: man and the shells look there
ASKING = 10.0  # seconds for man or a shell to say where it looks
BASH_COMPLETION = ("/usr/share/bash-completion", "/usr/local/share/bash-completion", "/etc/bash_completion")
# what prints the directories in which a shell looks, and what a user adds if ours is not among them
SHELLS = {
    "zsh": ("print -l $fpath", "zsh/site-functions", "fpath+={}, before compinit, in ~/.zshrc"),
    "fish": ("printf '%s\\n' $fish_complete_path", "fish/vendor_completions.d", "set -a fish_complete_path {}"),
}
FISH_FOR_ALL = "/etc/fish/completions"  # for administrators; fish of Debian does not look below SYSTEM


@verb(
    "install-docs",
    examples={
        "lockctl install-docs": "For this user; as root, for all users.",
        "lockctl install-docs --system --dry-run": "Where the files for all users would be.",
    },
)
@click.option("--user", "for_user", is_flag=True, help="Install for this user: the default, except for root.")
@click.option("--system", "for_all", is_flag=True, help=f"Install for all users, below {SYSTEM}: the default of root.")
@click.option("--uninstall", is_flag=True, help="Remove the files that this command has installed.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
def command(*, for_user: bool, for_all: bool, uninstall: bool, dry_run: bool) -> int:
    """Install man pages, completions and samples.

    To where man and the shells of this machine look. Run it again after an upgrade.
    """
    if for_user and for_all:
        raise UsageError("--user and --system contradict each other")
    share = SYSTEM if for_all or (os.geteuid() == 0 and not for_user) else user_share(os.environ)
    done: Counter[str] = Counter()
    for source, name in shipped():
        target = os.path.join(share, place(name, share))
        if os.path.realpath(source) == os.path.realpath(target):
            continue  # pip has put it there, and pip removes it
        if not (os.path.lexists(target) if uninstall else is_ours(source)):
            continue
        done[os.path.dirname(target)] += 1
        if not dry_run:
            _change(source, target, uninstall=uninstall)
    if done:
        from lockctl.cli import screen

        rows = [screen.Row((str(count), printable(where))) for where, count in done.items()]
        screen.print_table(screen.INSTALLED, rows)
    said = ("removed" if uninstall else "installed") + (": this was a dry run" if dry_run else "")
    talk = Talk(verbose=True)
    if not (uninstall or any(is_ours(source) for source, _ in shipped())):
        talk("info", f"nothing to do: the package of the distribution has put them below {PACKAGED}")
        return exit_status.OK
    talk("info", f"{sum(done.values())} files {'would be ' if dry_run else ''}{said}")
    for advice in () if uninstall or dry_run else missing(share):
        talk("info", advice)
    return exit_status.OK


def user_share(environ: Mapping[str, str]) -> str:
    """Where the data of this user are."""
    named = environ.get("XDG_DATA_HOME", "")
    return named if named.startswith("/") else os.path.expanduser("~/.local/share")


def shipped() -> Iterator[tuple[str, str]]:
    """(path, name below ``share``) of every file that the wheel has beside the package. Raises ``ConfigError``."""
    try:
        files = metadata.files("lockctl") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [file for file in files if "share" in file.parts]
    if not found:
        raise ConfigError("this installation has no pages: they come with the package of pip, pipx or uv")
    for file in sorted(found):
        name = os.path.join(*file.parts[file.parts.index("share") + 1 :])
        yield str(file.locate()), name


def is_ours(source: str) -> bool:
    """Whether a file is ours to copy. The package of a distribution has moved it, compressed it, or put it in place."""
    return os.path.exists(source) and not os.path.realpath(source).startswith(PACKAGED)


def place(name: str, share: str) -> str:
    """Where below *share*, or anywhere, what has this name in the wheel belongs."""
    vendor = SHELLS["fish"][1]
    return name.replace(vendor, FISH_FOR_ALL) if share == SYSTEM else name


def missing(share: str) -> Iterator[str]:
    """What a user must do, because a program does not look below *share*."""
    pages = os.path.realpath(os.path.join(share, "man"))
    page = os.path.realpath(os.path.join(pages, "man1/lockctl-run.1"))  # of pipx it is a link
    if shutil.which("man") and page not in map(os.path.realpath, _asked("man", "-wa", "lockctl-run")):
        yield f"man does not look there: add {printable(pages)} to MANPATH, or use man -M {printable(pages)}"
    if shutil.which("bash") and not any(map(os.path.exists, BASH_COMPLETION)):
        yield "bash completes lockctl as soon as bash-completion is installed"
    for shell, (script, name, line) in SHELLS.items():
        directory = os.path.join(share, place(name, share))
        if shutil.which(shell) and directory not in _asked(shell, "-c", script):
            yield f"{shell} does not look there: add {line.format(printable(directory))}"


def _asked(*words: str) -> Iterable[str]:
    """The lines that a program prints; none if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASKING, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def _change(source: str, target: str, *, uninstall: bool) -> None:
    directory = os.path.dirname(target)
    try:
        if uninstall:
            os.unlink(target)
            if not os.listdir(directory) and "lockctl" in directory:
                os.removedirs(directory)
            return
        make_directory(directory)
        new = f"{target}.new"
        shutil.copyfile(source, new)
        os.chmod(new, 0o644)
        os.replace(new, target)
    except OSError as failure:
        raise ConfigError(f"{printable(target)}: {failure.strerror}; --user needs no permission of root") from None
