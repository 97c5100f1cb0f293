"""TLS and passwords at a ZooKeeper server: who is who, in both directions, and what a refusal says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from lockctl.errors import BackendUnavailable
from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.promises.rights import check_everything
from tests.servers.zookeeper import ZooKeeper

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.jobs import Lockctl
    from tests.servers.certificates import Certificates


@pytest.fixture
def root() -> str:
    return f"/security-{os.urandom(6).hex()}"


@pytest.fixture
def run(lockctl: Lockctl) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """`lockctl run -b URL -- true`, to the end."""

    def start(url: str) -> subprocess.CompletedProcess[str]:
        done = lockctl("run", "-b", url, "-l", "nightly", "--", "true")
        assert "s3cret" not in done.stdout + done.stderr
        assert len(done.stderr.splitlines()) <= 1, done.stderr
        return done

    return start


def test_a_server_that_asks_for_a_certificate_gets_it(
    run: Callable[[str], subprocess.CompletedProcess[str]],
    start_server: Callable[..., ZooKeeper],
    certificates: Certificates,
    root: str,
) -> None:
    server = start_server(ZooKeeper, tls=certificates, extra=("ssl.clientAuth=need",))
    url = f"zookeepers://127.0.0.1:{server.tls_port}{root}?ca={certificates.ca}"
    done = run(f"{url}&cert={certificates.client_cert}&key={certificates.client_key}")
    assert (done.returncode, done.stderr) == (0, "")
    for params in ("", f"&cert={certificates.other_cert}&key={certificates.other_key}"):
        done = run(url + params)
        assert done.returncode == 78
        assert "the server refuses TLS with us" in done.stderr


def test_tls_to_the_port_without_it_is_unavailable_with_a_hint(
    zookeeper_server: ZooKeeper, certificates: Certificates, root: str
) -> None:
    url = f"zookeepers://{zookeeper_server.address}{root}?ca={certificates.ca}"
    with pytest.raises(BackendUnavailable, match=r"TLS|closed"):
        open_backend(parse_url(url)).inspect("nightly", timeout=1.0)


def test_a_lock_that_was_made_with_a_password_is_nobody_elses(
    run: Callable[[str], subprocess.CompletedProcess[str]], lockctl: Lockctl, zookeeper_server: ZooKeeper, root: str
) -> None:
    place = f"{zookeeper_server.address}{root}"
    url = f"zookeeper://ops:s3cret@{place}"
    assert run(url).returncode == 0
    assert run(url).returncode == 0
    for wrong in (f"zookeeper://ops:wr0ng@{place}", f"zookeeper://{place}"):
        done = run(wrong)
        assert done.returncode == 78
        assert f"no permission below {root}" in done.stderr
        assert "wr0ng" not in done.stderr
    seen = lockctl("inspect", "-b", f"zookeeper://ops:wr0ng@{place}", "nightly")
    assert seen.returncode == 78
    stranger = KazooClient(hosts=zookeeper_server.address)
    stranger.start()
    try:
        with pytest.raises(NoAuthError):
            stranger.get_children(f"{root}/nightly")
    finally:
        stranger.stop()
        stranger.close()


def test_the_password_may_come_from_a_file_or_a_command(
    run: Callable[[str], subprocess.CompletedProcess[str]], zookeeper_server: ZooKeeper, root: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    place = f"{zookeeper_server.address}{root}"
    assert run(f"zookeeper://ops:s3cret@{place}").returncode == 0
    assert run(f"zookeeper://ops@{place}?password_file={tmp_path}/password").returncode == 0
    assert run(f"zookeeper://ops@{place}?password_command=cat {tmp_path}/password").returncode == 0
    (tmp_path / "password").write_text("another")
    assert run(f"zookeeper://ops@{place}?password_file={tmp_path}/password").returncode == 78


def test_a_server_that_wants_another_kind_of_proof_says_so(
    run: Callable[[str], subprocess.CompletedProcess[str]], start_server: Callable[..., ZooKeeper], root: str
) -> None:
    server = start_server(ZooKeeper, extra=("enforce.auth.enabled=true", "enforce.auth.schemes=digest"))
    assert run(f"zookeeper://ops:s3cret@{server.address}{root}").returncode == 0
    done = run(f"zookeeper://{server.address}{root}")
    assert done.returncode == 78
    assert "user name" in done.stderr


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
            done = lockctl("run", "-b", f"{url}/{missing}", "-l", "nightly", "--", "echo", "ran")
            assert (done.returncode, done.stdout) == (78, "")
            assert f"no permission below {place}: " in done.stderr
            assert all(right in done.stderr.rpartition("ACLs")[2] for right in rights)
            admin.delete(place)
    finally:
        admin.delete(root, recursive=True)
        admin.stop()
        admin.close()
