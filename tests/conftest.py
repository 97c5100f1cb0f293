"""What every test may ask for: a place for locks, and the `lockctl` that was installed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.distribution import ByServers, await_a_processor, longest_first
from tests.jobs import Lockctl
from tests.scratch import local_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.register_assert_rewrite("tests.contract", "tests.fence", "tests.promises", "tests.faults")
pytest_plugins = ["tests.servers.fixtures"]
IN_CI = bool(os.environ.get("CI"))


ROOT = Path(__file__).resolve().parents[1]
STARTS = {"lockctl", "start_server", "start_proxy", "certificates"}  # fixtures of tests that start programs


def pytest_configure(config: pytest.Config) -> None:
    """What tests start gets the signals' defaults: a shell without job control starts `make test &` without INT."""
    gc.disable()  # until all tests are collected: none of that is garbage
    config.addinivalue_line("markers", "slow: waits for long or starts programs, without a fixture that says so")
    config.addinivalue_line("markers", "quick: given to every test that starts no program and does not wait for long")
    if installed_from() not in {None, ROOT}:
        os.environ["PYTHONPATH"] = str(ROOT)  # the command is that of an environment shared with another clone
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def installed_from() -> Path | None:
    """The tree whose code the installed `lockctl` runs; ``None``: it was copied, or is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        origin = json.loads(metadata.distribution("lockctl").read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            return Path(unquote(urlsplit(origin["url"]).path)).resolve()
    return None


def pytest_collection_finish() -> None:
    """From here on garbage is looked for, and only in what the tests leave."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark what is quick; of what is chosen then, have workers begin with what takes longest."""
    from tests.servers.fixtures import needed_by  # a plugin, which pytest wants to load first

    for item in items:
        starts = STARTS & set(getattr(item, "fixturenames", ())) or item.get_closest_marker("slow")
        if not starts and not needed_by(item):
            item.add_marker(pytest.mark.quick)
    yield
    if hasattr(config, "workerinput"):
        order = longest_first(item.nodeid for item in items)
        items.sort(key=lambda item: order[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Many tests wait most of the time; when they do not, others that start programs begin later."""
    if hasattr(item.config, "workerinput") and not item.get_closest_marker("quick"):
        await_a_processor()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers:
    """For all ways to distribute tests: a start of all servers in each worker takes longer than what it gains."""
    return ByServers(config, log)


@pytest.fixture
def locks() -> Iterator[Path]:
    """An empty directory for lock files, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="lockctl-test-", dir=local_directory()))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def lockctl(locks: Path) -> Iterator[Lockctl]:
    """The installed command, on a directory of its own; every process it started is ended afterwards."""
    command = Path(sys.executable).parent / "lockctl"
    assert command.exists(), "install the project first: make test"
    runner = Lockctl(str(command), locks)
    yield runner
    runner.end_all()


@pytest.fixture
def need_tool() -> Callable[[str], str]:
    """The path of a program; without it the test is skipped, and fails in CI."""

    def find(name: str) -> str:
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if path is None and IN_CI:
            pytest.fail(f"{name} is not installed: `make test` as root installs it")
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return find
