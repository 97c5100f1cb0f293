"""A configuration that cannot be right: 78, with file, key and line, and nothing ran."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.jobs import LIMIT
from tests.servers.replay import listening


@pytest.fixture
def file(locks):
    return locks / ".config.toml"


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [('# one\n[locks."other-*"]\nleftover = "eat"\n', 3, "leftover"), ('[defaults]\n"bad\\u001b[31m" = 1\n', 2, "bad")],
)
def test_a_wrong_entry_is_named_with_file_key_and_line(refused, file, text, line, key):
    file.write_text(text)
    said = refused(78, "-l", "a", "--config", str(file))
    assert f"{file}:{line}: " in said
    assert key in said


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(4096) + b"\xff\xfe",
        b"x = " + b"[" * 20000,
        b"# \x1b]0;title\x07\n[defaults\n",
    ],
    ids=["noise", "deep", "escape"],
)
def test_a_file_that_is_no_configuration_is_refused(refused, file, data):
    file.write_bytes(data)
    assert str(file) in refused(78, "-l", "a", "--config", str(file))


def test_a_byte_order_mark_is_no_part_of_it(lockctl, file):
    file.write_bytes(b'\xef\xbb\xbf[defaults]\nttl = "7s"\n')
    shown = lockctl("config", "show", "--config", str(file)).stdout
    assert f"ttl\t7s\t{file}" in shown


def test_a_missing_file_that_was_asked_for_is_refused(refused, file):
    assert "No such file" in refused(78, "--config", str(file))
    assert str(file) in refused(78, env={"LOCKCTL_CONFIG": str(file)})


def test_a_directory_as_configuration_is_refused(refused, locks):
    assert "directory" in refused(78, "--config", str(locks))


def test_a_file_without_end_is_refused(refused):
    refused(78, "--config", "/dev/zero")


def test_a_configuration_that_may_not_be_read_is_refused(refused, file, without_rights):
    file.write_text("[defaults]\n")
    file.chmod(0)
    said = refused(78, "-l", "a", "--config", str(file), through=without_rights)
    assert f"{file}: cannot read the configuration: Permission denied" in said


@pytest.mark.parametrize("closed", ["lockctl/config.toml", "lockctl", ""])
def test_a_configuration_of_the_user_that_may_not_be_read_is_not_passed_over(refused, locks, without_rights, closed):
    home = locks / ".home"
    (home / "lockctl").mkdir(parents=True)
    (home / "lockctl" / "config.toml").write_text("[defaults]\n")
    (home / closed).chmod(0)
    said = refused(78, "-l", "a", through=without_rights, env={"XDG_CONFIG_HOME": str(home)})
    (home / closed).chmod(0o700)
    assert f"{home}/lockctl/config.toml: cannot " in said
    assert "Permission denied" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    "words", [("run", "-l", "a", "--", "true"), ("list",), ("config", "check"), ("config", "show")]
)
def test_root_runs_nothing_that_the_configuration_of_another_user_names(lockctl, locks, file, words):
    ran = locks / ".ran"
    file.write_text(
        '[defaults]\nbackend = "x"\n[backends.x]\nurl = "redis://127.0.0.1:1/0"\n'
        f'password_command = "touch {ran}; echo secret"\n'
    )
    os.chown(file, 1234, 1234)
    env = {"LOCKCTL_CONFIG": str(file), "LOCKCTL_BACKEND": ""}
    done = lockctl(*words, env=env)
    assert done.returncode == 78
    assert "belongs to user 1234" in done.stderr
    completing = {"_LOCKCTL_COMPLETE": "bash_complete", "COMP_WORDS": "lockctl\ninspect\n", "COMP_CWORD": "2"}
    assert not lockctl(env={**env, **completing}).stdout.strip()
    assert not ran.exists()


def test_an_impossible_pair_in_the_configuration_is_refused(refused, file):
    file.write_text('[defaults]\nttl = "10s"\nkill_after = "10s"\n')
    said = refused(78, "-l", "a", "--config", str(file))
    assert "kill_after must be shorter than the ttl" in said
    assert f"{file}:3: " in said


@pytest.mark.parametrize("name", ["report", "log", "metrics_dir"])
def test_a_place_that_cannot_be_used_says_who_named_it(refused, file, locks, name):
    place, option, variable = f"{locks}/none/x", f"--{name.replace('_', '-')}", f"LOCKCTL_{name.upper()}"
    assert refused(64, "-l", "a", option, place).startswith(f"lockctl: a: {option}: ")
    assert refused(78, "-l", "a", env={variable: place}).startswith(f"lockctl: a: ${variable}: ")
    file.write_text(f'[defaults]\n{name} = "{place}"\n')
    assert refused(78, "-l", "a", "--config", str(file)).startswith(f"lockctl: a: {file} [defaults] {name}: ")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("nosuch://host/", "no backend for 'nosuch' URLs"),
        ("redis://host:0/", "a port in a backend URL"),
        ("redis://user@host/", "redis: a user without a password"),
        ("consul://host/?token_file=/none", "token_file /none: No such file"),
    ],
)
def test_a_backend_that_cannot_be_used_says_who_named_it(lockctl, refused, file, url, wrong):
    assert refused(78, "-l", "a", "-b", url).startswith(f"lockctl: a: --backend: {wrong}")
    assert refused(78, "-l", "a", "-l", "b", "-b", url).startswith(f"lockctl: a: --backend: {wrong}")
    named = {"LOCKCTL_BACKEND": url}
    assert refused(78, "-l", "a", env=named).startswith(f"lockctl: a: $LOCKCTL_BACKEND: {wrong}")
    assert lockctl("list", env=named).stderr.startswith(f"lockctl: $LOCKCTL_BACKEND: {wrong}")
    file.write_text(f'[defaults]\nbackend = "{url}"\n')
    of_file, no_variable = {"LOCKCTL_BACKEND": "", "LOCKCTL_CONFIG": str(file)}, {"LOCKCTL_BACKEND": ""}
    said = refused(78, "-l", "a", "--config", str(file), env=no_variable)
    assert said.startswith(f"lockctl: a: {file} [defaults] backend: {wrong}")
    assert lockctl("list", env=of_file).stderr.startswith(f"lockctl: {file} [defaults] backend: {wrong}")
    file.write_text(f'[locks."a*"]\nbackend = "x"\n[backends.x]\nurl = "{url}"\n')
    assert refused(78, "-l", "a", env=of_file).startswith(f"lockctl: a: {file}")
    assert "[backends.x]" in refused(78, "-l", "a", env=of_file)


@pytest.mark.parametrize(("word", "status"), [("", 64), ("nosuch", 78), ("file://host/dir", 78), ("file:///%zz", 78)])
def test_a_wrong_backend_is_refused(refused, word, status):
    refused(status, "-l", "a", f"--backend={word}")


def test_a_good_configuration_counts(lockctl, file):
    file.write_text(
        f'[defaults]\nbackend = "here"\n[backends.here]\nurl = "{lockctl.url}"\n[locks."n*"]\nconflict_exit_code = 5\n'
    )
    lockctl.start_holding("night")
    lockctl.start_holding("day")
    found = [lockctl("run", "-l", name, "--config", str(file), "--", "true").returncode for name in ("night", "day")]
    assert found == [5, 75]


def test_a_url_whose_parts_cannot_be_meant_is_refused(refused):
    assert "backend URL" in refused(78, "-l", "a", "-b", "redis://h\udcff/")


@pytest.mark.parametrize(
    "reply", [b":1\r\n", b"*1\r\n:1\r\n", b"*1\r\n*1\r\n:1\r\n", b"*1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"]
)
def test_a_sentinel_that_answers_nonsense_is_a_backend_that_gives_no_answer(refused, reply):
    def answer(client):
        while client.recv(4096):
            client.sendall(reply)

    with listening(answer) as address:
        assert "sentinels" in refused(69, "-l", "a", "-t", "3s", "-b", f"redis+sentinel://{address}/primary")


@pytest.mark.parametrize("place", ["/dev/stdin", "/dev/fd/3"])
def test_a_standby_refuses_a_configuration_that_it_cannot_read_again(lockctl, place):
    line = 'echo \'[defaults]\nttl = "20s"\' | "$0" run -l a --restart --config "$1" -- sh -c "echo ran; exit 1" 3<&0'
    words = ["timeout", "10", "sh", "-c", line, lockctl.command, place]
    done = subprocess.run(words, env=lockctl.environment(), capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"{place}: a pipe" in done.stderr
