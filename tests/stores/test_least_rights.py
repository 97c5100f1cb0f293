"""The least rights that lockctl-security(7) names are enough for all that users do; with one less, it is named."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.harness import claim, one_of
from tests.promises.attempts import accepted, refused, use
from tests.promises.rights import check_everything
from tests.servers.consul import Consul

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.jobs import Lockctl
    from tests.servers.mariadb import MariaDb
    from tests.servers.postgres import Postgres

PAGES = Path(__file__).parents[2] / "man" / "text"
PAGE = (PAGES / "lockctl-security.7.txt").read_text(encoding="utf-8")
USER = "narrow"


def recipe(heading: str) -> list[str]:
    """The lines of a section that are typed or given to a server."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].partition("\n# ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def test_the_pages_say_the_same_of_each_server() -> None:
    backends = (PAGES / "lockctl-backends.7.txt").read_text(encoding="utf-8")
    for heading in ("etcd", "ZooKeeper", "NATS", "Kubernetes"):
        assert recipe(heading)
        for line in recipe(heading):
            assert f"    {line}\n" in backends
    assert recipe("Redis and Redlock")[0].partition(">PASSWORD ")[2] in backends


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[Callable[..., str]]:
    """Gives the answer of the superuser in a database with the tables, and a user without rights."""
    database = "rights"

    def command(statement: str) -> str:
        return postgres_server.command(statement, database=database)

    postgres_server.command(f"create database {database}", database="postgres")
    owner = f"postgresql://{postgres_server.superuser}@{postgres_server.address}/{database}?tls=no"
    use(owner, one_of(2))
    command(f"create role {USER} login password 's3cret'; revoke all on schema public from public")
    yield command
    postgres_server.command(f"drop database {database} with (force)", database="postgres")
    postgres_server.command(f"drop role {USER}", database="postgres")


def test_postgresql(lockctl: Lockctl, postgres_server: Postgres, postgres: Callable[..., str]) -> None:
    url = f"postgresql://{USER}@{postgres_server.address}/rights?tls=no"
    grants = [line.replace("TO USER", f"TO {USER}") for line in recipe("PostgreSQL")]
    schema, fence, others, signal = grants
    for grant in (schema, fence, others):
        postgres(grant)
    check_everything(lockctl, url)
    for grant, said in ((fence, "GRANT SELECT, INSERT, UPDATE ON"), (schema, "GRANT USAGE ON SCHEMA public")):
        postgres(grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
        refused(url, said)
        postgres(grant)
    postgres(f"REVOKE SELECT ON lockctl_holder FROM {USER}")
    refused(url, "GRANT SELECT, INSERT, UPDATE, DELETE ON", wanted=one_of(2))
    postgres(signal)


def test_mysql(lockctl: Lockctl, mariadb_server: MariaDb) -> None:
    command = mariadb_server.command
    command("create database rights")
    owner = mariadb_server.url.rpartition("/")[0] + "/rights"
    command(f"grant all on rights.* to {mariadb_server.user}")
    command(f"create user {USER} identified by 's3cret'; grant usage on rights.* to {USER}")
    try:
        accepted(owner)
        url = f"mysql://{USER}:s3cret@{mariadb_server.address}/rights"
        refused(url, "GRANT this user SELECT, INSERT, UPDATE, DELETE", "s3cret")
        (grant,) = recipe("MySQL")
        whole = grant.replace("ON ", "ON rights.").replace("USER", USER)
        command(whole)
        check_everything(lockctl, url)
        for right in ("SELECT", "INSERT", "UPDATE"):
            command(f"REVOKE {right} ON rights.lockctl_lock FROM {USER}")
            said = "GRANT SELECT, INSERT, UPDATE, DELETE ON `rights`.lockctl_lock TO"
            refused(url, said, wanted=claim(f"without-{right.lower()}"))
            command(whole)
    finally:
        command(f"drop user {USER}; drop database rights")


def test_consul(lockctl: Lockctl, start_server: Callable[..., Consul]) -> None:
    server = start_server(Consul, acl=True)

    def token(rules: list[str]) -> str:
        policy = {"Name": f"rules-{os.urandom(4).hex()}", "Rules": "\n".join(rules)}
        server.request("PUT", "/v1/acl/policy", json.dumps(policy).encode())
        made = server.request("PUT", "/v1/acl/token", json.dumps({"Policies": [{"Name": policy["Name"]}]}).encode())
        return str(json.loads(made)["SecretID"])

    rules = recipe("Consul")
    assert len(rules) == 2
    check_everything(lockctl, f"consul://:{token(rules)}@{server.address}/", shared=False)
    for missing in rules:
        url = f"consul://:{token([rule for rule in rules if rule != missing])}@{server.address}/"
        (named,) = re.findall(r"^(\w+)_prefix", missing)
        refused(url, named)
    reader = token([rule.replace("write", "read") if rule.startswith("key") else rule for rule in rules])
    said = f"consul at {server.address}: Permission denied: the token needs key_prefix"
    refused(f"consul://:{reader}@{server.address}/", said, reader)
