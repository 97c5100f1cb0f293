"""TLS and passwords at a ZooKeeper server: who is who, in both directions, and what a refusal says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from lockctl.errors import BackendUnavailable, ConfigError
from tests.contract.harness import LIMIT
from tests.promises.attempts import accepted, refused
from tests.promises.harms import administrator
from tests.promises.rights import check_everything
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockctl.backend import Backend
    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates


@pytest.fixture
def root() -> str:
    return f"/security-{os.urandom(6).hex()}"


def test_a_server_that_asks_for_a_certificate_gets_it(
    start_server: Callable[..., ZooKeeper], certificates: Certificates, root: str
) -> None:
    server = start_server(ZooKeeper, tls=certificates, extra=("ssl.clientAuth=need",))
    url = f"zookeepers://127.0.0.1:{server.tls_port}{root}?ca={certificates.ca}"
    accepted(f"{url}&cert={certificates.client_cert}&key={certificates.client_key}")
    for params in ("", f"&cert={certificates.other_cert}&key={certificates.other_key}"):
        refused(url + params, "the server refuses TLS with us")


def test_tls_to_the_port_without_it_is_unavailable_with_a_hint(
    zookeeper_server: ZooKeeper, certificates: Certificates, opened: Callable[[str], Backend], root: str
) -> None:
    url = f"zookeepers://{zookeeper_server.address}{root}?ca={certificates.ca}"
    with pytest.raises(BackendUnavailable, match=r"TLS|closed"):
        opened(url).inspect("nightly", timeout=1.0)


def test_a_lock_that_was_made_with_a_password_is_nobody_elses(
    zookeeper_server: ZooKeeper, opened: Callable[[str], Backend], root: str, tmp_path: Path
) -> None:
    place, file = f"{zookeeper_server.address}{root}", tmp_path / "password"
    for _ in range(2):
        accepted(f"zookeeper://ops:s3cret@{place}")
    file.write_text("s3cret\n")
    for source in (f"password_file={file}", f"password_command=cat {file}"):
        accepted(f"zookeeper://ops@{place}?{source}")
    (tmp_path / "wrong").write_text("wr0ng")
    for wrong in (f"ops:wr0ng@{place}", place, f"ops@{place}?password_file={tmp_path}/wrong"):
        refused(f"zookeeper://{wrong}", f"no permission below {root}", "s3cret", "wr0ng")
    with pytest.raises(ConfigError, match="no permission"):
        opened(f"zookeeper://ops:wr0ng@{place}").inspect("nightly", timeout=LIMIT)
    with administrator(zookeeper_server) as stranger, pytest.raises(NoAuthError):
        stranger.get_children(f"{root}/nightly")


def test_a_server_that_wants_another_kind_of_proof_says_so(start_server: Callable[..., ZooKeeper], root: str) -> None:
    server = start_server(ZooKeeper, extra=("enforce.auth.enabled=true", "enforce.auth.schemes=digest"))
    accepted(f"zookeeper://ops:s3cret@{server.address}{root}")
    refused(f"zookeeper://{server.address}{root}", "user name")


def test_the_rights_that_the_manual_names_are_enough(lockctl: Lockctl, zookeeper_server: ZooKeeper, root: str) -> None:
    manual = (Path(__file__).parents[3] / "man/text/lockctl-backends.7.txt").read_text()
    login, create = (line.split() for line in manual.splitlines() if line.startswith(("    addauth ", "    create ")))
    user = login[2].replace("USER", "least").replace("PASSWORD", "s3cret")
    scheme, _, letters = create[3].split(":")
    rights = {
        {"c": "create", "r": "read", "w": "write", "d": "delete", "a": "admin"}[letter]: True for letter in letters
    }
    admin = KazooClient(hosts=zookeeper_server.address, auth_data=[(login[1], user)])
    admin.start()
    try:
        url = f"zookeeper://{user}@{zookeeper_server.address}{root}"
        admin.create(root, create[2].encode(), acl=[make_acl(scheme, "", **rights)], makepath=True)
        check_everything(lockctl, url)
        for missing in ("create", "read"):
            place = f"{root}/{missing}"
            admin.create(place, create[2].encode(), acl=[make_acl(scheme, "", **{**rights, missing: False})])
            said = refused(f"{url}/{missing}", f"no permission below {place}: ", "s3cret")
            assert all(right in said.rpartition("ACLs")[2] for right in rights)
            admin.delete(place)
    finally:
        admin.delete(root, recursive=True)
        admin.stop()
        admin.close()
