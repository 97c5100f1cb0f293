"""The least rights that lockctl-security(7) names are enough for all that users do; with one less, it is named."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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


def refusal(lockctl: Lockctl, url: str, *options: str) -> str:
    """The one line that is said when a run is refused."""
    done = lockctl("run", "-b", url, "-l", "nightly", *options, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (78, ""), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_the_pages_say_the_same_of_each_server() -> None:
    backends = (PAGES / "lockctl-backends.7.txt").read_text(encoding="utf-8")
    for heading in ("etcd", "ZooKeeper", "NATS", "Kubernetes"):
        assert recipe(heading)
        for line in recipe(heading):
            assert f"    {line}\n" in backends
    assert recipe("Redis and Redlock")[0].partition(">PASSWORD ")[2] in backends


@pytest.fixture
def postgres(postgres_server: Postgres, lockctl: Lockctl) -> Iterator[Callable[..., str]]:
    """Gives the answer of the superuser in a database with the tables, and a user without rights."""
    database = "rights"

    def command(statement: str) -> str:
        return postgres_server.command(statement, database=database)

    postgres_server.command(f"create database {database}", database="postgres")
    owner = f"postgresql://{postgres_server.superuser}@{postgres_server.address}/{database}?tls=no"
    assert lockctl("run", "-b", owner, "-l", "first", "--slots", "2", "--", "true").returncode == 0
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
        assert said in refusal(lockctl, url)
        postgres(grant)
    postgres(f"REVOKE SELECT ON lockctl_holder FROM {USER}")
    assert "GRANT SELECT, INSERT, UPDATE, DELETE ON" in refusal(lockctl, url, "--slots", "2")
    postgres(signal)


def test_mysql(lockctl: Lockctl, mariadb_server: MariaDb) -> None:
    command = mariadb_server.command
    command("create database rights")
    owner = mariadb_server.url.rpartition("/")[0] + "/rights"
    command(f"grant all on rights.* to {mariadb_server.user}")
    command(f"create user {USER} identified by 's3cret'; grant usage on rights.* to {USER}")
    try:
        assert lockctl("run", "-b", owner, "-l", "first", "--", "true").returncode == 0
        url = f"mysql://{USER}:s3cret@{mariadb_server.address}/rights"
        bare = refusal(lockctl, url)
        assert "GRANT this user SELECT, INSERT, UPDATE, DELETE" in bare
        (grant,) = recipe("MySQL")
        whole = grant.replace("ON ", "ON rights.").replace("USER", USER)
        command(whole)
        check_everything(lockctl, url)
        for right in ("SELECT", "INSERT", "UPDATE"):
            command(f"REVOKE {right} ON rights.lockctl_lock FROM {USER}")
            assert "GRANT SELECT, INSERT, UPDATE, DELETE ON `rights`.lockctl_lock TO" in refusal(
                lockctl, url, "-l", f"without-{right.lower()}"
            )
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
        assert named in refusal(lockctl, url)
    reader = token([rule.replace("write", "read") if rule.startswith("key") else rule for rule in rules])
    said = refusal(lockctl, f"consul://:{reader}@{server.address}/")
    assert f"consul at {server.address}: Permission denied: the token needs key_prefix" in said
