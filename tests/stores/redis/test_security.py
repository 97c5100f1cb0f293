"""Redis and Redlock over TLS and with passwords: what is wrong is named, a secret never."""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.jobs import LIMIT, eventually
from tests.promises import attempts
from tests.promises.attempts import accepted
from tests.promises.rights import check_everything
from tests.servers import resp
from tests.servers.redis import Redis, RedisSentinel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates

    Start = Callable[..., Any]

PASSWORD = "s3cret-horse"
WRONG = "wr0ng-mule"


def refused(url: str, said: str, kind: Any = ConfigError) -> None:
    attempts.refused(url, said, PASSWORD, WRONG, kind=kind)


RIGHTS = {
    "elsewhere": ("~other:* +@all", "the user may not do what a lock needs"),
    "scripts": (
        "~lockctl:* ~{lockctl:* &{lockctl:* +@all -evalsha -eval",
        "run evalsha: ACL SETUSER its-name +evalsha",
    ),
    "keys": ("~lockctl:* &{lockctl:* +@all", "it may not use a key: ACL SETUSER its-name ~PREFIX* ~{PREFIX*"),
    "commands": (
        "~lockctl:* ~{lockctl:* &{lockctl:* +@all -set",
        "it may not run a command of a script: ACL SETUSER its-name",
    ),
}


