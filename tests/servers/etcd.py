"""etcd: one member, or a cluster; with users, with TLS, with and without the JSON gateway."""

from __future__ import annotations

import base64
import contextlib
import json
import platform
import shutil
from typing import TYPE_CHECKING, Any, ClassVar

from tests.servers import programs, web
from tests.servers.process import Group, Server, ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.servers.certificates import Certificates

QUOTA = 64 * 2**20  # bytes of the database


class Etcd(Server):
    """``etcd`` with its own configuration file."""

    programs: ClassVar[tuple[str, ...]] = ("etcd", "etcdctl")
    user, password = "lockctl", "s3cret"
    root_user, root_password = "root", "rootpw"

    def __init__(
        self,
        directory: Path,
        *,
        auth: bool = False,
        tls: Certificates | None = None,
        client_certificates: bool = False,
        gateway: bool = True,
        name: str = "m0",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """See the options.

        With *auth*, ``user`` may read and write below the prefix ``lockctl/`` only, and ``root_user`` everything.
        *client_certificates*: nobody connects without one. *gateway* false: no HTTP and JSON, as etcd 3.4 does when
        its configuration file does not ask for it. *extra* are keys of the configuration file.
        """
        super().__init__(directory)
        self.name = name
        self.tls = tls
        self.auth = auth
        self.peer = f"http://{self.host}:{free_port()}"
        self.cluster = f"{name}={self.peer}"
        self._client_certificates = client_certificates
        self._gateway = gateway
        self._extra = dict(extra or {})
        self.auth_enabled = False  # from now on, etcdctl must log in

    @property
    def url(self) -> str:
        """``http://`` or ``https://``."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def _configure(self) -> None:
        self.auth_enabled = False
        content: dict[str, Any] = {
            "name": self.name,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer,
            "initial-advertise-peer-urls": self.peer,
            "initial-cluster": self.cluster,
            "initial-cluster-state": "new",
            "initial-cluster-token": str(self.directory.parent),
            "logger": "zap",
            "log-level": "warn",
            "quota-backend-bytes": QUOTA,
        }
        if self._gateway:
            content["enable-grpc-gateway"] = True
        if self.tls is not None:
            content["client-transport-security"] = {
                "cert-file": self.tls.server_cert,
                "key-file": self.tls.server_key,
            }
            if self._client_certificates:  # etcd 3.4 asks for certificates as soon as it knows a CA
                content["client-transport-security"].update({"trusted-ca-file": self.tls.ca, "client-cert-auth": True})
        # JSON is YAML, which etcd reads
        (self.directory / "etcd.yaml").write_text(json.dumps({**content, **self._extra}))

    def _words(self) -> Sequence[str]:
        return [programs.find("etcd"), "--config-file", str(self.directory / "etcd.yaml")]

    def _variables(self) -> dict[str, str]:
        # etcd 3.4 starts on ARM only when it is told that this is meant; elsewhere it says nothing
        return {"ETCD_UNSUPPORTED_ARCH": "arm64"} if _on_arm() else {}

    def request(self, path: str, body: object = None, *, token: str | None = None) -> tuple[int, Any]:
        """Status and JSON of a POST of *body*, or of a GET without one."""
        headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
        context = self.tls.context() if self.tls else None
        text = None if body is None else json.dumps(body)
        method = "GET" if body is None else "POST"
        status, answer = web.request(self.address, method, path, body=text, headers=headers, context=context)
        try:
            return status, json.loads(answer)
        except ValueError:
            return status, answer.decode(errors="replace")

    def write(self, key: str, value: bytes) -> None:
        """Put *value* into a key."""
        coded = {"key": key.encode(), "value": value}
        body = {name: base64.b64encode(data).decode() for name, data in coded.items()}
        status, answer = self.request("/v3/kv/put", body)
        if status != 200:
            raise RuntimeError(f"{self}: {answer}")

    def entries(self, beginning: str) -> list[dict[str, Any]]:
        """The keys that begin so, as the gateway tells them, the oldest first; if there are no users."""
        ends = beginning, beginning[:-1] + chr(ord(beginning[-1]) + 1)
        key, range_end = (base64.b64encode(end.encode()).decode() for end in ends)
        order = {"sort_target": "CREATE", "sort_order": "ASCEND"}
        status, answer = self.request("/v3/kv/range", {"key": key, "range_end": range_end, **order})
        if status != 200:
            raise RuntimeError(f"{self}: {answer}")
        return list(answer.get("kvs", ()))

    def read(self, beginning: str) -> dict[str, str]:
        """The keys that begin so, with what is in them."""
        decoded = (
            [base64.b64decode(each.get(part, "")).decode(errors="replace") for part in ("key", "value")]
            for each in self.entries(beginning)
        )
        return {key: value for key, value in decoded}  # noqa: C416 - a list of two is no pair for mypy

    def _answers(self) -> bool:
        status, answer = self.request("/health")  # true only with a leader and a quorum
        return status == 200 and isinstance(answer, dict) and str(answer.get("health")) in {"true", "True"}

    def _initialise(self) -> None:
        if self.auth:
            self.enable_auth()

    def enable_auth(self) -> None:
        """Make the users and ask for passwords from now on, in the whole cluster."""
        self.command("user", "add", f"{self.root_user}:{self.root_password}")
        with contextlib.suppress(RuntimeError):
            self.command("role", "add", "root")  # some versions have it from the start
        self.command("user", "grant-role", self.root_user, "root")
        self.command("user", "add", f"{self.user}:{self.password}")
        self.command("role", "add", "lockctl")
        self.command("role", "grant-permission", "lockctl", "--prefix=true", "readwrite", "lockctl/")
        self.command("user", "grant-role", self.user, "lockctl")
        self.command("auth", "enable")
        self.auth_enabled = True

    def command(self, *words: str, timeout: float = 10.0) -> str:
        """The output of ``etcdctl``, as root. Raises ``RuntimeError`` when it fails."""
        line = [programs.find("etcdctl"), f"--endpoints={self.url}", f"--command-timeout={timeout:g}s"]
        if self.tls is not None:
            line += [f"--cacert={self.tls.ca}", f"--cert={self.tls.nameless_cert}", f"--key={self.tls.nameless_key}"]
        if self.auth_enabled:
            line.append(f"--user={self.root_user}:{self.root_password}")
        return programs.run([*line, *words], timeout=timeout + 5, ETCDCTL_API="3")

    def wipe(self) -> None:
        """Delete every key and revoke every lease."""
        self.command("del", "", "--prefix")
        for lease in json.loads(self.command("lease", "list", "-w", "json")).get("leases") or ():
            with contextlib.suppress(RuntimeError):  # it expired meanwhile
                self.command("lease", "revoke", f"{int(lease['id']):x}")

    def lose_data(self) -> None:
        """Start anew, as the same cluster, with nothing in it."""
        self.stop()
        shutil.rmtree(self.directory / "data")
        self.start()

    def save(self) -> None:
        """Take a snapshot, in place of one before."""
        self.command("snapshot", "save", str(self.directory / "snapshot"))

    def put_back(self) -> None:
        """Start anew, as the same cluster, with what was there when the snapshot was taken."""
        self.stop()
        shutil.rmtree(self.directory / "data")
        words = [programs.find("etcdctl"), "snapshot", "restore", str(self.directory / "snapshot")]
        words += [f"--data-dir={self.directory / 'data'}", f"--name={self.name}", f"--initial-cluster={self.cluster}"]
        words += [f"--initial-cluster-token={self.directory.parent}", f"--initial-advertise-peer-urls={self.peer}"]
        programs.run(words, timeout=15.0, ETCDCTL_API="3")
        self.start()


class EtcdCluster(Group):
    """Members that elect a leader. Without a majority they answer no request that writes."""

    def __init__(self, directory: Path, *, members: int = 3, auth: bool = False, **options: Any) -> None:
        """*options* are those of ``Etcd``."""
        self.members: list[Etcd] = [
            Etcd(directory / f"m{number}", name=f"m{number}", **options) for number in range(members)
        ]
        self._auth = auth
        cluster = ",".join(f"{member.name}={member.peer}" for member in self.members)
        for member in self.members:
            member.cluster = cluster

    @property
    def urls(self) -> list[str]:
        """The URL of each member."""
        return [member.url for member in self.members]

    def _await_agreement(self) -> None:
        if self._auth:
            self._auth = False
            self.members[0].enable_auth()
            for member in self.members:
                member.auth_enabled = True

    def stop(self) -> None:
        """End one after the other: a leader that ends waits in vain for successors that end, too."""
        for member in self.members:
            member.stop()

    def leader(self) -> Etcd:
        """The member that leads now. Raises ``ServerError`` when no running member says that it does."""
        for member in self.members:
            with contextlib.suppress(OSError, RuntimeError):
                status = json.loads(member.command("endpoint", "status", "-w", "json", timeout=2.0))[0]["Status"]
                if status["header"]["member_id"] == status.get("leader"):  # none is left out
                    return member
        raise ServerError("no member leads")

    def wipe(self) -> None:
        """Delete every key and revoke every lease."""
        self.members[0].wipe()


def _on_arm() -> bool:
    return platform.machine() in {"aarch64", "arm64"}
