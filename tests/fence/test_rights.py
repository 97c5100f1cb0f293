"""The rights that lockctl-fence(1) names as the least are enough, in every store; and fewer are not."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from lockctl.errors import ConfigError
from tests.fence.contract import LIMIT, mark
from tests.fence.databases import MysqlHarness, PostgresqlHarness
from tests.fence.lock_servers import store_at
from tests.servers.etcd import Etcd
from tests.servers.moto import Moto

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres
    from tests.servers.zookeeper import ZooKeeper

MANUAL = (Path(__file__).parents[2] / "man/text/lockctl-fence.1.txt").read_text().partition("## Rights")[2]
PASSWORD = "s3cret"


def lines(beginning: str) -> list[str]:
    """The commands of the manual that begin so."""
    found = [line.strip() for line in MANUAL.splitlines() if line.startswith(f"    {beginning}")]
    assert found
    return found


def works(url: str) -> None:
    """All that a store is asked for."""
    with store_at(url) as store:
        assert store.advance("stock", mark(33), timeout=LIMIT) == mark(33)
        assert store.advance("stock", mark(34), timeout=LIMIT) == mark(34)
        assert store.current("stock", timeout=LIMIT) == mark(34)
        store.check_durable(timeout=LIMIT)
        if store.lockable:
            with store.holding("stock", mark(35), timeout=LIMIT):
                pass
        store.reset("stock", mark(7), timeout=LIMIT)
        store.reset("stock", None, timeout=LIMIT)
        assert store.current("stock", timeout=LIMIT) is None


def refused(url: str) -> None:
    with store_at(url) as store, pytest.raises(ConfigError):
        store.advance("stock", mark(33), timeout=LIMIT)


def test_postgresql(postgres_server: Postgres) -> None:
    user = f"rights_{os.getpid()}"
    with contextlib.closing(PostgresqlHarness(postgres_server)) as harness:
        harness.command(f"create role {user} login password '{PASSWORD}'")
        try:
            url = re.sub("//[^@]*@", f"//{user}:{PASSWORD}@", harness.url())
            refused(url)
            for line in [*lines("GRANT USAGE"), *lines("GRANT SELECT, INSERT, UPDATE, DELETE ON public")]:
                harness.command(line.replace("public", f'"{harness.schema}"').replace("TO lockctl", f"TO {user}"))
            works(url)
        finally:
            harness.command(f"drop owned by {user}; drop role {user}")


def test_mysql(mariadb_server: MariaDb) -> None:
    user = f"rights_{os.getpid()}"
    with contextlib.closing(MysqlHarness(mariadb_server)) as harness:
        harness.command(f"create user {user} identified by '{PASSWORD}'")
        try:
            url = re.sub("//[^@]*@", f"//{user}:{PASSWORD}@", harness.url())
            refused(url)
            (line,) = lines("GRANT SELECT, INSERT, UPDATE, DELETE ON shop")
            harness.command(line.replace("shop", harness.database).replace("TO lockctl", f"TO {user}"))
            works(url)
        finally:
            harness.command(f"drop user {user}")


def test_etcd(start_server: Callable[..., Any]) -> None:
    server: Etcd = start_server(Etcd, auth=True)
    url = f"etcd://{server.user}:{server.password}@{server.address}/"
    refused(url)
    for line in lines("etcdctl"):
        server.command(*line.replace("USER", server.user).split()[1:])
    works(url)


def test_zookeeper(zookeeper_server: ZooKeeper) -> None:
    (login,), (create,) = lines("addauth digest"), lines("create /fences")
    user = login.split()[2].replace("PASSWORD", PASSWORD)
    path, _, acl = create.split()[1:]
    scheme, _, letters = acl.split(":")
    rights = {
        {"c": "create", "r": "read", "w": "write", "d": "delete", "a": "admin"}[letter]: True for letter in letters
    }
    root = f"{path}-{os.urandom(4).hex()}"
    admin = KazooClient(hosts=zookeeper_server.address, auth_data=[("digest", user)])
    admin.start()
    try:
        admin.create(root, b"", acl=[make_acl(scheme, "", **rights)])
        works(f"zookeeper://{user}@{zookeeper_server.address}{root}")
        refused(f"zookeeper://stranger:{PASSWORD}@{zookeeper_server.address}{root}")
    finally:
        admin.delete(root, recursive=True)
        admin.stop()
        admin.close()


def test_s3(start_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # the bucket, the user, the policy and the key
    server: Moto = start_server(Moto, verified_after=4)
    server.client().create_bucket(Bucket="warehouse")
    iam = server.client("iam")
    iam.create_user(UserName="writer")
    policy = MANUAL[MANUAL.index('{"Version"') :].partition("\n\n")[0]
    json.loads(policy)
    iam.put_user_policy(UserName="writer", PolicyName="fence", PolicyDocument=policy)
    key = iam.create_access_key(UserName="writer")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    works(f"s3://warehouse/?endpoint={server.url}&region=us-east-1")
    refused(f"s3://elsewhere/?endpoint={server.url}&region=us-east-1")
