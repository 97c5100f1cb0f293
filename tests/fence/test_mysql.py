"""Marks in MariaDB, over the protocol of MySQL: the contract, and what only a database can do to a mark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence import Stale, locate, sql
from lockctl.stores.mysql.address import from_url
from lockctl.url import parse_url
from tests.fence.contract import LIMIT, Client, mark
from tests.fence.databases import DatabaseContract, MysqlHarness
from tests.jobs import eventually
from tests.servers.mariadb import MariaDb
from tests.servers.replay import listening

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers.certificates import Certificates

TRIES = 5


@pytest.fixture
def harness(mariadb_server: MariaDb) -> Iterator[MysqlHarness]:
    made = MysqlHarness(mariadb_server)
    yield made
    made.close()


@pytest.fixture
def client(harness: MysqlHarness) -> Iterator[Client]:
    made = Client(harness)
    yield made
    made.store.close()


class TestMysql(DatabaseContract):
    """Every promise, held by rows."""


def test_what_came_too_late_is_not_committed_later(harness: MysqlHarness, client: Client) -> None:
    other = Client(harness)
    here = f"from information_schema.processlist where db = '{harness.database}'"
    waiting = f"select count(*) {here} and info like 'INSERT INTO lockctl_mark%'"
    with client.store.holding(client.resource, mark(33), timeout=LIMIT):
        for _ in range(TRIES):
            with pytest.raises(BackendUnavailable):
                other.advance(mark(99), timeout=0.5)
            if harness.command(waiting) == "1":
                break  # the server counts in seconds, and lets it wait for one: most often longer than it takes to ask
        else:
            pytest.fail("the server never let it wait for longer than it was asked to")
    client.store.close()  # the connection of a hold is kept
    eventually(lambda: harness.command(waiting) == "0")
    threads = f"select count(*) {here} and user = '{harness.server.user}'"
    eventually(lambda: harness.command(threads) == "0")
    assert client.current() == mark(33)
    other.store.close()


def test_a_server_that_does_not_wait_for_its_disk_is_known(harness: MysqlHarness, client: Client) -> None:
    before = harness.command("select @@innodb_flush_log_at_trx_commit")
    try:
        harness.command("set global innodb_flush_log_at_trx_commit = 1")
        client.store.check_durable(timeout=LIMIT)
        harness.command("set global innodb_flush_log_at_trx_commit = 2")
        with pytest.raises(ConfigError, match="set innodb_flush_log_at_trx_commit = 1"):
            client.store.check_durable(timeout=LIMIT)
    finally:
        harness.command(f"set global innodb_flush_log_at_trx_commit = {before}")


@pytest.mark.parametrize("kind", ["idle", "idle_write", "idle_readonly"])
def test_a_mark_stays_held_where_idle_connections_are_ended(harness: MysqlHarness, client: Client, kind: str) -> None:
    limit = f"{kind}_transaction_timeout"
    before = harness.command(f"select @@global.wait_timeout, @@global.{limit}").split()
    harness.command(f"set global wait_timeout = 1, global {limit} = 1")
    try:
        other = Client(harness)
        with client.store.holding(client.resource, mark(33), timeout=LIMIT):
            with pytest.raises(BackendUnavailable, match="held by somebody else"):
                other.advance(mark(34), timeout=2.9)
            with pytest.raises(BackendUnavailable):
                other.advance(mark(34), timeout=0.3)
        other.store.close()
    finally:
        harness.command(f"set global wait_timeout = {before[0]}, global {limit} = {before[1]}")


@pytest.mark.parametrize("level", ["read uncommitted", "read committed", "serializable"])
def test_the_usual_isolation_of_a_server_does_not_matter(harness: MysqlHarness, client: Client, level: str) -> None:
    harness.command(f"set global transaction isolation level {level}")
    try:
        other = Client(harness)
        client.advance(mark(33))
        with client.store.holding(client.resource, mark(33), timeout=LIMIT):
            assert other.current() == mark(33)
            with pytest.raises(BackendUnavailable):
                other.advance(mark(34), timeout=0.3)
        assert other.accepts(mark(34))
        assert not client.accepts(mark(33))
        other.store.close()
    finally:
        harness.command("set global transaction isolation level repeatable read")


def test_a_table_that_knows_no_locks_is_not_held(harness: MysqlHarness, client: Client) -> None:
    harness.command("alter table lockctl_mark engine = Aria")
    with pytest.raises(ConfigError, match="InnoDB"), client.store.holding("stock", mark(33), timeout=LIMIT):
        pytest.fail("it was let in")


def test_a_user_without_rights_is_told_which_are_missing(harness: MysqlHarness, client: Client) -> None:
    user = harness.server.user
    harness.command(f"revoke all on {harness.database}.* from {user}; grant select on {harness.database}.* to {user}")
    with pytest.raises(ConfigError, match="GRANT SELECT, INSERT, UPDATE, DELETE") as told:
        client.advance(mark(33))
    assert client.current() is None
    harness.command(str(told.value).partition("run: ")[2])
    client.store.close()
    assert client.accepts(mark(33))
    assert client.reset(None) == mark(33)


def test_a_wrong_password_is_said_to_be_and_not_shown(harness: MysqlHarness) -> None:
    url = harness.url().replace(harness.server.password, "sesame")
    location = locate("stock", url)
    with pytest.raises(ConfigError, match="Access denied") as told:
        location.store.current("stock", timeout=LIMIT)
    assert "sesame" not in str(told.value)
    assert "sesame" not in repr(from_url(parse_url(url)))


def test_a_password_is_read_again_for_each_later_connection(
    harness: MysqlHarness, client: Client, tmp_path: Path
) -> None:
    client.advance(mark(33))
    file = tmp_path / "secret"
    file.write_text("another")
    url = harness.url(f"?password_file={file}").replace(f":{harness.server.password}@", "@")
    store = locate("stock", url).store
    with pytest.raises(ConfigError, match="Access denied"):
        store.current(client.resource, timeout=LIMIT)
    file.write_text(harness.server.password)
    assert store.current(client.resource, timeout=LIMIT) == mark(33)
    store.close()


def test_a_server_that_is_read_only_is_said_to_be(harness: MysqlHarness, client: Client) -> None:
    client.advance(mark(33))
    harness.command("set global read_only = on")
    try:
        for step in (lambda: client.advance(mark(34)), lambda: client.reset(None)):
            with pytest.raises(BackendUnavailable, match="read-only"):
                step()
        assert client.current() == mark(33)
    finally:
        harness.command("set global read_only = off")


SHAPES = {
    "token as text": "(resource varchar(300) primary key, domain varchar(300), token varchar(20))",
    "token as decimal": "(resource varchar(300) primary key, domain varchar(300), token decimal(20))",
    "other columns": "(id int)",
    "short": "(resource varchar(300) primary key, domain varchar(3), token int)",
    "small": "(resource varchar(300) primary key, domain varchar(300), token tinyint)",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_of_another_shape_is_not_used(harness: MysqlHarness, client: Client, shape: str) -> None:
    harness.command(f"drop table lockctl_mark; create table lockctl_mark {SHAPES[shape]}")
    with pytest.raises(ConfigError):
        client.advance(mark(333))


def test_names_that_are_the_same_to_the_table_only_are_told(harness: MysqlHarness, client: Client) -> None:
    client.advance(mark(33))
    with pytest.raises(ConfigError, match="the same as another"):
        Client(harness, "stock ").current()
    with pytest.raises(ConfigError, match="the same as another"):
        Client(harness, "stock ").advance(mark(34))
    assert client.current() == mark(33)
    assert Client(harness, "STOCK").current() is None


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00\x00\x00\xffabcd", b"\x01\x00\x00\x00\n", bytes(64)]
)
def test_a_server_that_speaks_something_else_is_no_server(garbage: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(garbage)
        connection.recv(4096)

    with listening(serve) as address:
        location = locate("stock", f"mysql://u@{address}/db")
        with pytest.raises(BackendUnavailable) as told:
            location.store.current("stock", timeout=1.0)
        assert "\n" not in str(told.value)
        location.store.close()


def test_a_mark_outlives_a_server_that_is_killed_and_waits_for_one_that_stands_still(
    start_server: Callable[..., Any],
) -> None:
    server: MariaDb = start_server(MariaDb)
    server.client([], text=sql.text("mysql"))
    location = locate("stock", server.url)
    for token in range(1, 20):
        location.store.advance("stock", mark(token), timeout=LIMIT)
    server.pause()
    with pytest.raises(BackendUnavailable):
        location.store.advance("stock", mark(20), timeout=0.5)
    server.resume()
    # what it was sent while it stood still it may do now, or later
    seen = location.store.current("stock", timeout=LIMIT)
    assert seen in (mark(19), mark(20))
    server.kill()
    server.start()
    assert location.store.current("stock", timeout=LIMIT) in (seen, mark(20))
    with pytest.raises(Stale):
        location.store.advance("stock", mark(18), timeout=LIMIT)
    location.store.close()


def test_tls_is_verified_and_never_given_up(
    start_server: Callable[..., Any], mariadb_server: MariaDb, certificates: Certificates, tmp_path: Any
) -> None:
    server: MariaDb = start_server(MariaDb, tls=certificates)
    server.client([], text=sql.text("mysql"))
    server.command(f"alter user {server.user} require x509")
    secret = tmp_path / "secret"
    secret.write_text(server.password + "\n")
    url = f"{server.url.replace(':' + server.password, '')}?password_file={secret}"
    ours = f"&cert={certificates.client_cert}&key={certificates.client_key}"
    location = locate("stock", f"{url}&ca={certificates.ca}{ours}")
    assert location.store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
    location.store.close()
    refused = {
        f"{url}&ca={certificates.other_ca}{ours}": "certificate is not accepted",
        f"{url}&ca={certificates.ca}{ours}&tls_name=elsewhere.example": "certificate is not accepted",
        f"{url}&ca={certificates.ca}": "Access denied",
        f"{url}&tls=no": "Access denied",
        f"{url}&ca={certificates.ca}&cert={certificates.other_cert}&key={certificates.other_key}": "refuses TLS with us",
        f"{mariadb_server.url}?tls=yes": "offers no TLS",
        f"{mariadb_server.url}?ca={certificates.ca}": "offers no TLS",
    }
    for wrong, reason in refused.items():
        location = locate("stock", wrong)
        with pytest.raises(ConfigError, match=reason) as told:
            location.store.current("stock", timeout=LIMIT)
        assert server.password not in str(told.value)
        location.store.close()


def test_a_socket_of_the_machine_is_a_host(harness: MysqlHarness, client: Client) -> None:
    path = str(harness.server.socket).replace("/", "%2F")
    location = locate("stock", harness.url().replace(harness.proxy.address, path))
    assert location.store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
    assert client.current() == mark(33)
    location.store.close()
