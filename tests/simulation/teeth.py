"""Whether the simulator finds what it is for: each fault of ``faults/`` in a copy of lockctl, and how soon it is found.

A file there is a patch. Before it stands the plan of the smallest history in which it was found once.

    python -m tests.simulation.teeth               all
    python -m tests.simulation.teeth owner floor   those whose names begin so
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.kept import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parent.parent.parent
SEED = 1_000_000
SECONDS = float(os.environ.get("SECONDS", "180"))
ENDED = re.compile(r"(\d+) histories from seed")
WRONG = re.compile(r"wrong: (.*) (\S+:\d+)")
FILE = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


class Bite(NamedTuple):
    """What became of one fault."""

    name: str
    kinds: str  # of what was found to be wrong; empty: nothing
    histories: int
    seed: str


def _unfold(folder: Path, name: Path) -> None:
    """Make a directory of its own there, with links to what is in ours: what is written there does not come here."""
    if (folder / name).is_symlink():
        (folder / name).unlink()
    if (ROOT / name).is_dir() and not (folder / name).exists():
        (folder / name).mkdir()
        for path in (ROOT / name).iterdir():
            (folder / name / path.name).symlink_to(path)


@contextlib.contextmanager
def copy_with(patches: Iterable[Path]) -> Iterator[str]:
    """A folder with the tests and a copy of the package with some faults. It ends after the block."""
    patches = list(patches)
    with tempfile.TemporaryDirectory(prefix="lockctl-teeth-") as folder:
        for name in {name for patch in patches for name in FILE.findall(patch.read_text())}:
            for parent in (*list(Path(name).parents)[-2::-1], Path(name).parent / "__pycache__"):
                _unfold(Path(folder), parent)
            (Path(folder) / name).unlink()
            shutil.copy2(ROOT / name, Path(folder) / name)
        (Path(folder) / "tests").symlink_to(ROOT / "tests")
        subprocess.run(["git", "apply", *map(str, patches)], cwd=folder, check=True)
        yield folder


def with_faults(patches: Iterable[Path], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation with some faults in a copy of the package."""
    with copy_with(patches) as folder:
        command = [sys.executable, "-m", "tests.simulation", *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def in_their_histories(patches: Iterable[Path], limit: float) -> subprocess.CompletedProcess[str]:
    """Try the plan of each of some faults in a copy of the package that has it, for at most *limit* seconds."""
    with contextlib.ExitStack() as copies:
        pairs = [(copies.enter_context(copy_with([patch])), str(patch)) for patch in patches]
        command = [sys.executable, "-m", "tests.simulation.in_copies", json.dumps(pairs)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)


def bite(patch: Path, seconds: float) -> Bite:
    """Search with one fault, as if its plan were not known."""
    done = with_faults([patch], "--quiet", "--without", patch.stem, "--seed", str(SEED), "--seconds", str(seconds))
    ended, wrong = ENDED.search(done.stdout), WRONG.search(done.stdout)
    if ended is None:
        raise RuntimeError(f"{patch.stem}: {done.stdout}{done.stderr}")
    return Bite(patch.stem, wrong[1] if wrong else "", int(ended[1]), wrong[2] if wrong else "")


def main(beginnings: list[str]) -> int:
    """Print a table; 1 if a fault was not found."""
    missed = 0
    print(f"{'fault':45}  {'found':24}  {'after':>8}  {'first':>16}")
    for patch in FAULTS:
        if beginnings and not patch.stem.startswith(tuple(beginnings)):
            continue
        found = bite(patch, SECONDS)
        missed += not found.kinds
        print(f"{found.name:45}  {found.kinds or 'NOT FOUND':24}  {found.histories:8}  {found.seed:>16}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
