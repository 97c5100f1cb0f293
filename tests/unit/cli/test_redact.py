"""lockctl.cli.redact: what others see of a command."""

from __future__ import annotations

import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockctl.cli import redact
from lockctl.cli.redact import LONGEST, hide
from lockctl.cli.run import HINTS


@pytest.mark.parametrize(
    "words",
    [
        ("backup", "--password=hunt er2", "--user", "me"),
        ("backup", "--db-password", "hunt er2", "-v"),
        ("env", "PGPASSWORD=hunter2", "AWS_SECRET_ACCESS_KEY=hunter2", "psql"),
        ("mysql", "-uroot", "-phunt er2", "db"),
        ("sudo", "mysqldump", "--all", "-phunter2"),
        ("sh", "-c", "cd /x && mysql -u root -phunter2 db < dump; echo done"),
        ("sh", "-c", 'deploy --token "hunt er2" --stage live'),
        ("sh", "-c", "API_KEY='hunt er2' deploy"),
        ("curl", "-u", "me:hunter2", "https://api.example/"),
        ("curl", "https://me:hunter2@api.example/?access_token=hunter2&page=2"),
        ("curl", "-H", "Authorization: Bearer hunter2.hunter2", "https://api.example/"),
        ("curl", "-d", '{"user": "me", "password": "hunt er2"}', "https://api.example/"),
        ("curl", "-d", '{"user": "me", "password": "a\\"hunter2"}', "https://api.example/"),
        ("curl", "-fsSLu", "me:hunter2", "https://api.example/"),
        ("curl", "-U", "me:hunter2", "--proxy", "p", "https://api.example/"),
        ("curl", "--proxy-user", "me:hunter2", "https://api.example/"),
        ("curl", "-H", 'Authorization: Digest username="me", response="hunter2"', "https://api.example/"),
        ("sh", "-c", 'deploy --password "a\\"hunter2" --stage live'),
        ("redis-cli", "-h", "db", "-a", "hunter2", "PING"),
        ("sshpass", "-vp", "hunter2", "ssh", "host"),
        ("sshpass", "-v", "-p", "hunter2", "ssh", "host"),
        ("sshpass", "-p", "hunter2", "ssh", "host"),
        ("git", "clone", "https://ghp_hunter2hunter2hunter2@github.com/a/b"),
        ("deploy", "github_pat_hunter2hunter2hunter2"),
    ],
)
def test_a_secret_in_its_usual_place_is_hidden_and_the_rest_stays(words: tuple[str, ...]) -> None:
    shown = hide(words)
    assert "er2" not in " ".join(shown)
    assert "***" in " ".join(shown)
    assert len(shown) == len(words)
    untouched = [word for word in words if "er2" not in word]
    assert [word for word in shown if "***" not in word] == untouched


@pytest.mark.parametrize(
    "words",
    [
        ("backup", "--password-file", "/etc/secret", "--token-file=/etc/token"),
        ("mysql", "-p", "db"),
        ("mysql", "-P", "3306", "--protocol=tcp"),
        ("mkdir", "-p", "/tmp/a"),
        ("cp", "-a", "/a", "/b"),
        ("sshpass", "-f", "/etc/secret", "scp", "-p", "a", "host:"),
        ("curl", "--url", "https://api.example/", "-sS", "-o", "a:b"),
        ("login", "--password", "--host", "db"),
        ("compass", "north", "ssh://git@host/x", "--author", "me"),
    ],
)
def test_what_is_no_secret_stays(words: tuple[str, ...]) -> None:
    assert hide(words) == words


PIECES = (
    *(
        "pass",
        "passwd",
        "PASSWORD",
        "passphrase",
        "pwd",
        "secret",
        "token",
        "api_key",
        "Access-Key",
        "credentials",
        "sig",
    ),
    *(
        "Signature",
        "key",
        "authorization",
        "Digest",
        "bearer",
        "https",
        "://",
        "@",
        ":",
        "=",
        " ",
        "-",
        "--",
        "_",
        ".",
        "/",
    ),
    *(
        '"',
        "'",
        "\\",
        ";",
        "\n",
        "mysqldump",
        "mariadb-dump",
        "sshpass",
        "redis-cli",
        "curl",
        "-p",
        "-a",
        "-u",
        "-fsSLU",
    ),
    *(
        "--proxy-user",
        "-vp",
        "a",
        "er2",
        "4711",
        "ghp_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "eyJ",
        "x" * 20,
        "\u00e9",
    ),
)
ANY_WORDS = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), min_size=1, max_size=6).map(tuple)


@settings(max_examples=1000)
@given(ANY_WORDS)
def test_no_regular_expression_that_can_match_is_left_out(words: tuple[str, ...]) -> None:
    shown = hide(words)
    with pytest.MonkeyPatch.context() as patch:
        for rules in ("IN_A_WORD", "OF_A_TOOL"):
            patch.setattr(redact, rules, [(lambda _: True, rule) for _, rule in getattr(redact, rules)])
        patch.setattr(redact, "_names_a_secret", lambda _: True)
        assert hide(words) == shown
    if shown != words:
        assert any(hint in " ".join(words).lower() for hint in HINTS)


def test_a_pattern_hides_what_it_matches_or_its_groups() -> None:
    words = ("send", "--customer=4711", "code-99", "4711")
    assert hide(words, (r"--customer=(\d+)", "code-.*")) == ("send", "--customer=***", "***", "4711")


@pytest.mark.parametrize(
    "text", ["mysql ", "a", "password", "-", "://", " ", "a:", "curl -u", "authorization:", '"', "\n"]
)
def test_no_command_line_takes_long(text: str) -> None:
    begin = time.monotonic()
    hide(("sh", "-c", text * (LONGEST // len(text) - 10)), ())
    assert time.monotonic() - begin < 20


def test_patterns_have_a_limit_of_time_and_leave_signals_as_they_were() -> None:
    blocked, handler = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(ValueError, match="longer than"):
        hide(("send", "a" * 60 + "b"), ("x", "(a+)+$"))
    assert hide(("send", "a" * 60 + "b"), ("b",)) == ("send", "a" * 60 + "***")
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGVTALRM)) == (blocked, handler)
