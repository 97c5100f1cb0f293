"""What another user may have written into a lock file never reaches a terminal, and never causes a bug."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from lockctl.stores.file import layout, ranges
from lockctl.stores.file.layout import Record
from lockctl.stores.file.share import Sharing
from tests.jobs import eventually
from tests.run.terminal import Terminal

EVIL = "x\x1b[2J\x1b]0;title\x07\n\r\u202ey\x00\x9b1m"


@pytest.fixture
def hold(locks):
    """Hold a lock with a record of our own making."""
    descriptors = []

    def write(document, token=7, name="a"):
        descriptors.append(os.open(locks / name, os.O_RDWR | os.O_CREAT, 0o600))
        fcntl.flock(descriptors[-1], fcntl.LOCK_EX)
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        layout.write(descriptors[-1], Record(1, token, data), durable=False)

    yield write
    for descriptor in descriptors:
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


def looks(lockctl, *names):
    """The ways to look at locks whose code differs."""
    yield from (lockctl("list", *form) for form in ((), ("-o", "wide"), ("--json",)))
    for name in names:
        yield lockctl("run", "-l", name, "--log-format", "json", "--", "true")
        yield lockctl("inspect", name)


def listed(lockctl):
    """Each lock by its name."""
    return {lock["name"]: lock for lock in json.loads(lockctl("list", "--json").stdout)}


def test_control_characters_of_a_holder_never_reach_the_output(lockctl, hold):
    hold(document(owner=EVIL, host=EVIL, user=EVIL, mode=EVIL, command=[EVIL, EVIL]))
    others = [
        lockctl("run", "-l", "a", "--", "true"),
        lockctl("force-release", "a"),
        lockctl("force-release", "a", "--yes", "--token", "1"),
    ]
    for done in [*looks(lockctl, "a"), *others]:
        assert "Traceback" not in done.stderr
        assert harmless(done.stdout + done.stderr)
    assert listed(lockctl)["a"]["holders"][0]["host"] == EVIL


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
            for done in looks(lockctl, "a"):
                assert "Traceback" not in done.stderr
                assert harmless(done.stdout + done.stderr)
            assert listed(lockctl)["a"]["holders"][0]["command"][-1] == evil
        finally:
            holder.kill()


IMPOSSIBLE: list[dict[str, Any]] = [
    {"acquired_at": 1e300, "ttl": float("nan"), "pid": "12"},
    {"acquired_at": -1e300, "ttl": 1e300, "pid": -1},
    {"acquired_at": float("nan"), "ttl": -5, "pid": 10**300},
    {"acquired_at": float("inf"), "pid": True, "command": []},
    {"acquired_at": "yesterday", "host": None, "user": None, "command": None, "mode": None},
    {"acquired_at": True, "host": ["a"], "user": {"b": 1}, "command": {"c": 2}},
    {"acquired_at": 10**400, "command": [1, None, ["x"], {"y": 2}], "taken_by": None, "helper": {}},
    {"command": ["\ud800"], "host": "\udcff", "owner": 5, "taken_by": ["x"]},
    {"pid_ns": 7, "boot_id": [], "pid_started": {}},
]
NO_DOCUMENTS = [b"", b"[1]", b"{", b"\xff\xfe", b'{"owner":' + b"[" * 3800]


def test_records_with_impossible_values_and_without_a_document_are_shown_without_a_bug(lockctl, hold):
    records = [document(**changes) for changes in IMPOSSIBLE] + NO_DOCUMENTS
    names = [f"a{number}" for number in range(len(records))]
    for name, record in zip(names, records, strict=True):
        hold(record, name=name)
    for done in looks(lockctl, *names):
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 75)
        assert harmless(done.stdout + done.stderr)
    assert {listed(lockctl)[name]["state"] for name in names[len(IMPOSSIBLE) :]} == {"foreign"}


def test_a_token_of_any_size_is_shown(lockctl, hold):
    tokens = [0, 2**63, 10**20 - 1]
    for token in tokens:
        hold(document(), token=token, name=f"a{token}")
    assert {name: lock["holders"][0]["token"] for name, lock in listed(lockctl).items()} == {
        f"a{token}": token for token in tokens
    }


PAGES: list[dict[str, Any]] = [
    {"owner": EVIL, "host": EVIL, "user": EVIL, "mode": EVIL, "command": [EVIL]},
    {"owner": 7, "mode": ["slot"], "slots": {}, "taken_by": [], "pid_ns": {}},
    {"acquired_at": 1e300, "slots": 10**300, "pid": -1, "command": {}},
    {"ended_at": EVIL, "until": -1},
]


def test_one_of_several_holders_with_a_hostile_page_is_shown_without_a_bug(lockctl, locks):
    """Each lock is held beside others, with a record and a page of our own making."""
    names = [f"a{number}" for number in range(len(PAGES))]
    with contextlib.ExitStack() as ends:
        for name, changes in zip(names, PAGES, strict=True):
            descriptor = os.open(locks / name, os.O_RDWR | os.O_CREAT, 0o600)
            ends.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            assert ranges.take(descriptor, ranges.SEATS)
            layout.write(descriptor, Record(1, 7, Sharing("slot", 3, 1).document()), durable=False)
            layout.write_page(descriptor, 0, Record(0, 7, json.dumps(document(**changes)).encode()))
        others = [
            done
            for name in names
            for done in (lockctl("force-release", name), lockctl("run", "-l", name, "--slots", "2", "--", "true"))
        ]
        for done in [*looks(lockctl, *names), *others]:
            assert "Traceback" not in done.stderr
            assert done.returncode in (0, 64, 75, 78)
            assert harmless(done.stdout + done.stderr)
        for name in names:
            assert lockctl("run", "-l", name, "--slots", "3", "--", "true").returncode == 0
