"""Logins by a file of creds: users of an account of an operator, whose JWTs are signed by real keys."""

from __future__ import annotations

import hashlib
import json
import os
import time
from base64 import b32encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import nkeys
import pytest

from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT, claim, take
from tests.jobs import eventually
from tests.promises.attempts import refused
from tests.promises.rights import check_everything
from tests.servers.nats import Nats
from tests.stores.test_least_rights import recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.jobs import Lockctl

LIMITS = (
    "subs",
    "data",
    "payload",
    "imports",
    "exports",
    "conn",
    "leaf",
    "mem_storage",
    "disk_storage",
    "streams",
    "consumer",
)
CREDS = """-----BEGIN NATS USER JWT-----
{jwt}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
NKEYs are sensitive and should be treated as secrets.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------

*************************************************************
"""


class Party:
    """An operator, an account or a user: a key, and what it signs."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self.pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public = self.pair.public_key.decode()

    def signed(self, subject: Party, kind: str, claims: dict[str, Any], **more: object) -> str:
        """A JWT that says this of the subject."""
        body = {"iat": int(time.time()), "iss": self.public, "sub": subject.public, "name": kind, **more}
        body["nats"] = {**claims, "type": kind, "version": 2}
        body["jti"] = b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
        text = ".".join(_encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return f"{text}.{_encoded(self.pair.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


class Realm:
    """An operator with an account, and a server that trusts it; users are made as they are needed."""

    def __init__(self, start: Callable[..., Any], directory: Path) -> None:
        operator, system = Party(nkeys.PREFIX_BYTE_OPERATOR), Party(nkeys.PREFIX_BYTE_ACCOUNT)
        self.directory = directory
        self.account = Party(nkeys.PREFIX_BYTE_ACCOUNT)
        limits = {**dict.fromkeys(LIMITS, -1), "wildcards": True}
        known = {
            self.account.public: operator.signed(self.account, "account", {"limits": limits}),
            system.public: operator.signed(
                system, "account", {"limits": {**limits, "mem_storage": 0, "disk_storage": 0}}
            ),
        }
        preloaded = "\n".join(f"  {name}: {jwt}" for name, jwt in known.items())
        settings = f"operator: {operator.signed(operator, 'operator', {})}\nsystem_account: {system.public}\n"
        settings += f"resolver: MEMORY\nresolver_preload {{\n{preloaded}\n}}\n"
        admin = self.user("admin")
        self.server: Nats = start(Nats, query=f"creds={admin}", settings=settings)

    def user(self, name: str, claims: dict[str, Any] | None = None, *, by: Party | None = None, **more: object) -> Path:
        """The file of a new user."""
        user = Party(nkeys.PREFIX_BYTE_USER)
        free = {"subs": -1, "data": -1, "payload": -1}
        jwt = (by or self.account).signed(user, "user", {**free, **(claims or {})}, **more)
        file = self.directory / f"{name}.creds"
        new = file.with_suffix(".new")
        new.write_text(CREDS.format(jwt=jwt, seed=user.seed))
        new.replace(file)
        return file

    def place(self, creds: Path) -> str:
        """Locks that nobody else uses, as the user of a file."""
        return f"nats://{self.server.address}/locks/{os.urandom(6).hex()}?creds={creds}"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    from tests.servers.fixtures import private_servers

    with private_servers(tmp_path_factory) as start:
        yield Realm(start, tmp_path_factory.mktemp("creds"))


def test_a_user_with_the_rights_of_the_manual_may_do_everything(realm: Realm, lockctl: Lockctl) -> None:
    publish, subscribe = (json.loads(line.partition(": ")[2]) for line in recipe("NATS"))
    creds = realm.user("ops", {"pub": {"allow": publish}, "sub": {"allow": subscribe}})
    check_everything(lockctl, realm.place(creds))


def test_a_user_without_them_is_told_which_ones(realm: Realm, opened: Callable[[str], Any]) -> None:
    creds = realm.user("guest", {"pub": {"allow": ["_INBOX.>"]}})
    with pytest.raises(ConfigError, match=r"Permissions Violation.*allow the user to publish to"):
        opened(realm.place(creds)).try_acquire(claim(), timeout=LIMIT)


def test_who_was_not_signed_by_the_account_or_has_ended_is_not_let_in(
    realm: Realm, opened: Callable[[str], Any]
) -> None:
    stranger = realm.user("stranger", by=Party(nkeys.PREFIX_BYTE_ACCOUNT))
    late = realm.user("late", exp=int(time.time()) - 60)
    for creds in (stranger, late):
        with pytest.raises(ConfigError, match="does not accept the login") as told:
            opened(realm.place(creds)).try_acquire(claim(), timeout=LIMIT)
        assert "eyJ" not in str(told.value)


def test_a_seed_that_is_not_that_of_the_jwt_is_not_let_in(realm: Realm, opened: Callable[[str], Any]) -> None:
    one, two = (realm.user(name).read_text() for name in ("one", "two"))
    mixed = realm.directory / "mixed.creds"
    mixed.write_text(one.partition("*****")[0] + two[two.index("*****") :])
    with pytest.raises(ConfigError, match="does not accept the login"):
        opened(realm.place(mixed)).try_acquire(claim(), timeout=LIMIT)


@pytest.mark.parametrize("text", ["", "-----BEGIN NATS USER JWT-----\ns3cret\n------END NATS USER JWT------\n"])
def test_a_file_without_a_seed_is_one_line(text: str, realm: Realm) -> None:
    file = realm.directory / "broken.creds"
    file.write_text(text)
    refused(realm.place(file), "broken.creds has no usable seed", "s3cret")


def test_a_job_outlives_its_creds_when_there_are_new_ones_in_the_file(
    realm: Realm, opened: Callable[[str], Any]
) -> None:
    """The server ends the connection when the JWT ends; the file is read again for the next one."""
    creds = realm.user("short", exp=int(time.time()) + 2)
    client = opened(realm.place(creds))
    grant = take(client, claim())

    def is_cut_off() -> bool:
        try:
            client.renew(grant, timeout=LIMIT)
        except BackendUnavailable as told:
            return "login" in str(told)
        return False

    eventually(is_cut_off, limit=10.0)
    realm.user("short")
    assert client.renew(grant, timeout=LIMIT).token == grant.token


def test_the_end_of_creds_that_were_exchanged_before_costs_no_request(
    realm: Realm, opened: Callable[[str], Any]
) -> None:
    ends = int(time.time()) + 2
    place = realm.place(realm.user("exchanged", exp=ends))
    client = opened(place)
    grant = take(client, claim())
    realm.user("exchanged")
    time.sleep(max(0.0, ends + 1 - time.time()))
    client.release(grant, timeout=LIMIT)
    assert client.inspect("nightly", timeout=LIMIT).state == "free"
