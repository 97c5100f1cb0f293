"""The suite's own rules: what fails is run once more, and what passes then is named with both outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite import MOST_UNSTABLE, Part, run_part, run_suite

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests that are run are those of this directory, with no plugin but xdist: each takes time to load."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    monkeypatch.chdir(tmp_path)


# fails at its first run
UNLUCKY = """
import pathlib

def test_luck_{number}():
    print("try of test {number}")
    seen = pathlib.Path(__file__).with_suffix(".seen-{number}")
    lucky = seen.exists()
    seen.touch()
    assert lucky, "no luck"
"""


def test_a_green_suite_says_what_was_slow_and_forgives_a_few_tests_that_pass_when_they_are_run_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_good.py").write_text("import time\ndef test_slow(): time.sleep(0.3)\ndef test_fast(): pass\n")
    (tmp_path / "test_luck.py").write_text(UNLUCKY.format(number=1))
    assert run_suite([Part("all", (".",))]) == (True, ["test_luck.py::test_luck_1"])
    printed = capfd.readouterr().out
    failed, _, passed = printed.partition("== unstable: test_luck.py::test_luck_1")[2].partition("-- it passed")
    assert "no luck" in failed
    assert "try of test 1" in failed
    assert "try of test 1" in passed
    assert printed.partition("slowest tests:")[2].splitlines()[1].endswith("test_slow")
    assert "all: 3 tests" in printed
    assert printed.endswith("unstable: test_luck.py::test_luck_1\nfailed: none\nbroken: none\n3 passed, 0 failed\n")


def test_too_many_unstable_tests_are_red(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unlucky = range(MOST_UNSTABLE + 1)
    (tmp_path / "test_luck.py").write_text("".join(UNLUCKY.format(number=number) for number in unlucky))
    green, unstable = run_suite([Part("all", (".",))])
    assert (green, len(unstable)) == (False, len(unlucky))
    assert capfd.readouterr().out.endswith(f"failed: none\nbroken: none\n{len(unlucky)} passed, 0 failed\n")


def test_a_test_that_fails_twice_is_red(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_bad.py").write_text("def test_bad(): assert False, 'wrong'\n")
    assert run_suite([Part("all", (".",))]) == (False, [])
    assert capfd.readouterr().out.endswith("test_bad.py::test_bad\nbroken: none\n0 passed, 1 failed\n")


@pytest.mark.parametrize("content", ["import nothing_of_that_name\n", "import os\ndef test_dies(): os._exit(1)\n"])
def test_tests_that_were_not_collected_or_not_run_to_the_end_are_red(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "test_broken.py").write_text(content)
    assert run_suite([Part("all", (".",))]) == (False, [])
    assert "broken: all\n" in capfd.readouterr().out


DISTRIBUTED = """
import os, pathlib, pytest, time
from tests.distribution import ByServers

HERE = pathlib.Path(__file__).parent
WORKER = os.environ.get("PYTEST_XDIST_WORKER")

def pytest_xdist_make_scheduler(config, log):
    return ByServers(config, log)

def wait_for(name):
    give_up = time.monotonic() + 60
    while not (HERE / name).exists() and time.monotonic() < give_up:
        time.sleep(0.02)
"""


def test_the_others_run_what_a_worker_that_ended_has_left(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(DISTRIBUTED)
    first = "\n".join(f"def test_before_{number}(): pass" for number in range(20))
    after = "\n".join(f"def test_after_{number}(): time.sleep(0.01)" for number in range(20))
    (tmp_path / "test_dies.py").write_text(f"import os, time\n{first}\ndef test_dies(): os._exit(1)\n{after}\n")
    ran = run_part(Part("all", ("-n", "3", ".")), tmp_path)
    assert ran.failures() == ["test_dies.py::test_dies"]
    assert sum(test["passed"] for test in ran.tests.values()) == 40


ENDS_WITH_ANOTHER = """
def test_ends_{number}():
    (HERE / "ends-{number}").touch()
    wait_for("ends-{other}")
    os._exit(1)
"""
# of the two workers that take the places of those, the first begins when the second has told what it collected
COLLECTS_LATE = """
def pytest_collection():
    if WORKER == "gw3":
        wait_for("gw4")

@pytest.hookimpl(trylast=True)  # xdist tells it in this hook
def pytest_collection_finish():
    if WORKER == "gw4":
        (HERE / "gw4").touch()
"""


def test_two_workers_that_end_at_once_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(DISTRIBUTED + COLLECTS_LATE)
    ending = "".join(ENDS_WITH_ANOTHER.format(number=number, other=1 - number) for number in range(2))
    staying = "def test_stays(): wait_for('gw4')\n"
    after = "\n".join(f"def test_after_{number}(): pass" for number in range(20))
    (tmp_path / "test_end.py").write_text(f"from conftest import *\n{ending}\n{staying}\n{after}\n")
    ran = run_part(Part("all", ("-n", "3", ".")), tmp_path)
    assert sorted(ran.failures()) == ["test_end.py::test_ends_0", "test_end.py::test_ends_1"]
    assert sum(test["passed"] for test in ran.tests.values()) == 21
    assert not ran.is_broken()
    assert (tmp_path / "gw4").exists()
