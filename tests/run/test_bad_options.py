"""Wrong words on the command line: one line, 64, and nothing ran."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["--unknown"],
        ["-X"],
        ["--tt", "5s"],
        ["--quiet=yes"],
        ["--leftover", "eat"],
        ["--signal", "NOSUCH"],
        ["--\x1b[31m"],
    ],
)
def test_a_wrong_option_is_refused(refused, words):
    refused(64, *words)


@pytest.mark.parametrize(("option", "text"), [("--ttl", ""), ("--wait", "5x")])
def test_a_wrong_duration_is_refused_and_repeated(refused, option, text):
    said = refused(64, f"{option}={text}")
    assert option in said


@pytest.mark.parametrize("text", ["999ms", "0.000000000000000000000000000001"])
def test_a_lease_that_is_too_short_is_refused(refused, text):
    assert "at least 1s" in refused(64, "--ttl", text)


@pytest.mark.parametrize("words", [["-k", "30s"], ["-t", "2s", "-k", "2s"], ["-t", "2s", "-k", "1999ms"]])
def test_a_grace_that_does_not_fit_into_the_lease_is_refused(refused, words):
    said = refused(64, *words)
    assert "kill-after" in said
    assert "ttl" in said


@pytest.mark.parametrize("text", ["256", "", "9" * 5000])
def test_a_wrong_exit_status_is_refused(refused, text):
    assert "0 to 255" in refused(64, "-E", text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "--",
        "a\x1b[31mb",
        "a\udcff",
        "x" * 5000,
    ],
)
def test_a_wrong_lock_name_is_refused(refused, name):
    said = refused(64, f"--lock={name}")
    assert "lock name" in said
    assert len(said) < 400


def test_the_longest_lock_name_is_accepted(lockctl):
    assert lockctl("run", "-l", "x" * 200, "--", "true").returncode == 0


@pytest.mark.parametrize("words", [[], ["--"], ["-l", "a"], ["-l", "a", "--"], ["-c"], ["--lock"]])
def test_no_command_is_wrong_usage(lockctl, words):
    done = lockctl("run", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)


def test_the_name_of_a_second_lock_is_checked_too(refused):
    assert "'.b' cannot start" in refused(64, "-l", "a", "-l", ".b")


@pytest.mark.parametrize("verb", ["inspect", "force-release"])
@pytest.mark.parametrize("name", ["a\x1b[31m", "x" * 5000])
def test_a_wrong_lock_name_is_wrong_usage_for_every_verb(lockctl, verb, name):
    done = lockctl(verb, name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert done.stderr[:-1].isprintable()


@pytest.mark.parametrize(
    ("variable", "text"), [("LOCKCTL_TTL", "banana"), ("LOCKCTL_SKIP_OK", "maybe"), ("LOCKCTL_SIGNAL", "NO\x1bSUCH")]
)
def test_a_wrong_variable_is_wrong_configuration(refused, variable, text):
    assert f"${variable}" in refused(78, env={variable: text})
