"""What another user may have written into a lock file never reaches a terminal, and never causes a bug."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from lockctl.stores.file import layout, ranges
from lockctl.stores.file.layout import Record
from lockctl.stores.file.share import Sharing
from tests.jobs import eventually
from tests.run.terminal import Terminal

EVIL = "x\x1b[2J\x1b]0;title\x07\n\r\u202ey\x00\x9b1m"


@pytest.fixture
def hold(locks):
    """Hold lock "a" with a record of our own making."""
    descriptor = os.open(locks / "a", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    def write(document, token=7):
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        layout.write(descriptor, Record(1, token, data), durable=False)

    yield write
    os.close(descriptor)


def harmless(text):
    return all(cell.isprintable() for line in text.split("\n") for cell in line.split("\t"))


def document(**changes):
    return {
        "owner": "0" * 32,
        "host": "web1",
        "pid": 1,
        "user": "ops",
        "mode": "exclusive",
        "ttl": 30.0,
        "taken_by": os.getpid(),
        "pid_ns": os.readlink("/proc/self/ns/pid"),
        "acquired_at": 1.0,
        "command": ["job"],
        **changes,
    }


def looks(lockctl):
    """The ways to look at lock "a" whose code differs."""
    return [
        lockctl("run", "-l", "a", "--log-format", "json", "--", "true"),
        lockctl("list"),
        lockctl("inspect", "a"),
        lockctl("inspect", "a", "--json"),
    ]


def test_control_characters_of_a_holder_never_reach_the_output(lockctl, hold):
    hold(document(owner=EVIL, host=EVIL, user=EVIL, mode=EVIL, command=[EVIL, EVIL]))
    others = [
        lockctl("run", "-l", "a", "--", "true"),
        lockctl("list", "--json"),
        lockctl("force-release", "a"),
        lockctl("force-release", "a", "--yes", "--token", "1"),
    ]
    for done in [*looks(lockctl), *others]:
        assert "Traceback" not in done.stderr
        assert harmless(done.stdout + done.stderr)
    assert json.loads(lockctl("inspect", "a", "--json").stdout)["holders"][0]["host"] == EVIL


def test_control_characters_are_not_shown_when_it_asks(lockctl, hold):
    hold(document(host=EVIL, user=EVIL, command=[EVIL]))
    terminal = Terminal(lockctl.command, "force-release", "a", env=lockctl.environment())
    try:
        assert harmless(terminal.expect(r"\[y/N\] ").replace("\r\n", "\n"))
    finally:
        terminal.end()


HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
open(sys.argv[2], "w").close()
time.sleep(60)
"""


def test_the_words_of_a_foreign_process_are_cleaned_too(lockctl, locks):
    evil = EVIL.replace("\0", "")
    with subprocess.Popen([sys.executable, "-ISBc", HOLD, str(locks / "a"), str(locks / ".up"), evil]) as holder:
        try:
            eventually((locks / ".up").exists)
            for done in looks(lockctl):
                assert "Traceback" not in done.stderr
                assert harmless(done.stdout + done.stderr)
            assert json.loads(lockctl("inspect", "a", "--json").stdout)["holders"][0]["command"][-1] == evil
        finally:
            holder.kill()


@pytest.mark.parametrize(
    "changes",
    [
        {"acquired_at": 1e300, "ttl": float("nan"), "pid": "12"},
        {"acquired_at": -1e300, "ttl": 1e300, "pid": -1},
        {"acquired_at": float("nan"), "ttl": -5, "pid": 10**300},
        {"acquired_at": float("inf"), "pid": True, "command": []},
        {"acquired_at": "yesterday", "host": None, "user": None, "command": None, "mode": None},
        {"acquired_at": True, "host": ["a"], "user": {"b": 1}, "command": {"c": 2}},
        {"acquired_at": 10**400, "command": [1, None, ["x"], {"y": 2}], "taken_by": None, "helper": {}},
        {"command": ["\ud800"], "host": "\udcff", "owner": 5, "taken_by": ["x"]},
        {"pid_ns": 7, "boot_id": [], "pid_started": {}},
    ],
    ids=lambda changes: repr(changes)[:40],
)
def test_a_record_with_impossible_values_is_shown_without_a_bug(lockctl, hold, changes):
    hold(document(**changes))
    for done in looks(lockctl):
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 75)
        assert harmless(done.stdout + done.stderr)


@pytest.mark.parametrize(
    "data",
    [b"", b"[1]", b"{", b"\xff\xfe", b'{"owner":' + b"[" * 3800],
    ids=lambda data: repr(data[:12]),
)
def test_a_record_that_is_no_document_is_shown_without_a_bug(lockctl, hold, data):
    hold(data)
    for done in looks(lockctl):
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 75)
    assert json.loads(lockctl("inspect", "a", "--json").stdout)["state"] == "foreign"


@pytest.mark.parametrize("token", [0, 2**63, 10**20 - 1])
def test_a_token_of_any_size_is_shown(lockctl, hold, token):
    hold(document(), token=token)
    assert json.loads(lockctl("inspect", "a", "--json").stdout)["holders"][0]["token"] == token


@pytest.fixture
def share(locks):
    """Hold lock "a" beside others, with a record and a page of our own making."""
    descriptor = os.open(locks / "a", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    assert ranges.take(descriptor, ranges.SEATS)

    def write(page, token=7):
        sharing = Sharing("slot", 3, 1).document()
        layout.write(descriptor, Record(1, token, sharing), durable=False)
        layout.write_page(descriptor, 0, Record(0, token, json.dumps(page).encode()))

    yield write
    os.close(descriptor)


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": EVIL, "host": EVIL, "user": EVIL, "mode": EVIL, "command": [EVIL]},
        {"owner": 7, "mode": ["slot"], "slots": {}, "taken_by": [], "pid_ns": {}},
        {"acquired_at": 1e300, "slots": 10**300, "pid": -1, "command": {}},
        {"ended_at": EVIL, "until": -1},
    ],
    ids=lambda changes: repr(changes)[:30],
)
def test_one_of_several_holders_with_a_hostile_page_is_shown_without_a_bug(lockctl, share, changes):
    share(document(**changes))
    others = [lockctl("force-release", "a"), lockctl("run", "-l", "a", "--slots", "2", "--", "true")]
    for done in [*looks(lockctl), *others]:
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 64, 75, 78)
        assert harmless(done.stdout + done.stderr)
    assert lockctl("run", "-l", "a", "--slots", "3", "--", "true").returncode == 0
