"""What `lockctl doctor` finds in a ZooKeeper that is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.security import READ_ACL_UNSAFE

from tests.promises.harms import administrator
from tests.servers.zookeeper import ZooKeeper, ZooKeeperEnsemble

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]
    Start = Callable[..., Any]


def test_servers_that_are_gone_or_not_named_are_found(diagnose: Diagnose, zookeeper_three: ZooKeeperEnsemble) -> None:
    hosts = zookeeper_three.hosts
    login = "nightly:s3cret-horse@"
    assert diagnose(f"zookeeper://{login}{hosts}/doctor", "--ttl", "4s").troubles("zookeeper.", "backend.") == {}
    one = hosts.split(",")[0]
    few = diagnose(f"zookeeper://{one},127.0.0.1:1/doctor", "--ttl", "1m")
    assert few.troubles("zookeeper.", "backend.") == {
        "zookeeper.servers": "warn",
        "zookeeper.session": "warn",
        "zookeeper.open": "warn",
    }
    assert few["zookeeper.session"]["seen"] == "1m20s, for a lease of 40s"


def test_a_server_that_says_nothing_and_a_root_that_is_closed_are_found(
    diagnose: Diagnose, start_server: Start
) -> None:
    server = start_server(Silent)
    with administrator(server) as client:
        client.create("/closed", acl=READ_ACL_UNSAFE)
    found = diagnose(f"zookeeper://{server.address}/closed", "--ttl", "4s")
    assert found.troubles("zookeeper.", "backend.") == {
        "zookeeper.servers": "warn",
        "zookeeper.four_letters": "warn",
        "zookeeper.rights": "fail",
        "zookeeper.open": "warn",
    }


class Silent(ZooKeeper):
    """A server that answers no more four letter words than it must."""

    def _configure(self) -> None:
        super()._configure()
        file = self.directory / "zoo.cfg"
        file.write_text(file.read_text().replace("4lw.commands.whitelist=*", "4lw.commands.whitelist=ruok"))
