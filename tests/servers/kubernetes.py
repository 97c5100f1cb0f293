"""A Kubernetes API server: a model of one, because none comes in a package. ``kubectl`` is real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.servers import programs, web
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers.certificates import Certificates

MODEL = Path(__file__).with_name("kubernetes_model.py")
NAMESPACE = "locks"
ADMIN = "t0ken-of-admin"


class Kubernetes(Server):
    """Lease objects of one namespace, and the users with these tokens."""

    programs = ()

    def __init__(
        self,
        directory: Path,
        *,
        tokens: dict[str, str] | None = None,
        verbs: dict[str, Sequence[str]] | None = None,
        tls: Certificates | None = None,
        anonymous: bool = True,
    ) -> None:
        """*tokens* are those of users, who may do what *verbs* say, or all; *anonymous*: so may everybody else."""
        super().__init__(directory)
        self._tls = tls
        self._settings = {
            "port": self.port,
            "file": str(self.directory / "objects.db"),
            "namespaces": [NAMESPACE],
            "tokens": {ADMIN: "admin", **(tokens or {})},
            "verbs": verbs or {},
            "anonymous": anonymous,
            "cert": str(tls.server_cert) if tls else "",
            "key": str(tls.server_key) if tls else "",
            "ca": str(tls.ca) if tls else "",
        }

    @property
    def place(self) -> str:
        """The URL of the namespace."""
        return self.behind(self.address)

    def behind(self, address: str, prefix: str = "") -> str:
        """The same at another address, of a proxy before it."""
        return place(self.directory, address, prefix)

    def config(self, name: str, user: dict[str, Any], **cluster: Any) -> Path:
        """A kubeconfig with this user, in JSON, and TLS if the server has it."""
        path = self.directory / name
        server: dict[str, Any] = {"server": f"{'https' if self._tls else 'http'}://{self.address}", **cluster}
        if self._tls is not None and not cluster:
            server["certificate-authority"] = str(self._tls.ca)
        write_config(path, server, user)
        return path

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """What ``kubectl`` does for an operator."""
        config = self.config("kubectl.json", {"token": ADMIN})
        command = [programs.find("kubectl"), f"--kubeconfig={config}", f"--namespace={NAMESPACE}"]
        command += [f"--cache-dir={self.directory / 'cache'}", *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)

    def ask(self, method: str, name: str = "", content: object = None) -> tuple[int, Any]:
        """A request for an object, as a client library sends it."""
        target = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        context = self._tls.context() if self._tls else None
        status, body = web.request(
            self.address,
            method,
            f"{target}/{name}" if name else target,
            body=None if content is None else json.dumps(content),
            headers={"Authorization": f"Bearer {ADMIN}"},
            context=context,
            timeout=20.0,
        )
        return status, json.loads(body)

    def pass_time(self, seconds: float) -> None:
        """Put its clock forward."""
        context = self._tls.context() if self._tls else None
        web.request(self.address, "POST", f"/-clock-/{seconds}", timeout=20.0, context=context)

    def _configure(self) -> None:
        """It reads no files."""

    def _words(self) -> Sequence[str]:
        return [sys.executable, str(MODEL), json.dumps(self._settings)]

    def _answers(self) -> bool:
        return self.ask("GET")[0] == 200


def write_config(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> None:
    """A kubeconfig in JSON, which is YAML, too."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    new = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    new.write_text(json.dumps(content))
    new.replace(path)  # others may read it at this moment


def place(directory: Path, address: str, prefix: str = "") -> str:
    """The URL of the namespace behind an address; a kubeconfig for it is written to a directory."""
    path = directory / f"kubeconfig-{address.replace(':', '-')}.json"
    write_config(path, {"server": f"http://{address}"}, {"token": ADMIN})
    return f"kubernetes://{NAMESPACE}/{prefix}?kubeconfig={path}"
