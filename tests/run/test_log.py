"""`--log`: the messages are in a second place, too, and nothing there holds up a run."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import time

import pytest

from lockctl.cli import log
from lockctl.cli.messages import Talk
from tests.jobs import eventually


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_file_gets_at_its_end_what_stderr_gets(lockctl, tmp_path, form):
    lockctl.start_holding("a")
    file = tmp_path / "lockctl.log"
    file.write_text("before\n")
    done = lockctl("run", "-l", "a", "--log", str(file), "--log-format", form, "--", "true")
    before, line, end = file.read_text().split("\n")
    assert (done.returncode, before, end) == (75, "before", "")
    said = done.stderr.rstrip("\n")
    assert line == said if form == "json" else re.sub(r"^\S+Z lockctl\[\d+\]", "lockctl", line) == said


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("symlink", "it is a symbolic link"),
        ("hard link", "one with several links"),
        ("fifo", "it is a FIFO"),
        ("directory", "Is a directory"),
        ("nowhere", "No such file or directory"),
    ],
)
def test_what_another_could_have_put_there_is_not_written_to(lockctl, tmp_path, kind, said):
    target, file = tmp_path / "target", tmp_path / "lockctl.log"
    target.write_text("mine")
    make = {
        "symlink": lambda: file.symlink_to(target),
        "hard link": lambda: file.hardlink_to(target),
        "fifo": lambda: os.mkfifo(file),
        "directory": file.mkdir,
        "nowhere": lambda: None,
    }
    make[kind]()
    place = file / "none" if kind == "nowhere" else file
    done = lockctl("run", "-l", "a", "--log", str(place), "--", "touch", str(tmp_path / "ran"))
    assert (done.returncode, target.read_text(), (tmp_path / "ran").exists()) == (64, "mine", False)
    assert said in done.stderr


@pytest.mark.parametrize("place", ["syslog", "journald"])
def test_a_logging_daemon_gets_them_and_holds_up_nothing_when_it_is_stuck_or_gone(tmp_path, monkeypatch, place):
    path = str(tmp_path / "socket")
    monkeypatch.setattr(log.DAEMONS[place], "path", path)
    talk = Talk()
    talk.lock = "nightly"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(path)
        log.begin(place, talk)
        assert isinstance(talk.log, log.Daemon)
        talk("warning", "all\nwell", "held")
        assert select.select([daemon], [], [], 5)[0]
        got = daemon.recv(10000).decode()
        if place == "syslog":
            assert re.fullmatch(r"<28>\w{3} [ \d]\d \d\d:\d\d:\d\d lockctl\[\d+\]: nightly: all.well", got)
        else:
            assert {"MESSAGE=nightly: all\N{REPLACEMENT CHARACTER}well", "PRIORITY=4", "LOCKCTL_EVENT=held"} <= set(
                got.splitlines()
            )
        begin = time.monotonic()
        for _ in range(1000):
            talk.log("warning", None, "x" * 100, "")
        assert time.monotonic() - begin < 5
    talk.log("warning", None, "x", "")
    talk.log.end.close()


def test_the_guard_says_there_that_it_stops_a_job_alone(lockctl, tmp_path):
    file, config = tmp_path / "lockctl.log", tmp_path / "config.toml"
    config.write_text(f'[defaults]\nlog = "{file}"\nlog_format = "json"\nverbose = true\n')
    deaf = f"trap '' TERM; : >{tmp_path}/deaf; while :; do sleep 0.1; done"
    options = ("--config", str(config), "--ttl", "6s", "--kill-after", "100ms")
    with (tmp_path / "stderr").open("w") as stderr:
        run = lockctl.start_holding("a", *options, "--", "sh", "-c", deaf, stderr=stderr)
    eventually((tmp_path / "deaf").exists)
    run.kill()
    eventually(lambda: '"killed"' in file.read_text())
    *_, stopping, killed = map(json.loads, file.read_text().splitlines())
    assert (stopping["event"], stopping["lock"], killed["event"]) == ("stopping", "a", "killed")
    # what the keeper had not written yet when it was killed is in one place at most
    assert (tmp_path / "stderr").read_text().splitlines()[-2:] == file.read_text().splitlines()[-2:]


def test_a_machine_without_such_a_daemon_is_said_once_and_runs_the_job(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(log.Syslog, "path", str(tmp_path / "none"))
    talk = Talk()
    log.begin("syslog", talk)
    assert talk.log is None
    assert "messages go to stderr alone" in capfd.readouterr().err
