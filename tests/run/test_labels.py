"""`--label` and `--redact`: what others see of a holder, a run of the past and a report."""

from __future__ import annotations

import json
import os

import pytest

from lockctl.names import derived_name
from lockctl.settings import BY_NAME
from lockctl.settings_values import MOST_IN_LABELS, check
from tests.jobs import eventually


def test_labels_are_shown_with_the_holder_and_in_the_history_and_the_report(lockctl, locks):
    labels = {"pipeline": "17", "url": "https://ci.example/job?id=5&x=ü"}
    options = [word for pair in labels.items() for word in ("--label", "=".join(pair))]
    report = locks / ".report"
    holder = lockctl.start("run", "-l", "a", *options, "--report", str(report), "--", "cat", stdin=-1)
    seen = eventually(lambda: json.loads(lockctl("inspect", "a", "--json").stdout)["holders"])
    assert seen[0]["labels"] == labels
    assert "pipeline=17 url=https://ci.example/" in lockctl("inspect", "a").stdout
    holder.communicate()
    runs = json.loads(lockctl("history", "a", "--json").stdout)
    assert runs[0]["labels"] == json.loads(report.read_text())["labels"] == labels
    assert "[pipeline=17 url=" in lockctl("history", "a").stdout


def test_labels_come_from_a_variable_and_from_the_file_as_well(lockctl, locks):
    config = locks / ".config.toml"
    config.write_text('[defaults]\nlabel = ["site=berlin", "rack=7"]\n')

    def labels(*words, **env):
        assert lockctl("run", "--config", str(config), "-l", "a", *words, "--", "true", env=env).returncode == 0
        return json.loads(lockctl("history", "a", "--json").stdout)[0]["labels"]

    assert labels() == {"site": "berlin", "rack": "7"}
    assert labels(LOCKCTL_LABEL="a=1\nb=2") == {"a": "1", "b": "2"}
    assert labels("--label", "c=3", LOCKCTL_LABEL="a=1\nb=2") == {"c": "3"}


@pytest.mark.parametrize("text", ["a", "=b", "a b=c", "a=\x1b[1m", "a=b\nc", "a=" + "x" * MOST_IN_LABELS])
def test_what_is_no_label_or_too_long_is_refused(text):
    with pytest.raises(ValueError, match="label"):
        check(BY_NAME["label"], text)


def test_a_value_that_is_not_text_is_what_is_wrong(refused):
    assert "its value must be printable" in refused(64, "--label", os.fsdecode(b"site=\xff"))


def test_secrets_are_in_nothing_that_others_see_and_the_command_gets_them(lockctl, locks):
    words = ("sh", "-c", f'echo "$1" > {locks}/.got; exit 3', "deploy", "--password=hunter2", "--customer=badger")
    report = locks / ".report"
    done = lockctl("run", "--redact", "customer=(.*)", "--report", str(report), "-v", "--", *words)
    assert done.returncode == 3
    name = derived_name(words)
    history = lockctl("history", name, "--json").stdout
    assert json.loads(history)[0]["command"][-2:] == ["--password=***", "--customer=***"]
    assert (locks / ".got").read_text() == "--password=hunter2\n"
    stored = b"".join(path.read_bytes() for path in locks.iterdir() if path.is_file() and path.name != ".got")
    assert b"hunter2" not in stored
    assert b"badger" not in stored  # a number may be in a token
    for everything in (done.stderr, history, report.read_text()):
        assert "hunter2" not in everything
    assert lockctl("run", "--ttl", "banana", "--report", str(report), "--", *words).returncode == 64
    assert "hunter2" not in report.read_text()


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_pattern_that_takes_for_ever_is_refused_in_a_second(refused, locks, by):
    report = locks / ".report"
    words = ("-l", "a", "--report", str(report), *(("--redact", "(a+)+$") if by == "option" else ()))
    env = {"LOCKCTL_REDACT": "(a+)+$"} if by == "variable" else {}
    refused.marker = locks / (".ran-" + "a" * 60 + "b")
    said = refused(64 if by == "option" else 78, *words, env=env)
    assert ("--redact: " if by == "option" else "$LOCKCTL_REDACT: ") in said
    assert (json.loads(report.read_text())["command"], said.count("simpler")) == (None, 1)


@pytest.mark.parametrize("name", ["label", "redact"])
def test_what_is_wrong_with_one_of_several_is_said(lockctl, name):
    done = lockctl("run", "-l", "a", f"--{name}", "a=b", f"--{name}", "(", "--", "true", env=dict(os.environ))
    assert (done.returncode, f"--{name}: '('" in done.stderr) == (64, True)
