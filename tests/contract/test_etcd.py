"""The contract, held by a real etcd whose clients reach it through a network that can be cut."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from lockctl.registry import open_backend
from lockctl.stores.etcd import layout
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.url import parse_url
from tests.contract.harness import ProxiedHarness
from tests.contract.suite import BackendContract
from tests.jobs import eventually
from tests.servers import programs
from tests.servers.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockctl.model import Grant
    from tests.servers.etcd import Etcd

LATE = 0.8  # seconds: etcd looks twice a second for leases that ran out
numbers = itertools.count(1)


class EtcdHarness(ProxiedHarness):
    """A prefix of its own in a shared server; each client has a proxy of its own."""

    capabilities = EtcdBackend.capabilities
    ttl = 2.0  # the shortest with etcd's usual timing: one and a half election timeouts, in whole seconds
    hold_slack = LATE

    def __init__(self, server: Etcd) -> None:
        super().__init__()
        self.server = server
        self.prefix = f"contract-{os.getpid()}-{next(numbers)}/"

    def client(self, prefix: str = "") -> EtcdBackend:
        proxy = Proxy(self.server)
        client = open_backend(parse_url(f"etcd://{proxy.address}/?prefix={prefix or self.prefix}"))
        assert isinstance(client, EtcdBackend)
        return self.keep(client, proxy)

    def neighbour(self) -> EtcdBackend:
        return self.client(f"{self.prefix}deeper/")

    def keys(self, name: str = "nightly") -> list[str]:
        """The keys of a lock, the holder's first."""
        words = ("get", f"{self.prefix}{name}/", "--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND")
        return self.server.command(*words).split()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds + (LATE if seconds > self.ttl else 0.0))

    def expire(self, grant: Grant) -> None:
        (created,) = filter(
            None, [client.created(grant) for client, _ in self.clients if isinstance(client, EtcdBackend)]
        )
        only = {**layout.below(f"{grant.key}/".encode()), "keys_only": True}
        only["min_create_revision"] = only["max_create_revision"] = str(created)
        eventually(lambda: "kvs" not in self.server.request("/v3/kv/range", only)[1], limit=grant.ttl + 4.0, pause=0.1)

    def usurp(self, name: str) -> None:
        self.server.command("del", self.keys(name)[0])

    def forget(self, name: str) -> None:
        self.server.command("del", f"{self.prefix}.token/{name}")

    @contextlib.contextmanager
    def foreign_hold(self, name: str) -> Iterator[subprocess.Popen[str]]:
        words = [programs.find("etcdctl"), f"--endpoints={self.server.url}", "lock", self.prefix + name]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"ETCDCTL_API": "3"}) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline().startswith(self.prefix + name), "it says its key when it has the lock"
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(10)

    def close(self) -> None:
        super().close()
        self.server.command("del", self.prefix, "--prefix")


@pytest.fixture
def harness(etcd_server: Etcd) -> Iterator[EtcdHarness]:
    made = EtcdHarness(etcd_server)
    yield made
    made.close()


class TestEtcd(BackendContract):
    """Every promise."""