def test_who_may_do_what_is_named_and_the_rights_of_the_manual_are_enough(
    lockctl: Lockctl, start_server: Start
) -> None:
    users = {"narrow": "~lockctl:* ~{lockctl:* &{lockctl:* +@all -@admin -@dangerous"}
    users |= {user: rights for user, (rights, _) in RIGHTS.items()}
    extra = [f"user {user} on >{PASSWORD} {rights}" for user, rights in users.items()]
    server = start_server(Redis, password=PASSWORD, user="lockctl", extra=extra)
    for login in ("lockctl", "default"):
        accepted(f"redis://{login}:{PASSWORD}@{server.address}/0")
    for login in (f"lockctl:{WRONG}", f"nobody:{PASSWORD}"):
        refused(f"redis://{login}@{server.address}/0", "does not accept the user name or the password")
    for user, (_, said) in RIGHTS.items():
        refused(f"redis://{user}:{PASSWORD}@{server.address}/0", said)
    check_everything(lockctl, f"redis://narrow:{PASSWORD}@{server.address}/0")


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_why_a_lock_is_not_given_back_after_a_change_of_passwords_is_named(
    lockctl: Lockctl, start_server: Start, password: str | None
) -> None:
    server = start_server(Redis, password=password)
    login = f":{password}@" if password else ""
    job = lockctl.start_holding(
        *("nightly", "-b", f"redis://{login}{server.address}/0", "--", "cat"), stdin=PIPE, stderr=PIPE
    )
    with server.connect() as connection:
        login_as_root = [("AUTH", password)] if password else []
        change = ("CONFIG", "SET", "requirepass", WRONG)
        resp.ask(connection, *login_as_root, change, ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
    _, said = job.communicate(timeout=LIMIT)
    assert job.returncode == 0
    assert said.startswith("lockctl: nightly: could not release the lock")
    assert ("(WRONGPASS)" if password else "(NOAUTH)") in said
    assert PASSWORD not in said


def test_a_password_for_a_server_without_one_is_named(redis_server: Redis) -> None:
    refused(f"redis://:{WRONG}@{redis_server.address}/0", "the server has no password")


@pytest.mark.parametrize("scheme", ["redis", "redlock"])
def test_a_user_with_an_empty_password_is_not_taken_for_the_one_without_a_name(
    start_server: Start, scheme: str
) -> None:
    users = [f"user worker on >{PASSWORD} ~* &* +@all", "user open on nopass ~* &* +@all -evalsha"]
    nodes = [start_server(Redis, extra=users).address for _ in range(3 if scheme == "redlock" else 1)]
    refused(f"{scheme}://worker:@{','.join(nodes)}/0", "does not accept the user name or the password")
    refused(f"{scheme}://open:@{','.join(nodes)}/0", "it may not run evalsha")
    accepted(f"{scheme}://:@{','.join(nodes)}/0")


def test_a_client_certificate_is_shown_when_the_server_wants_one(
    start_server: Start, certificates: Certificates
) -> None:
    server = start_server(MutualRedis, tls=certificates)
    own = f"cert={certificates.client_cert}&key={certificates.client_key}"
    accepted(f"rediss://{server.address}/0?ca={certificates.ca}&{own}")
    refused(
        f"rediss://{server.address}/0?ca={certificates.ca}", "redis at 127.0.0.1", (BackendUnavailable, ConfigError)
    )
    other = f"cert={certificates.other_cert}&key={certificates.other_key}"
    refused(
        f"rediss://{server.address}/0?ca={certificates.ca}&{other}",
        "redis at 127.0.0.1",
        (BackendUnavailable, ConfigError),
    )


class MutualRedis(Redis):
    """A server that wants a certificate of its clients, also of the one that looks whether it is there."""

    def __init__(self, directory: Path, *, tls: Certificates) -> None:
        super().__init__(directory, tls=tls, extra=["tls-auth-clients yes"])

    def _answers(self) -> bool:
        assert self.tls is not None
        import socket

        context = self.tls.context()
        context.load_cert_chain(self.tls.client_cert, self.tls.client_key)
        with (
            socket.create_connection((self.host, self.port), 5.0) as plain,
            context.wrap_socket(plain, server_hostname=self.host) as secured,
        ):
            secured.sendall(b"PING\r\n")
            return secured.recv(5) == b"+PONG"


def test_sentinels_with_a_password_of_their_own(start_server: Start, tmp_path: Path) -> None:
    group = start_server(RedisSentinel, password=PASSWORD, sentinel_password=WRONG)
    file, sentinels = tmp_path / "password", ",".join(group.sentinel_addresses)
    file.write_text(WRONG)
    accepted(f"redis+sentinel://:{PASSWORD}@{sentinels}/main?sentinel_password_file={file}")
    refused(f"redis+sentinel://:{PASSWORD}@{sentinels}/main", "sentinel_password_file=")
    file.write_text(PASSWORD)
    refused(
        f"redis+sentinel://:{PASSWORD}@{sentinels}/main?sentinel_password_file={file}",
        "sentinel_password_file=",
    )


def test_sentinels_that_can_never_name_a_primary_are_a_wrong_configuration(
    start_server: Start, redis_server: Redis, tmp_path: Path
) -> None:
    group = start_server(RedisSentinel)
    sentinels = ",".join(group.sentinel_addresses)
    file = tmp_path / "password"
    file.write_text(WRONG)
    refused(f"redis+sentinel://{sentinels}/elsewhere", "know no primary of this name, only main")
    refused(f"redis+sentinel://{redis_server.address}/main", f"sentinel at {redis_server.address}: no sentinel")
    refused(f"redis+sentinel://{sentinels}/main?sentinel_password_file={file}", "have no password")
    group.sentinels[0].kill()  # what is wrong is said by the others
    refused(f"redis+sentinel://{sentinels}/elsewhere", "know no primary of this name, only main")
    for each in group.sentinels[1:]:
        each.kill()
    refused(f"redis+sentinel://{sentinels}/elsewhere", "Connection refused", BackendUnavailable)


@pytest.mark.parametrize("way", ["file", "command"])
def test_a_job_outlives_the_exchange_of_its_password_and_of_all_certificates(
    lockctl: Lockctl, start_server: Start, certificates: Certificates, way: str, tmp_path: Path
) -> None:
    server = start_server(Redis, password=PASSWORD, tls=certificates)
    password, ca = tmp_path / "password", tmp_path / "ca.pem"
    password.write_text(f"{PASSWORD}\n")
    ca.write_text(Path(certificates.ca).read_text())
    source = f"password_file={password}" if way == "file" else f"password_command=cat+{password}".replace("+", "%20")
    job = lockctl.start_holding("nightly", "-b", f"rediss://{server.address}/0?ca={ca}&{source}", "-t", "20s")
    with server.connect() as connection:
        said = [
            *(("AUTH", PASSWORD), ("CONFIG", "SET", "requirepass", WRONG)),
            ("CONFIG", "SET", "tls-cert-file", certificates.other_cert, "tls-key-file", certificates.other_key),
        ]
        resp.ask(connection, *said)
        before = int(resp.ask(connection, ("INFO", "stats")).partition(b"total_connections_received:")[2].split()[0])
        password.write_text(f"{WRONG}\n")
        ca.write_text(Path(certificates.other_ca).read_text())
        resp.ask(connection, ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))

        def renewed() -> bool:
            left = resp.ask(connection, ("PTTL", "lockctl:nightly"))
            received = resp.ask(connection, ("INFO", "stats")).partition(b"total_connections_received:")[2].split()[0]
            return left > 19_000 and int(received) > before

        eventually(renewed, limit=15.0, pause=0.1)
    assert job.poll() is None


def test_acquire_finds_the_files_of_a_url_where_it_was_started(
    lockctl: Lockctl, start_server: Start, certificates: Certificates, tmp_path: Path
) -> None:
    server = start_server(Redis, password=PASSWORD, tls=certificates)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "ca.pem").write_text(Path(certificates.ca).read_text())
    url = f"rediss://{server.address}/0?ca=ca.pem&password_file=password"
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    words = ("acquire", "nightly", "--for", "1m", "-b", url, "--handle", "handle.json")
    done = lockctl(*words, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert lockctl("release", "--handle", "handle.json", cwd=tmp_path, env=env).returncode == 0
