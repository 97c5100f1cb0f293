"""lockctl.config: which setting counts, where it came from, and what is wrong with a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl import config
from lockctl.config import (
    SYSTEM_CONFIG,
    Effective,
    apart_from_root,
    backend_url,
    config_path,
    default_url,
    read_config,
    resolve,
)
from lockctl.config_file import LARGEST
from lockctl.errors import ConfigError, UsageError
from lockctl.settings import SETTINGS
from lockctl.url import parse_url

if TYPE_CHECKING:
    from pathlib import Path

    from lockctl.config_file import ConfigFile

FILE = """\
[defaults]
ttl = "40s"
wait = 90
conflict_exit_code = 3

[locks."web.*"]
ttl = "1m"
skip_ok = true

[locks."web.a"]
ttl = "2m"

[backends.main]
url = "file:///srv/locks"
"""


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return written(tmp_path, FILE)


def written(directory: Path, text: str | bytes) -> ConfigFile:
    """A configuration file that was read."""
    path = directory / "config.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_config(str(path))
    assert found is not None
    return found


def one(name: str, **given: object) -> tuple[object, str]:
    """What one setting is, and its source."""
    arguments: dict[str, object] = {"flags": {}, "environ": {}, "file": None, "lock": None, **given}
    found: Effective = resolve(**arguments)[name]  # type: ignore[arg-type]
    return found.content, found.source


def test_a_flag_counts_before_a_variable_before_the_lock_before_the_defaults_before_what_is_built_in(
    file: ConfigFile,
) -> None:
    flags, environ = {"ttl": "10s"}, {"LOCKCTL_TTL": "20s"}
    assert one("ttl", flags=flags, environ=environ, file=file, lock="web.b") == (10.0, "--ttl")
    assert one("ttl", environ=environ, file=file, lock="web.b") == (20.0, "$LOCKCTL_TTL")
    assert one("ttl", file=file, lock="web.b") == (60.0, f'{file.path} [locks."web.*"]')
    assert one("ttl", file=file, lock="db") == (40.0, f"{file.path} [defaults]")
    assert one("ttl") == (30.0, "built-in")


def test_of_two_patterns_that_match_the_later_counts(file: ConfigFile) -> None:
    assert one("ttl", file=file, lock="web.a") == (120.0, f'{file.path} [locks."web.a"]')
    assert one("skip_ok", file=file, lock="web.a") == (True, f'{file.path} [locks."web.*"]')


def test_numbers_in_the_file_are_seconds_or_statuses(file: ConfigFile) -> None:
    assert one("wait", file=file) == (90.0, f"{file.path} [defaults]")
    assert one("conflict_exit_code", file=file) == (3, f"{file.path} [defaults]")


def test_a_signal_in_the_file_is_a_name_or_a_number(tmp_path: Path) -> None:
    for text in ("15", '"15"', '"TERM"', '"SIGTERM"'):
        found = written(tmp_path, f"[defaults]\nsignal = {text}\n")
        assert one("signal", file=found) == (15, f"{found.path} [defaults]")


def test_no_wait_is_a_wait_of_nothing_whatever_else_says(file: ConfigFile) -> None:
    assert one("wait", flags={"no_wait": True, "wait": "5m"}, file=file) == (0.0, "--no-wait")


def test_every_setting_has_a_value_without_any_configuration() -> None:
    found = resolve({}, {}, None, None)
    assert list(found) == [setting.name for setting in SETTINGS]
    assert {effective.source for effective in found.values()} == {"built-in"}


def test_an_empty_variable_counts_as_none() -> None:
    assert one("ttl", environ={"LOCKCTL_TTL": ""}) == (30.0, "built-in")


def test_a_wrong_flag_is_usage_and_a_wrong_variable_is_configuration() -> None:
    with pytest.raises(UsageError, match=r"^--ttl: 'banana' is not a duration"):
        one("ttl", flags={"ttl": "banana"})
    with pytest.raises(ConfigError, match=r"^\$LOCKCTL_TTL: 'banana' is not a duration"):
        one("ttl", environ={"LOCKCTL_TTL": "banana"})


def test_inside_a_job_what_the_outer_run_says_of_itself_is_no_setting() -> None:
    outer = {"LOCKCTL_OWNER": "x", "LOCKCTL_TTL": "5", "LOCKCTL_BACKEND": "file", "LOCKCTL_LOCK": "outer"}
    assert one("ttl", environ=outer) == (30.0, "built-in")
    assert one("backend", environ=outer) == (None, "built-in")
    assert one("lock", environ=outer) == (None, "built-in")
    without = {**outer, "LOCKCTL_TTL": "5s", "LOCKCTL_BACKEND": "file:///a"}
    assert one("ttl", environ=without) == (5.0, "$LOCKCTL_TTL")
    assert one("backend", environ=without) == ("file:///a", "$LOCKCTL_BACKEND")
    assert one("ttl", environ={"LOCKCTL_TTL": "5"}) == (5.0, "$LOCKCTL_TTL")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\ntll = '5s'\n", r":2: \[defaults\] tll: unknown key; there are: backend, ttl, "),
        ("[defaults]\nlock = 'a'\n", r":2: \[defaults\] lock: unknown key"),
        ("\n[default]\nttl = '5s'\n", r":2: default: unknown table; there are: defaults, locks, backends"),
        ("ttl = '5s'\n", r":1: ttl: unknown table; there are:"),
        ("[[locks]]\nttl = '5s'\n", r"locks: must be a table, and neither a value nor a list of tables"),
        ("defaults = 5\n", r":1: defaults: must be a table, and neither a value nor a list of tables"),
        ("[defaults]\nttl = true\n", r":2: \[defaults\] ttl: must be a duration"),
        ("[defaults]\nttl = ['5s']\n", r":2: \[defaults\] ttl: must be a duration"),
        ("[defaults]\n# more\nttl = 'banana'\n", r":3: \[defaults\] ttl: 'banana' is not a duration"),
        ("[defaults]\nskip_ok = 'yes'\n", r":2: \[defaults\] skip_ok: must be true or false"),
        ("[defaults]\nskip_ok = 1\n", r":2: \[defaults\] skip_ok: must be true or false"),
        ("[defaults]\nconflict_exit_code = 3.5\n", r":2: \[defaults\] conflict_exit_code: must be a whole number"),
        ("[defaults]\nconflict_exit_code = 600\n", r":2: \[defaults\] conflict_exit_code: '600' is not an exit status"),
        ("[defaults]\nleftover = 5\n", r":2: \[defaults\] leftover: must be a string"),
        ("[defaults]\nttl = 2026-01-01\n", r":2: \[defaults\] ttl: must be a duration"),
        ("[defaults]\nttl = nan\n", r":2: \[defaults\] ttl: 'nan' is not a duration"),
        ("[locks]\nttl = '5s'\n", r":2: \[locks\] ttl: must be a table"),
        ("[locks.'a\\nb']\nx = 1\n", r"x: unknown key"),
        ("[locks.other]\nttl = -1\n", r":2: \[locks.other\] ttl: '-1' is not a duration"),
        ("[backends]\nmain = 'file:///'\n", r":2: \[backends\] main: must be a table"),
        ("[backends.main]\nurl = 'x'\n", r":2: \[backends.main\] url: must be a URL"),
        ("[backends.main]\nurl = 'file:'\npass = [1]\n", r":3: \[backends.main\] pass: must be a string"),
        ("[backends.main]\n", r"\[backends.main\] url: must be a URL"),
        ("[backends.main]\nurll = 'file:///'\n", r":2: \[backends.main\] urll: this backend has no url"),
        ("[backends.main]\nurl = 5\n", r":2: \[backends.main\] url: must be a URL"),
        ("[defaults]\nconflict_exit_code = '75'\n", r":2: \[defaults\] conflict_exit_code: must be a whole number"),
        ("[defaults]\nsignal = 1.5\n", r":2: \[defaults\] signal: must be a name or number of a signal"),
        ("[defaults]\nsignal = true\n", r":2: \[defaults\] signal: must be a name or number of a signal"),
        ("[defaults]\nsignal = 99\n", r":2: \[defaults\] signal: '99' is not a signal"),
        ("[defaults]\nsignal = 'NOSUCH'\n", r":2: \[defaults\] signal: 'NOSUCH' is no"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_file_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        written(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "config.toml"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\x00\xff\xfe", "not UTF-8"),
        (b"[defaults]\nttl = '\xff'", r":2: not UTF-8"),
        (b"[defaults]\nttl = '5", "not valid TOML"),
        (b"[defaults\n", "not valid TOML"),
        (b"[defaults]\nttl = \n", "not valid TOML"),
        (b"[defaults]\nttl = '1s'\nttl = '2s'\n", "not valid TOML"),
        (b"[defaults]\n[defaults]\n", "not valid TOML"),
        (b"\xff\xfe[\x00d\x00", "not UTF-8"),
        (b"\x00" * 100, "not valid TOML"),
        (b"#" * (LARGEST + 1), "larger than"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        written(tmp_path, content)
    assert "\n" not in str(refused.value)


def test_an_empty_file_is_a_configuration(tmp_path: Path) -> None:
    assert written(tmp_path, "").tables == {}


def test_a_file_that_was_asked_for_must_be_readable(tmp_path: Path) -> None:
    assert read_config(None) is None
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot read the configuration"):
            read_config(str(path))


def test_the_first_file_that_exists_counts_and_one_that_was_asked_for_even_if_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config/lockctl").mkdir(parents=True)
    mine = home / ".config/lockctl/config.toml"
    mine.write_text("")
    xdg = tmp_path / "xdg"
    (xdg / "lockctl").mkdir(parents=True)
    (xdg / "lockctl/config.toml").write_text("")
    both = {"HOME": str(home), "XDG_CONFIG_HOME": str(xdg)}
    assert config_path(None, {"HOME": str(home)}) == str(mine)
    assert config_path(None, both) == str(xdg / "lockctl/config.toml")
    assert config_path(None, {**both, "LOCKCTL_CONFIG": "/nowhere"}) == "/nowhere"
    assert config_path("/asked", {**both, "LOCKCTL_CONFIG": "/nowhere"}) == "/asked"
    assert config_path(None, {"XDG_CONFIG_HOME": "relative", "HOME": ""}) in {None, "/etc/lockctl/config.toml"}


def test_only_a_configuration_that_does_not_exist_is_none(tmp_path: Path) -> None:
    for xdg in ("missing", "dev/null"):
        assert config_path(None, {"XDG_CONFIG_HOME": f"{tmp_path}/{xdg}"}) in {None, SYSTEM_CONFIG}
    (tmp_path / "file").touch()
    assert config_path(None, {"XDG_CONFIG_HOME": str(tmp_path / "file")}) in {None, SYSTEM_CONFIG}
    (tmp_path / "lockctl").symlink_to("lockctl")
    with pytest.raises(ConfigError, match="cannot look for a configuration: Too many levels of symbolic links"):
        config_path(None, {"XDG_CONFIG_HOME": str(tmp_path)})
    (tmp_path / "lockctl").unlink()
    (tmp_path / "lockctl").mkdir()
    (tmp_path / "lockctl/config.toml").symlink_to("/not/mounted/now")
    path = config_path(None, {"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="cannot read the configuration: No such file"):
        read_config(path)


@pytest.mark.parametrize(("mode", "said"), [(0o666, "chmod go-w"), (0o602, "chmod go-w"), (0o644, "")])
def test_a_configuration_that_others_can_write_is_refused(tmp_path: Path, mode: int, said: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(mode)
    if not said:
        assert read_config(str(path)) is not None
        return
    with pytest.raises(ConfigError, match=said):
        read_config(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("user", "group", "mode", "said"), [(1234, 0, 0o600, "user 1234"), (0, 1234, 0o660, "go-w")])
def test_a_configuration_of_another_user_is_refused(
    tmp_path: Path, user: int, group: int, mode: int, said: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    os.chown(path, user, group)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        read_config(str(path))


def test_a_configuration_comes_through_a_pipe_and_one_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"[defaults]\nttl = 5\n")
    os.close(writing)
    file = read_config(f"/dev/fd/{reading}")
    assert file is not None
    assert file.tables == {"defaults": {"ttl": 5}}
    os.close(reading)
    os.mkfifo(tmp_path / "fifo", 0o600)
    holder = os.open(tmp_path / "fifo", os.O_RDWR)
    for limit in (0.2, 60.0):  # it is waited for once, and not again for the report of a run that it ends
        monkeypatch.setattr("lockctl.config_file.LIMIT", limit)
        with pytest.raises(ConfigError, match=r"no end of file within 0\.2 s"):
            read_config(str(tmp_path / "fifo"))
    os.close(holder)


def test_a_key_with_very_many_dots_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":2: longer than 8192 characters"):
        written(tmp_path, "\n" + "a." * 60_000 + "a = 1")


def test_what_may_be_a_url_with_a_mistake_is_named_without_its_secret(file: ConfigFile) -> None:
    for word in ("redis//:S3CR3T@h", "ops;S3CR3T@h", "redis:/:S3CR3T@h", "redis:///ops:S3CR3T@h"):
        with pytest.raises(ConfigError) as wrong:
            backend_url(Effective("backend", word, "--backend"), {}, file)
        assert "S3CR3T" not in str(wrong.value)


def test_a_backend_is_a_url_or_a_profile_and_an_unknown_profile_names_those_there_are(file: ConfigFile) -> None:
    def url(word: str | None, environ: dict[str, str] | None = None) -> str:
        return str(backend_url(Effective("backend", word, "--backend"), environ or {"HOME": "/home/a"}, file))

    assert url("main") == "file:///srv/locks"
    assert url("file:///other") == "file:///other"
    assert url("file:") == url("file://") == url(None) == default_url({"HOME": "/home/a"})
    with pytest.raises(
        ConfigError, match=r"--backend: 'mian' is neither a URL nor a backend profile \(configured: main\)"
    ):
        url("mian")


def test_inside_a_job_on_a_backend_for_many_hosts_local_files_are_not_taken_silently() -> None:
    outer = {"LOCKCTL_OWNER": "x", "LOCKCTL_BACKEND": "etcd", "HOME": "/home/a"}
    with pytest.raises(ConfigError, match="under a lock of etcd"):
        backend_url(Effective("backend", None, "built-in"), outer, None)


def test_inside_a_job_on_files_of_another_directory_the_default_directory_is_not_taken_silently() -> None:
    environ = {"HOME": "/home/a", "LOCKCTL_OWNER": "x", "LOCKCTL_BACKEND": "file"}
    there = str(parse_url(default_url(environ)))
    same = {**environ, "LOCKCTL_TOKEN_DOMAIN": f"file:{os.uname().nodename}:{there.removeprefix('file://')}"}
    assert str(backend_url(Effective("backend", None, "built-in"), same, None)) == there
    for domain in ({}, {"LOCKCTL_TOKEN_DOMAIN": f"file:{os.uname().nodename}:/srv/locks"}):
        with pytest.raises(ConfigError, match="under a lock in another directory"):
            backend_url(Effective("backend", None, "built-in"), {**environ, **domain}, None)
    assert str(backend_url(Effective("backend", "file:", "--backend"), environ, None)) == there


@pytest.mark.parametrize(
    ("environ", "root", "user"),
    [
        ({"HOME": "/home/a"}, "file:///var/lib/lockctl", "file:///home/a/.local/state/lockctl"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s 1?%"}, "file:///var/lib/lockctl", "file:///s 1%3f%25/lockctl"),
        ({"HOME": "/h", "XDG_STATE_HOME": "relative"}, "file:///var/lib/lockctl", "file:///h/.local/state/lockctl"),
    ],
)
def test_the_default_place_is_the_systems_for_root_and_the_users_own_for_others(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], root: str, user: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_url(environ) == root
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_url(environ) == user


def test_a_user_without_a_home_must_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for environ in ({"HOME": "relative"}, {"HOME": "", "XDG_STATE_HOME": "relative"}, {}):
        with pytest.raises(ConfigError, match=r"neither HOME nor XDG_STATE_HOME is an absolute path.*--backend"):
            default_url(environ)


def test_a_user_is_told_of_a_lock_of_the_same_name_that_is_roots_and_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SYSTEM_DIRECTORY", str(tmp_path))
    default, named = Effective("backend", None, "built-in"), Effective("backend", "file:///x", "--backend")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert apart_from_root(default, "nightly") is None
    (tmp_path / "nightly").touch()
    assert f"root's lock nightly in {tmp_path} is a different one" in (apart_from_root(default, "nightly") or "")
    assert apart_from_root(named, "nightly") is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert apart_from_root(default, "nightly") is None
