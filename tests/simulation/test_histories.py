"""A short part of the histories that `make simulate` tries, and the smallest ones in which faults were found once."""

from __future__ import annotations

import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.simulation.kept import FAULTS
from tests.simulation.teeth import ROOT, in_their_histories, with_faults

HISTORIES = 300
LONGEST = 90  # seconds
LIMIT = 280  # seconds: each is quick, but a machine can be slow, or do other things, too
PARTS = 6  # of the faults, each for one worker
SOME = 40
CHANCES = "1"  # seed of small chances with each plan, its own: the search tries others

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT + 20)]


def simulation(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the modules of lockctl are changed there."""
    command = [sys.executable, "-m", "tests.simulation", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_nothing_is_wrong_in_some_histories_with_faults_of_all_kinds() -> None:
    done = simulation("--seed", "1", "--histories", str(HISTORIES), "--seconds", str(LONGEST), "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > HISTORIES / 10, "this machine is too slow for histories"


@pytest.mark.parametrize("number", range(PARTS))
def test_nothing_is_wrong_in_histories_in_which_a_fault_was_found(number: int) -> None:
    patches = FAULTS[number::PARTS]
    done = simulation("--histories", CHANCES, "--plans", *map(str, patches))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{patch.stem}: nothing is wrong" for patch in patches]


def test_nothing_is_wrong_in_histories_that_were_told_as_wrong() -> None:
    done = simulation("--histories", CHANCES, "--plans", str(Path(__file__).parent / "excused.plans"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.splitlines()) == {"excused: nothing is wrong"}


@pytest.mark.parametrize("store", ["consul", "file", "nats"])
def test_nothing_is_wrong_in_histories_in_which_a_fault_was_found_with_another_store(store: str) -> None:
    patches = FAULTS[:: len(FAULTS) // SOME]
    done = simulation("--histories", CHANCES, "--with", store, "--plans", *map(str, patches))
    assert done.returncode == 0, done.stdout + done.stderr
    assert SOME / 2 < len(done.stdout.splitlines()) <= len(patches)


@pytest.mark.parametrize("number", range(PARTS))
def test_each_fault_is_found_in_its_history(number: int) -> None:
    patches = FAULTS[number::PARTS]
    done = in_their_histories(patches, LIMIT)
    found = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [name for name, _, _ in found] == [patch.stem for patch in patches], done.stdout + done.stderr
    assert [name for name, _, wrong in found if wrong == "nothing is wrong"] == []
    assert "bug: " not in done.stdout


def test_a_seed_is_one_history_whatever_was_before_it() -> None:
    seeds = ("exact:1", "seconds:2", "etcd:3", "zookeeper:4", "transaction:5", "redlock:6", "file:7", "exact:8")
    told = [simulation("--tell", *order).stdout.removeprefix("store ") for order in (seeds, seeds[::-1])]
    first, second = (sorted(story.strip() for story in each.split("\nstore ")) for each in told)
    assert first == second
    assert len(first) == len(seeds)


def test_a_fault_is_found_and_its_smallest_history_is_told_always_in_the_same_way() -> None:
    patch = next(each for each in FAULTS if each.stem.startswith("place-in-the-queue"))
    words = ("--seed", "1", "--histories", "400", "--jobs", "1", "--store", "exact")
    told = [with_faults([patch], *words) for _ in range(2)]
    assert told[0].returncode == 1, told[0].stdout + told[0].stderr
    assert "WRONG  left: " in told[0].stdout
    assert told[0].stdout.partition("\n")[2] == told[1].stdout.partition("\n")[2]


@pytest.mark.parametrize(
    ("store", "file", "right", "wrong"),
    [
        ("postgresql", "postgresql/tokens.py", "ON CONFLICT (key) DO UPDATE SET", "ON CONFLICT (key) DO CHANGE"),
        ("transaction", "postgresql/scope.py", "ROLLBACK", "ROLL BACK"),
        ("mysql", "mysql/cell.py", " AS c ON ", " c AS ON "),
    ],
)
def test_a_statement_that_no_server_executes_is_told_as_wrong(
    store: str, file: str, right: str, wrong: str, tmp_path: Path
) -> None:
    name, patch = f"lockctl/stores/{file}", tmp_path / "statement.patch"
    before = (ROOT / name).read_text()
    after = before.replace(right, wrong)
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    patch.write_text("".join(unified_diff(old, new, f"a/{name}", f"b/{name}")))
    done = with_faults([patch], "--tell", f"{store}:1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG  bug: server, " in done.stdout
    assert wrong in done.stdout
