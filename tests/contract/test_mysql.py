"""The contract, held by the mysql backend on a real server, and what only this backend has."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost
from lockctl.registry import open_backend
from lockctl.stores.mysql.address import from_url
from lockctl.stores.mysql.cell import PRESENT, MysqlBackend, MysqlCells
from lockctl.stores.mysql.session import Session, SqlError
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.contract.cells import ServedHarness
from tests.contract.following import Following
from tests.contract.harness import LIMIT, Background, claim, take
from tests.contract.suite import BackendContract
from tests.contract.waiting import start_waiting
from tests.jobs import eventually, without_threads
from tests.servers.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.backend import Backend
    from tests.servers.certificates import Certificates

NUMBERS = itertools.count()


class MysqlHarness(ServedHarness):
    """Locks of one prefix, each client behind a proxy of its own."""

    capabilities = MysqlBackend.capabilities

    def __init__(self, server: MariaDb) -> None:
        self.address = from_url(parse_url(server.url))
        super().__init__(server, MysqlCells(self.address))

    def place(self, address: str, prefix: str) -> str:
        url: str = self.server.url.replace(self.server.address, address)
        return f"{url}?prefix={prefix}"

    def connections(self) -> str:
        """The numbers of those that there are."""
        ours = "information_schema.processlist where user = 'lockctl'"
        found: str = self.server.command(f"select id from {ours} order by id")
        return found

    def followers(self, owner: str, since: int = 0) -> str:
        """The number of the connection that waits for the end of an owner, for so many milliseconds."""
        waits = f"info like '%GET_LOCK(\\'lockctl:{owner}\\', 2)%' and time_ms >= {since}"
        found: str = self.server.command(f"select id from information_schema.processlist where {waits}")
        return found


@pytest.fixture
def harness(mariadb_server: MariaDb) -> Iterator[MysqlHarness]:
    made = MysqlHarness(mariadb_server)
    yield made
    made.close()


class TestMysql(Following, BackendContract):
    """Every promise, and what only this backend has."""

    def test_a_connection_that_the_server_has_ended_is_replaced(self, harness: MysqlHarness, backend: Backend) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        threads = "from information_schema.processlist where db = 'lockctl' and user = 'lockctl'"
        for row in harness.server.command(f"select id {threads}").split():
            if row.isdigit():
                harness.server.command(f"kill {row}")
        eventually(lambda: harness.server.command(f"select count(*) {threads}").split()[-1] == "0")
        assert backend.renew(grant, timeout=LIMIT).token == grant.token

    def test_a_server_without_such_locks_does_no_harm(
        self, harness: MysqlHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask = Session.ask

        def refuse(session: Session, sql: str, deadline: Deadline, *values: object) -> list[tuple[object, ...]]:
            if "_LOCK(" in sql:
                raise SqlError("not supported with this cluster", 1105)
            return ask(session, sql, deadline, *values)

        monkeypatch.setattr(Session, "ask", refuse)
        backend, other = harness.client(), harness.client()
        grant = take(backend, harness.claim(ttl=30.0))
        claim = harness.claim(ttl=6.0)
        waiting = start_waiting(other, claim, backend)
        seen = row_of(harness)
        connections = harness.connections()
        eventually(lambda: row_of(harness) != seen)  # its place in the queue is prolonged
        assert harness.connections() == connections, "it asks again and again over one"
        backend.release(grant, timeout=LIMIT)
        waiting.result()
        take(other, claim)

    def test_who_has_lost_a_connection_is_seen_again_when_the_server_has_noticed(
        self, harness: MysqlHarness, backend: Backend
    ) -> None:
        claim = harness.claim(ttl=30.0)
        lingering = Session(harness.address, Deadline(LIMIT))
        assert lingering.ask("SELECT GET_LOCK(%s, 0)", Deadline(LIMIT), PRESENT + claim.owner) == [(1,)]
        grant = take(backend, claim)
        lingering.close()
        eventually(lambda: not harness.own.follow(claim.owner, Deadline(2.0)))
        backend.renew(grant, timeout=LIMIT)
        assert harness.own.follow(claim.owner, Deadline(2.0))

    def test_without_a_thread_a_request_to_a_silent_server_ends(self, harness: MysqlHarness, backend: Backend) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        with without_threads():
            assert backend.renew(grant, timeout=LIMIT).token == grant.token
            harness.server.pause()
            before = time.monotonic()
            try:
                with pytest.raises(BackendUnavailable):
                    backend.renew(grant, timeout=0.3)
            finally:
                harness.server.resume()
        assert time.monotonic() - before < LIMIT

    def test_who_is_interrupted_leaves_with_no_more_requests_than_it_must(
        self, harness: MysqlHarness, backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grant, claim = take(backend, harness.claim(ttl=30.0)), harness.claim(ttl=30.0)
        interrupt, writing = os.pipe()
        waiting = Background(lambda: other.wait(claim, timeout=20.0, interrupt=interrupt))
        eventually(lambda: harness.followers(grant.claim.owner))
        os.write(writing, b"x")
        waiting.result()
        asked: list[str] = []
        ask = Session.ask

        def note(session: Session, sql: str, deadline: Deadline, *values: object) -> list[tuple[object, ...]]:
            asked.append(sql)
            return ask(session, sql, deadline, *values)

        monkeypatch.setattr(Session, "ask", note)
        other.withdraw(claim, timeout=LIMIT)
        assert not [sql for sql in asked if "_LOCK(" in sql], "its locks have ended with its connection"
        os.close(interrupt)
        os.close(writing)

    def test_who_follows_and_loses_its_connection_does_not_follow_for_longer_than_it_may(
        self, harness: MysqlHarness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        row_of(harness)  # connects
        following = Background(lambda: harness.own.follow(grant.claim.owner, Deadline(2.6)))
        eventually(lambda: harness.followers(grant.claim.owner, since=1200))
        harness.server.command(f"kill {harness.followers(grant.claim.owner)}")
        following.result()

    def test_a_replica_that_lacks_the_lock_says_neither_that_it_is_lost_nor_that_it_is_free(
        self, harness: MysqlHarness, backend: Backend
    ) -> None:
        grant = take(backend, harness.claim(ttl=30.0))
        harness.server.command(f"delete from lockctl.lockctl_lock where id = '{harness.key('nightly')}'")
        harness.server.command("set global read_only = on")
        try:
            with pytest.raises(BackendUnavailable, match="name the primary"):
                backend.renew(grant, timeout=LIMIT)
            with pytest.raises(BackendUnavailable, match="name the primary"):
                backend.release(grant, timeout=LIMIT)
        finally:
            harness.server.command("set global read_only = off")
        with pytest.raises(LeaseLost):
            backend.renew(grant, timeout=LIMIT)
        backend.release(grant, timeout=LIMIT)


def row_of(harness: MysqlHarness) -> bytes | None:
    """What the lock is at present."""
    return harness.own.read(harness.key("nightly"), Deadline(LIMIT)).data


def test_a_server_of_this_machine_is_spoken_to_without_reading_whom_the_system_trusts(
    start_server: Callable[..., MariaDb], certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server(MariaDb, tls=certificates)
    read: list[object] = []
    monkeypatch.setattr("ssl.SSLContext.load_default_certs", lambda *given: read.append(given))
    session = Session(from_url(parse_url(server.url)), Deadline(LIMIT))
    status = dict(session.ask("SHOW STATUS LIKE 'Ssl_version'", Deadline(LIMIT)))
    session.close()
    assert status["Ssl_version"].startswith("TLSv1"), "it offers TLS, and that is taken"
    assert read == []


def test_a_user_who_may_not_make_the_table_is_told_what_an_administrator_does(mariadb_server: MariaDb) -> None:
    may_look = "grant select on `bare-``locks`.* to 'bare-user'@'%'"
    mariadb_server.command("create database `bare-``locks`; create user 'bare-user'@'%' identified by 'pw'")
    mariadb_server.command(may_look)
    place = f"{mariadb_server.address}/bare-%60locks"
    try:
        with contextlib.closing(open_backend(parse_url(f"mysql://bare-user:pw@{place}"))) as backend:
            with pytest.raises(ConfigError, match=r"CREATE TABLE .*; GRANT SELECT, INSERT, UPDATE, DELETE ON ") as told:
                backend.inspect("nightly", timeout=LIMIT)
            mariadb_server.command(str(told.value).partition("run: ")[2])
            assert backend.inspect("nightly", timeout=LIMIT).state == "free"
        mariadb_server.command("revoke all, grant option from 'bare-user'@'%'")
        mariadb_server.command(may_look)
        with contextlib.closing(open_backend(parse_url(f"mysql://bare-user:pw@{place}"))) as backend:
            with pytest.raises(ConfigError, match="run: GRANT SELECT, INSERT, UPDATE, DELETE ON ") as told:
                backend.try_acquire(claim(), timeout=LIMIT)
            mariadb_server.command(str(told.value).partition("run: ")[2])
            take(backend, claim())
    finally:
        mariadb_server.command("drop database `bare-``locks`; drop user 'bare-user'@'%'")


@pytest.mark.parametrize(("way", "said"), [("account lock", "locked"), ("password expire", "(?i)password")])
def test_a_user_who_is_let_in_no_more_is_a_wrong_configuration(mariadb_server: MariaDb, way: str, said: str) -> None:
    mariadb_server.command(f"create user barred@'%' identified by 'pw' {way}")
    mariadb_server.command(f"grant all on {mariadb_server.database}.* to barred@'%'")
    try:
        usual = mariadb_server.command("select @@disconnect_on_expired_password").strip()
        for disconnects in (0, 1):
            mariadb_server.command(f"set global disconnect_on_expired_password = {disconnects}")
            backend = open_backend(parse_url(f"mysql://barred:pw@{mariadb_server.address}/{mariadb_server.database}"))
            with pytest.raises(ConfigError, match=said):
                backend.try_acquire(claim(), timeout=LIMIT)
            backend.close()
    finally:
        mariadb_server.command(f"set global disconnect_on_expired_password = {usual}")
        mariadb_server.command("drop user barred@'%'")


class InBerlin(MariaDb):
    """A server where summer time ends."""

    def _variables(self) -> dict[str, str]:
        return {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}


def test_the_end_of_summer_time_ends_no_lease(start_server: Callable[..., InBerlin]) -> None:
    server = start_server(InBerlin)
    for second in (1792886399, 1792886400):  # 01:59:59 and 02:00:00 CEST: an hour that comes twice begins
        server.command(f"set global init_connect = 'set timestamp = {second}'", database="")
        backend = open_backend(parse_url(server.url))
        if second == 1792886399:
            take(backend, claim(ttl=30.0))
        else:
            assert backend.try_acquire(claim(ttl=30.0), timeout=LIMIT) is None
        backend.close()
