"""What `lockctl doctor` finds in an etcd that is not as it should be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from lockctl.stores.etcd.doctor import problem_of
from tests.jobs import eventually
from tests.servers.etcd import Etcd, EtcdCluster
from tests.servers.http_proxy import HttpProxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis
    from tests.servers.http_proxy import Answer, Request

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]


@pytest.mark.parametrize(
    ("version", "level"),
    [("3.3.25", "fail"), ("3.4.23", "warn"), ("3.4.31", ""), ("3.5.1", "fail"), ("3.5.12", "warn"), ("3.5.13", ""), ("3.6.0-rc.1", "")],
)  # fmt: skip
def test_a_version_with_an_error_that_breaks_locks_is_known(version: str, level: str) -> None:
    problem = problem_of(version)
    assert (problem[0] if problem else "") == level


def test_a_single_open_member_without_space_is_found(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Etcd, extra={"quota-backend-bytes": 2 << 20})
    assert diagnose(f"etcd://{server.address}/").troubles("backend.", "etcd.") == {
        "etcd.members": "warn",
        "etcd.auth": "warn",
        "etcd.version": "warn",  # that of Debian
    }
    assert server.command("get", "", "--prefix") == ""
    for number in range(20):
        with contextlib.suppress(RuntimeError):
            server.command("put", f"big{number}", "x" * 120_000)
    found = diagnose(f"etcd://{server.address}/").troubles("backend.", "etcd.")
    assert (found["etcd.alarm"], found["etcd.space"]) == ("fail", "warn")


def test_a_user_for_locks_is_enough_where_the_status_is_for_root_alone(diagnose: Diagnose, start_server: Start) -> None:
    server = start_server(Etcd, auth=True)

    def as_3_5_30(request: Request) -> Answer | None:
        kind = [("Content-Type", "application/json")]
        if request.path == "/v3/maintenance/status":
            return 403, kind, b'{"code":7, "message":"etcdserver: permission denied"}'
        if request.path == "/v3/maintenance/alarm":
            if "authorization" not in request.headers:
                return 400, kind, b'{"code":3, "message":"etcdserver: user name is empty"}'
            return 200, kind, b'{"header":{"cluster_id":"1"}, "alarms":[{"memberID":"2", "alarm":"NOSPACE"}]}'
        return None

    with HttpProxy(server.address, as_3_5_30) as proxy:
        found = diagnose(f"etcd://{server.user}:{server.password}@{proxy.address}/?prefix=lockctl/")
    troubles = {"etcd.members": "warn", "etcd.version": "warn", "etcd.alarm": "fail"}
    assert found.troubles("backend.", "etcd.") == troubles


def test_members_that_are_gone_or_not_named_and_a_user_without_rights_are_found(
    diagnose: Diagnose, start_server: Start
) -> None:
    cluster = start_server(EtcdCluster, auth=True)
    one, two, three = (member.address for member in cluster.members)
    login = f"{Etcd.user}:{Etcd.password}"
    right = diagnose(f"etcd://{login}@{one},{two},{three}/?prefix=lockctl/")
    assert right.troubles("backend.", "etcd.") == {"etcd.version": "warn"}
    assert diagnose(f"etcd://{login}@{one}/?prefix=lockctl/").levels()["etcd.members"] == "warn"
    wrong = diagnose(f"etcd://{login}@{one},{two},{three}/?prefix=other/")
    assert wrong.levels()["backend.reachable"] == "fail"
    for words in ("role add reader", "role grant-permission reader --prefix=true read other/"):
        cluster.members[0].command(*words.split())
    cluster.members[0].command("user", "grant-role", Etcd.user, "reader")
    found = diagnose(f"etcd://{login}@{one},{two},{three}/?prefix=other/")
    assert found.troubles("backend.", "etcd.rights") == {"etcd.rights": "fail"}
    cluster.members[2].kill()
    url = f"etcd://{login}@{one},{two},{three}/?prefix=lockctl/"
    eventually(lambda: "of which 2 answer" in diagnose(url)["etcd.members"]["seen"], 30)  # there may be an election
    assert diagnose(url).troubles("etcd.members") == {"etcd.members": "warn"}
