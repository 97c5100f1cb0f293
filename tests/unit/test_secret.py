"""lockctl.secret and lockctl.config: where a password may come from, and that it goes nowhere else."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lockctl import secret, shell
from lockctl.config import Effective, backend_url, read_config
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.profiles import profile_url
from lockctl.registry import open_backend
from lockctl.url import SECRETS, Url, parse_url
from lockctl.wire.deadline import Deadline, password_now
from tests.jobs import alive, eventually

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "p/w?x#y@z% 1"


def quoted(path: object) -> str:
    return str(path).replace("%", "%25").replace(" ", "%20")


@pytest.mark.parametrize("word", ["password", "token"])
def test_a_password_is_read_from_a_file_without_the_end_of_its_line(tmp_path: Path, word: str) -> None:
    (tmp_path / "pw").write_text(SECRET + "\n")
    url = secret.resolve(parse_url(f"redis://u@h/0?prefix=a&{word}_file={quoted(tmp_path / 'pw')}"))
    assert (url.user, url.password, url.params) == ("u", SECRET, (("prefix", "a"),))
    assert SECRET not in repr(url)
    assert SECRET not in str(url)


def test_a_password_is_printed_by_a_command_of_the_shell() -> None:
    url = secret.resolve(parse_url("consul://h?token_command=printf%20'%25s\\n'%20\"$((20*2+2))\""))
    assert url.password == "42"


def test_a_url_without_such_a_parameter_stays_as_it_is() -> None:
    url = parse_url("redis://h/0?prefix=a")
    assert secret.resolve(url) is url


@pytest.mark.parametrize("name", [*SECRETS, f"sentinel{secret.ALSO_NAMED}"])
def test_who_opens_a_backend_gets_what_each_such_parameter_says(name: str) -> None:
    place = "false" if name.endswith("command") else "/no/such/file"
    with pytest.raises(ConfigError, match=f"^{name}"):
        open_backend(parse_url(f"redis://h/0?prefix=a&{name}={place}"))


def test_who_opens_a_backend_needs_no_reader_of_passwords_for_the_value_of_a_parameter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(secret, "resolve")
    open_backend(parse_url("redis://h/0?prefix=password_file:of_command:")).close()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("password_file=/nowhere/pw", "password_file /nowhere/pw: No such file"),
        ("password_file=/", "password_file /: Is a directory"),
        ("password_file=/dev/null", "one line"),
        ("password_command=printf 'a\\nb'", "one line"),
        ("password_command=printf '\\377'", "one line of UTF-8"),
        ("password_command=echo p4ss; exit 3", "password_command: the command failed with status 3"),
        ("password_command=kill -9 $$", "status 137"),
        ("password_command=yes", "did not end within|printed too much"),
        ("password_command=true&password_file=/dev/null", "given only once"),
        ("password_command=: p4ss", "password_command: the password must be one line"),
    ],
)
def test_what_gives_no_password_is_named_without_it(params: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        secret.resolve(parse_url("redis://h/0?" + params.replace("\\", "%5C").replace(" ", "%20")))
    assert "p4ss" not in str(refused.value)


def test_a_command_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shell, "LIMIT", 0.3)
    pid_file = tmp_path / "pid"
    before = time.monotonic()
    with pytest.raises(ConfigError, match="did not end"):
        secret.resolve(parse_url(f"redis://h?password_command=sleep 60 %26 echo $! > {quoted(pid_file)}; wait"))
    assert time.monotonic() - before < 5
    eventually(lambda: not alive(int(pid_file.read_text())))


def test_a_command_that_closes_its_stdout_and_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "LIMIT", 0.3)
    before = time.monotonic()
    with pytest.raises(ConfigError, match="did not end"):
        secret.resolve(parse_url("redis://h?password_command=echo a; exec sleep 60 >%26-"))
    assert time.monotonic() - before < 5


def test_a_command_is_ended_by_a_reader_that_goes_away_as_in_any_shell(capfd: pytest.CaptureFixture[str]) -> None:
    url = secret.resolve(parse_url("redis://h?password_command=yes pw | head -n 1"))
    assert url.password == "pw"
    assert capfd.readouterr().err == ""


def test_a_pipe_may_give_the_password_in_pieces(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
            for piece in (b"p/", b"w", b"\n"):
                pipe.write(piece)
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    url = secret.resolve(parse_url(f"redis://h?password_file={quoted(tmp_path / 'pipe')}"))
    writer.join()
    assert url.password == "p/w"


def test_a_pipe_that_nobody_writes_to_does_not_hold_us_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shell, "LIMIT", 0.3)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="no password within"):
        secret.resolve(parse_url(f"redis://h?password_file={quoted(tmp_path / 'pipe')}"))


def test_a_file_that_is_too_large_is_not_cut_to_a_password(tmp_path: Path) -> None:
    (tmp_path / "large").write_text("a" * (shell.LONGEST + 1))
    with pytest.raises(ConfigError, match="too large"):
        secret.resolve(parse_url(f"redis://h?password_file={quoted(tmp_path / 'large')}"))


def test_a_url_with_a_password_and_a_file_for_it_says_which_two_places() -> None:
    with pytest.raises(ConfigError, match="the URL or profile itself or password_file") as refused:
        open_backend(parse_url("redis://:p4ss@h?password_file=/etc/pw"))
    assert "p4ss" not in str(refused.value)


def test_a_profile_has_user_password_and_parameters_of_its_url_as_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        f'[backends.main]\nurl = "rediss://h/0?prefix=a"\nuser = "ops"\npassword = "{SECRET}"\n'
        'ca = "/etc/ca.pem"\ninsecure = false\nprefix = "b"\n'
    )
    file = read_config(str(path))
    assert file is not None
    url = profile_url(file, "main")
    assert (url.user, url.password) == ("ops", SECRET)
    assert dict(url.params) == {"prefix": "b", "ca": "/etc/ca.pem", "insecure": "no"}


def test_the_variable_is_the_password_of_a_url_that_has_none() -> None:
    def password(word: str) -> str | None:
        return backend_url(
            Effective("backend", word, "--backend"), {"LOCKCTL_PASSWORD": "v", "HOME": "/h"}, None
        ).password

    assert password("redis://u@h") == "v"
    assert password("redis://u:own@h") == "own"
    assert password("redis://u@h?password_file=/f") is None


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        *[(f"{scheme}://x/y", False) for scheme in ("file", "sqlite", "gcs", "kubernetes")],
        *[(f"{scheme}://u@x/y", False) for scheme in ("gcs", "kubernetes")],
        *[(f"{scheme}://x/y", False) for scheme in ("etcd", "etcds", "zookeeper", "zookeepers", "s3", "dynamodb")],
        *[(f"{scheme}://u@x/y", True) for scheme in ("etcd", "etcds", "zookeeper", "zookeepers", "s3", "dynamodb")],
        *[(f"nats://x/y?{name}=/f", False) for name in ("creds", "nkey")],
        *[(f"{scheme}://x/y", True) for scheme in ("nats", "consul", "consuls", "azblob", "postgresql", "mysql")],
        *[(f"{scheme}://x/y", True) for scheme in ("redis", "rediss", "redis+unix", "redis+sentinel")],
        *[(f"{scheme}://x/y", True) for scheme in ("redlock", "redlocks")],
    ],
)
def test_the_variable_is_left_out_where_no_password_is_wanted(url: str, *, taken: bool) -> None:
    """A shell may have it set for another store."""
    variables = {"LOCKCTL_PASSWORD": "v", "HOME": "/h"}
    assert backend_url(Effective("backend", url, "--backend"), variables, None).password == ("v" if taken else None)


def test_a_variable_that_is_no_text_is_named_without_what_it_has() -> None:
    variables = {"LOCKCTL_PASSWORD": os.fsdecode(b"mine\xff"), "HOME": "/h"}
    with pytest.raises(ConfigError, match=r"^\$LOCKCTL_PASSWORD: the password must be UTF-8 text$"):
        backend_url(Effective("backend", "redis://u@h", "--backend"), variables, None)
    assert backend_url(Effective("backend", "file:///srv", "--backend"), variables, None).password is None


def test_a_pipe_and_a_command_are_read_once_for_all_locks(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, SECRET.encode())
    os.close(writing)
    asked = tmp_path / "asked"
    for params in (f"password_file=/dev/fd/{reading}", f"password_command=echo x >>{asked}; echo '{SECRET}'"):
        urls = [secret.resolve(Url("redis", None, None, ("h",), "/0", (tuple(params.split("=", 1)),))) for _ in "12"]  # type: ignore[arg-type]
        assert [url.password for url in urls] == [SECRET, SECRET]
        assert password_now(urls[1].password, Deadline(5)) == SECRET
    os.close(reading)
    assert asked.read_text() == "x\n"


@pytest.mark.parametrize("kind", ["file", "command"])
def test_a_password_is_read_again_for_a_later_connection_and_kept_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(secret, "FRESH", 0.0)
    file = tmp_path / "pw"
    file.write_text("first\n")
    monkeypatch.chdir(tmp_path)
    content = {"file": "pw", "command": f"cat pw # {tmp_path}"}[kind]
    url = secret.resolve(Url("redis", None, None, ("h",), "/0", ((f"password_{kind}", content),)))
    monkeypatch.chdir("/")
    file.write_text("second\n")
    assert password_now(url.password, Deadline(5)) == "second"
    file.unlink()
    assert password_now(url.password, Deadline(5)) == "second"
    file.write_text("third\n")
    assert password_now(url.password, Deadline(5)) == "third"


def test_a_command_that_hangs_when_it_is_asked_again_takes_no_longer_than_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "FRESH", 0.0)
    line = f"test -e {tmp_path}/hang && sleep 60; echo first"
    url = secret.resolve(Url("redis", None, None, ("h",), "/0", (("password_command", line),)))
    (tmp_path / "hang").touch()
    monkeypatch.setattr(shell, "LIMIT", 2.0)
    before = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"password_command: no answer within 0.2 s"):
        password_now(url.password, Deadline(0.2))
    assert time.monotonic() - before < 2.0
