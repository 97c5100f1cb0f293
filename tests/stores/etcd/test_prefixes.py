"""Keys below a lock that are not its own: those of a longer prefix, and of locks of other programs with longer names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from lockctl.documents import foreign_holder
from lockctl.errors import ConfigError
from lockctl.registry import open_backend
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url
from tests.contract.harness import LIMIT, Background, claim, one_of, queue_up, reader, take
from tests.contract.keeping import holder_of, revoke
from tests.contract.remembering import a_run
from tests.jobs import eventually
from tests.stores.etcd.claims import keys_of_locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.model import Claim, Grant, Holder
    from tests.servers.etcd import Etcd

    Open = Callable[..., EtcdBackend]

EXCLUSIVE, READER, SLOT = claim(), reader(), one_of(2)
ANOTHER_PROGRAM = foreign_holder()


@pytest.fixture
def longer(etcd_server: Etcd, prefix: str) -> Iterator[EtcdBackend]:
    """A client whose prefix is that of the others, followed by the name of their lock."""
    made = open_backend(parse_url(f"etcd://{etcd_server.address}/?prefix={prefix}nightly/"))
    assert isinstance(made, EtcdBackend)
    yield made
    made.close()


def now(client: EtcdBackend, seen: Holder) -> int | None:
    return revoke(client, seen, now=True)


def counter(server: Etcd, prefix: str) -> str:
    return server.command("get", f"{prefix}nightly/.token/deeper", "--print-value-only").strip()


class TestLongerPrefix:
    """Whoever has a prefix below a lock of another keeps that lock closed, and nobody takes its keys for holders."""

    @pytest.fixture
    def ended(self, longer: EtcdBackend) -> Grant:
        """A run of a lock below the longer prefix, that has ended."""
        grant = take(longer, claim("deeper"))
        longer.note_success(grant, timeout=LIMIT)
        longer.remember("deeper", a_run(), timeout=LIMIT)
        longer.release(grant, timeout=LIMIT)
        return grant

    @pytest.mark.parametrize("mine", [EXCLUSIVE, READER, SLOT], ids=["exclusive", "reader", "slot"])
    def test_the_lock_is_refused_for_a_person_to_change_that(
        self, backend: EtcdBackend, ended: Grant, prefix: str, mine: Claim
    ) -> None:
        with pytest.raises(ConfigError, match=rf"{prefix}nightly cannot be locked: the key {prefix}nightly/\.token/"):
            backend.try_acquire(mine, timeout=LIMIT)

    def test_no_operator_takes_away_what_the_longer_prefix_has(
        self, etcd_server: Etcd, backend: EtcdBackend, longer: EtcdBackend, ended: Grant, prefix: str
    ) -> None:
        with pytest.raises(ConfigError, match="not one of this lock"):
            backend.inspect("nightly", timeout=LIMIT)
        take(backend, claim("other"))
        assert [lock.name for lock in backend.list("*", timeout=LIMIT)] == ["other"]
        before = counter(etcd_server, prefix)
        for seen in (holder_of(backend, "other"), ANOTHER_PROGRAM):
            with pytest.raises(ConfigError, match="not one of this lock"):
                now(backend, seen)
        assert counter(etcd_server, prefix) == before
        assert int(before) == ended.token
        assert take(longer, claim("deeper")).token > ended.token

    def test_a_holder_that_came_before_keeps_its_lock_and_is_shown_alone(
        self, etcd_server: Etcd, backend: EtcdBackend, longer: EtcdBackend, prefix: str
    ) -> None:
        grant = take(backend, claim(mode="shared"))
        take(longer, claim("deeper"))
        lock = backend.inspect("nightly", timeout=LIMIT)
        assert ([each.token for each in lock.holders], lock.waiters) == ([grant.token], ())
        assert backend.renew(grant, timeout=LIMIT).token == grant.token
        assert now(backend, ANOTHER_PROGRAM) is None
        assert now(backend, lock.holders[0]) is not None
        assert counter(etcd_server, prefix)

    @pytest.mark.parametrize("mine", [claim(), reader(), one_of(1)], ids=["exclusive", "reader", "slot"])
    def test_who_waits_behind_such_keys_waits_for_the_holder_and_then_gives_up(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, longer: EtcdBackend, mine: Claim
    ) -> None:
        grant = take(backend, claim())
        take(longer, claim("deeper"))
        waiter = connect(etcd_server.address)
        assert waiter.try_acquire(mine, timeout=LIMIT) is None
        waits = Background(lambda: waiter.wait(mine, timeout=20.0, interrupt=None))
        eventually(lambda: backend.inspect("nightly", timeout=LIMIT).waiters)
        assert waits.running
        backend.release(grant, timeout=LIMIT)
        with contextlib.suppress(ConfigError):  # or it hears of the end first
            waits.result()
        with pytest.raises(ConfigError, match="not one of this lock"):
            waiter.try_acquire(mine, timeout=LIMIT)

    def test_who_came_before_such_keys_gets_its_turn(
        self, etcd_server: Etcd, backend: EtcdBackend, connect: Open, longer: EtcdBackend
    ) -> None:
        grant, mine, waiter = take(backend, claim()), claim(), connect(etcd_server.address)
        queue_up(waiter, mine, backend)
        take(longer, claim("deeper"))
        backend.release(grant, timeout=LIMIT)
        waiter.wait(mine, timeout=20.0, interrupt=None)
        assert take(waiter, mine).token > grant.token


class TestLongerName:
    """A lock of `etcdctl` with a longer name is another one, below ours: as etcd has it, it keeps ours closed."""

    @pytest.mark.parametrize("key", ["a/b", "slots-3x/1", "slots-03/1", "slots-0/1", "sharedx/1", "shared/1/2", "/1"])
    def test_its_key_keeps_all_out_and_is_left_alone(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str, key: str
    ) -> None:
        etcd_server.command("put", f"{prefix}nightly/{key}", "x")
        for mine in (claim(), one_of(2)):
            with pytest.raises(ConfigError, match=f"the key {prefix}nightly/{key} is not"):
                backend.try_acquire(mine, timeout=LIMIT)
        with pytest.raises(ConfigError, match="not one of this lock"):
            now(backend, ANOTHER_PROGRAM)
        assert keys_of_locks(etcd_server, prefix) == [f"{prefix}nightly/{key}"]

    def test_a_hostile_key_is_shown_cut_and_without_its_controls(
        self, etcd_server: Etcd, backend: EtcdBackend, prefix: str
    ) -> None:
        etcd_server.command("put", f"{prefix}nightly/\x1b[2J/{'x' * 5000}", "x")
        with pytest.raises(ConfigError) as told:
            backend.try_acquire(claim(), timeout=LIMIT)
        assert str(told.value).isprintable()
        assert len(str(told.value)) < 600
