"""Where a command looks, and what it says to a user who may look into the wrong place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl import config
from lockctl.cli.places import every_place, is_known, not_known, place
from lockctl.errors import ConfigError, UsageError
from lockctl.model import Revocation
from lockctl.stores.file import revoke

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.jobs import Lockctl

NOBODY = 65534


@pytest.fixture
def ordinary_user(locks: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From here on this process is a user without rights and without a configuration."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    for name in ("LOCKCTL_BACKEND", "LOCKCTL_CONFIG", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(locks))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(locks))
    monkeypatch.setattr(config, "SYSTEM_CONFIG", str(locks / "config.toml"))
    monkeypatch.setattr(config, "SYSTEM_DIRECTORY", str(locks))
    locks.chmod(0o755)
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.mark.usefixtures("ordinary_user")
def test_an_ordinary_user_without_a_configuration_is_told_where_roots_locks_are(locks: Path) -> None:
    own = place(None, None)
    assert str(own) == f"file://{locks}/.local/state/lockctl"
    assert not_known("nightly", [own]).endswith(
        f"root's locks are elsewhere, in {locks}: see them with -b file://{locks}"
    )
    assert place("file:///tmp", None).hint == ""


def test_the_lock_of_another_user_needs_a_permission_and_not_another_program(
    lockctl: Lockctl, locks: Path, request: pytest.FixtureRequest
) -> None:
    lockctl.start_holding("nightly")
    (locks / "nightly").chmod(0o600)
    backend = place(lockctl.url, None).open()
    for _ in range(2):
        seen = backend.inspect("nightly", timeout=5)
        if os.geteuid() == 0:  # an ordinary user may not be able to load what it needs for that
            assert revoke.no_permission("a", "a")
            request.getfixturevalue("ordinary_user")
    assert is_known(backend, seen, timeout=5)
    for now in (False, True):
        with pytest.raises(ConfigError, match=r"nightly: no permission to use .*/nightly: run this as root, or as the"):
            backend.revoke("nightly", seen.holders[0], Revocation(now=now, by="me", reason=""), timeout=5)


def test_all_backends_are_those_of_the_configuration_and_the_one_in_use(
    locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCTL_BACKEND", "file:///srv/locks")
    file = locks / "config.toml"
    file.write_text('[backends.a]\nurl = "redis://:s3cret@one/0"\n[backends.b]\nurl = "file:///b"\n')
    places = every_place(None, str(file))
    assert [str(each) for each in places] == ["file:///srv/locks", "a (redis://one/0)", "b (file:///b)"]
    assert [each.label for each in places] == ["file:///srv/locks", "a", "b"]
    monkeypatch.setenv("LOCKCTL_BACKEND", "b")
    assert [each.label for each in every_place(None, str(file))] == ["b", "a"]
    with pytest.raises(UsageError):
        every_place("a", str(file))
