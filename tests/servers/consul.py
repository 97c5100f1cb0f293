"""Consul: one agent that is a server, with and without ACLs and TLS, and three that are a cluster."""

from __future__ import annotations

import json
import shutil
import urllib.parse
from typing import TYPE_CHECKING, Any, ClassVar

from tests.servers import programs, web
from tests.servers.process import ASK_LIMIT, Group, Server, ServerError, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.servers.certificates import Certificates

ROOT_TOKEN = "11111111-2222-3333-4444-555555555555"
# what a user of locks below a prefix needs, and no more
RULES = """
key_prefix "lockctl/" { policy = "write" }
session_prefix "" { policy = "write" }
node_prefix "" { policy = "read" }
"""


class ConsulRefused(Exception):
    """Consul answered with an error: the status, and what it said."""


class Consul(Server):
    """``consul agent -server`` with its own configuration file."""

    programs: ClassVar[tuple[str, ...]] = ("consul",)

    def __init__(
        self,
        directory: Path,
        *,
        acl: bool = False,
        tls: Certificates | None = None,
        client_certificates: bool = False,
        session_ttl_min: str = "1s",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """See the options.

        *acl*: what no token allows is denied; ``token`` may use the prefix ``lockctl/``, ``root_token`` everything.
        *tls*: HTTPS only, and *client_certificates*: nobody connects without one. *session_ttl_min*: Consul's own
        default is 10 s, which tests would wait for. *extra* are keys of the configuration file.
        """
        super().__init__(directory)
        self.acl = acl
        self.tls = tls
        self.root_token = ROOT_TOKEN if acl else ""
        self.token = ""
        self._client_certificates = client_certificates
        self._session_ttl_min = session_ttl_min
        self.extra = dict(extra or {})
        self.other_ports = {"serf_lan": free_port(), "server": free_port()}

    @property
    def url(self) -> str:
        """``http://`` or ``https://``."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def _configure(self) -> None:
        web_ports = {"http": -1, "https": self.port} if self.tls else {"http": self.port, "https": -1}
        content: dict[str, Any] = {
            "server": True,
            "bootstrap_expect": 1,
            "node_name": "tests",
            "datacenter": "dc1",
            "data_dir": str(self.directory / "data"),
            "bind_addr": self.host,
            "client_addr": self.host,
            "ports": {**web_ports, **self.other_ports, "dns": -1, "grpc": -1, "serf_wan": -1},
            "session_ttl_min": self._session_ttl_min,
            "disable_update_check": True,
            "log_level": "warn",
            "performance": {"raft_multiplier": 1},
            "limits": {"http_max_conns_per_client": 1000},
        }
        if self.acl:
            content["acl"] = {"enabled": True, "default_policy": "deny", "tokens": {"master": self.root_token}}
        if self.tls is not None:
            content |= {"ca_file": self.tls.ca, "cert_file": self.tls.server_cert, "key_file": self.tls.server_key}
            content["verify_incoming_https"] = self._client_certificates
        (self.directory / "consul.json").write_text(json.dumps({**content, **self.extra}))

    def _words(self) -> Sequence[str]:
        return [programs.find("consul"), "agent", f"-config-file={self.directory / 'consul.json'}"]

    def _answers(self) -> bool:
        # a leader alone is not enough: sessions need the node in the catalogue, and with ACLs the first token
        try:
            session = json.loads(self.request("PUT", "/v1/session/create", b'{"TTL": "10s"}', timeout=ASK_LIMIT))["ID"]
            self.request("PUT", f"/v1/session/destroy/{session}", timeout=ASK_LIMIT)
        except ConsulRefused:
            return False
        return True

    def _initialise(self) -> None:
        if self.acl:
            policy = {"Name": "lockctl", "Rules": RULES}
            self.request("PUT", "/v1/acl/policy", json.dumps(policy).encode())
            token = {"Description": "lockctl", "Policies": [{"Name": "lockctl"}]}
            self.token = json.loads(self.request("PUT", "/v1/acl/token", json.dumps(token).encode()))["SecretID"]

    def request(self, method: str, path: str, body: bytes = b"", *, timeout: float = 5.0, **query: str | int) -> bytes:
        """The body of the answer to one request, as root. Raises ``ConsulRefused`` when the status is not 200."""
        whole = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        headers = {"X-Consul-Token": self.root_token} if self.root_token else {}
        context = self.tls.context() if self.tls else None
        status, answer = web.request(
            self.address, method, whole, body=body, headers=headers, context=context, timeout=timeout
        )
        if status != 200:
            raise ConsulRefused(f"{status}: {answer.decode(errors='replace').strip()}")
        return answer

    def variables(self) -> dict[str, str]:
        """What the ``consul`` command needs in its environment, as root."""
        found = {"CONSUL_HTTP_ADDR": self.url}
        if self.root_token:
            found["CONSUL_HTTP_TOKEN"] = self.root_token
        if self.tls is not None:
            found["CONSUL_CACERT"] = self.tls.ca
            found["CONSUL_CLIENT_CERT"], found["CONSUL_CLIENT_KEY"] = self.tls.nameless_cert, self.tls.nameless_key
        return found

    def command(self, *words: str, timeout: float = 10.0) -> str:
        """The output of the ``consul`` command, as root. Raises ``RuntimeError`` when it fails."""
        return programs.run([programs.find("consul"), *words], timeout=timeout, **self.variables())

    def wipe(self) -> None:
        """Destroy every session and delete every key, which also ends every lock delay."""
        for session in json.loads(self.request("GET", "/v1/session/list")):
            self.request("PUT", f"/v1/session/destroy/{session['ID']}")
        self.request("DELETE", "/v1/kv/", recurse="true")

    def save(self) -> None:
        """Save a snapshot, in place of the last one."""
        self.command("snapshot", "save", str(self._snapshot))

    def lose_data(self) -> None:
        """Start anew without any data: the log of the servers begins again, too."""
        self.kill()
        shutil.rmtree(self.directory / "data")
        self._initialised = False
        self.start()

    def put_back(self) -> None:
        """Start anew, and restore the snapshot that was saved."""
        self.lose_data()
        self.command("snapshot", "restore", str(self._snapshot))
        self.await_answer()

    @property
    def _snapshot(self) -> Path:
        return self.directory / "saved.snap"


class ConsulCluster(Group):
    """Servers that elect a leader, and that notice within a second or two that one of them has failed."""

    def __init__(self, directory: Path, *, members: int = 3) -> None:
        """With the options of ``Consul`` as they are by default."""
        self.members: list[Consul] = [Consul(directory / f"c{number}") for number in range(members)]
        gossip = {"probe_interval": "200ms", "probe_timeout": "100ms", "suspicion_mult": 1}
        for member in self.members:
            member.extra = {
                "node_name": member.directory.name,
                "bootstrap_expect": members,
                "retry_join": [f"{each.host}:{each.other_ports['serf_lan']}" for each in self.members],
                "retry_interval": "1s",
                "gossip_lan": gossip,
            }

    def nodes(self, member: Consul) -> set[str]:
        """The nodes that are in the catalogue, as *member* has it."""
        return {each["Node"] for each in json.loads(member.request("GET", "/v1/catalog/nodes"))}

    def remove(self, failed: Consul, by: Consul) -> None:
        """Have the others know that a member that was killed will not come back."""
        name = failed.directory.name
        shown = ["members", "-status=failed"]
        wait_until(lambda: name in by.command(*shown), f"{name} is known to have failed")
        by.command("force-leave", name)

    def _await_agreement(self) -> None:
        names = {member.directory.name for member in self.members}
        for member in self.members:
            wait_until(lambda member=member: self.nodes(member) == names, "all are in the catalogue")  # type: ignore[misc]

    def leader(self) -> Consul:
        """The member that leads now. Raises ``ServerError`` when there is none."""
        for member in self.members:
            if member.running:
                address = json.loads(member.request("GET", "/v1/status/leader"))
                for each in self.members:
                    if address == f"{each.host}:{each.other_ports['server']}":
                        return each
        raise ServerError("no member leads")
