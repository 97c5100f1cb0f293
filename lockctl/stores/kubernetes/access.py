"""Where an API server is and who we are there: a kubeconfig, or the files of a service account in a pod."""

from __future__ import annotations

import binascii
import os

from lockctl import clock, json_text
from lockctl.commanding import check_owner
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.url import Named, absolute, endpoint, hostport
from lockctl.value import Value
from lockctl.wire.stream import Endpoint
from lockctl.wire.tls_settings import TlsSettings, server_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline

    Section = dict[str, Any]

BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n")
POD = "/var/run/secrets/kubernetes.io/serviceaccount"
NOT_HERE = ("proxy-url", "auth-provider", "as", "username")  # what a kubeconfig may say and lockctl does not do
SERVER_NAME = "tls-server-name"  # in a kubeconfig
LARGEST = 1 << 20  # bytes of a file
EARLY = 10.0  # seconds before their end at which credentials are asked for again; half of their time if that is less
PLUGIN = "the exec plugin of the kubeconfig"


class InMemory:
    """A file that has *data* and is on no disk, while this object is referred to. Raises ``BackendUnavailable``."""

    def __init__(self, data: bytes, shown: str) -> None:
        """It has a *path*, for this process alone, and is *shown* to people as what it came from."""
        self._descriptor = -1
        try:
            self._descriptor = os.memfd_create("lockctl")
            os.write(self._descriptor, data)
        except OSError as failure:
            raise BackendUnavailable(f"kubernetes: no file for a certificate: {failure.strerror}") from None
        self.path = Named(f"/proc/self/fd/{self._descriptor}")
        self.path.name = shown

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Credentials(Value):
    """Who we are: a token, or the paths of a certificate and its key."""

    token: str | None = None
    cert: str | None = None
    key: str | None = None
    files: tuple[InMemory, ...] = ()  # that these are the paths of; they are there as long as this object is
    until: float = float("inf")  # by our clock, when others are to be asked for


class Access:
    """One API server and one user. Raises ``ConfigError``; safe for several threads."""

    def __init__(self, cluster: Section, user: Section, directory: str) -> None:
        """As the sections of a kubeconfig say; its paths are relative to *directory*."""
        self._directory, self._user = directory, user
        self._files: list[InMemory] = []  # of what the kubeconfig itself has
        for name in NOT_HERE:
            if cluster.get(name) or user.get(name):
                raise ConfigError(f"kubernetes: lockctl does not know {name} in a kubeconfig")
        self._server = _text(cluster, "server") or ""
        scheme, _, rest = self._server.partition("://")
        address, _, path = rest.partition("/")
        if scheme not in ("http", "https") or not address:
            raise ConfigError("kubernetes: the kubeconfig names no server: https://HOST:PORT")
        self.path = f"/{path}".rstrip("/")
        self._tls = None
        if scheme == "https":
            self._tls = TlsSettings(
                ca=self._file(cluster, "certificate-authority"),
                tls_name=server_name(_text(cluster, SERVER_NAME) or "", f"kubernetes: {SERVER_NAME} in the kubeconfig"),
                insecure=cluster.get("insecure-skip-tls-verify") is True,
            )
            if self._tls.insecure and self._tls.ca:  # as kubectl says
                raise ConfigError("kubernetes: insecure-skip-tls-verify contradicts the authority in the kubeconfig")
        self._place = endpoint(address, 443 if self._tls else 80)
        self._issued: Credentials | None = None
        self._fixed = Credentials(
            token=_text(user, "token"),
            cert=self._file(user, "client-certificate"),
            key=self._file(user, "client-key"),
        )

    def endpoint(self, credentials: Credentials) -> Endpoint:
        """The server, spoken to with these credentials."""
        host, port = self._place
        tls = self._tls
        if tls is not None and credentials.cert:
            tls = TlsSettings(tls.ca, credentials.cert, credentials.key, tls.tls_name, tls.insecure)
        return Endpoint(f"kubernetes at {printable(host)}:{port}", host, port, tls=tls)

    def credentials(self, deadline: Deadline) -> Credentials:
        """Who we are now: files of tokens are read again, and a plugin is asked when its answer has ended."""
        file = _text(self._user, "tokenFile")
        if file:
            text = _read(os.path.join(self._directory, file)).decode("utf-8", "replace").strip()
            return Credentials(token=text, cert=self._fixed.cert, key=self._fixed.key)
        plugin = self._user.get("exec")
        if not isinstance(plugin, dict):
            return self._fixed
        issued = self._issued
        if issued is None or issued.until < clock.wall():
            self._issued = issued = self._ask(plugin, deadline)
        return issued

    def forget(self) -> bool:
        """Ask for credentials again when they are next needed; whether there may be others.

        The file of a certificate is read for each connection, so others are shown by new connections.
        """
        self._issued = None
        return any(self._user.get(name) for name in ("tokenFile", "exec", "client-certificate"))

    def _ask(self, plugin: Section, deadline: Deadline) -> Credentials:
        from lockctl.shell import printed_by

        words = [_text(plugin, "command") or "", *map(str, plugin.get("args") or ())]
        if plugin.get("interactiveMode") == "Always" or not words[0]:
            raise ConfigError(f"{PLUGIN} asks a person: nobody may be there")
        if "/" in words[0]:
            words[0] = os.path.join(self._directory, words[0])
        version = _text(plugin, "apiVersion") or "client.authentication.k8s.io/v1"
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        variables = {str(each.get("name")): str(each.get("value")) for each in plugin.get("env") or ()}
        variables["KUBERNETES_EXEC_INFO"] = json_text.render(asked)
        line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        printed = printed_by(line, PLUGIN, self._directory, deadline, variables=variables)
        status = (json_text.an_object(printed) or {}).get("status")
        if not isinstance(status, dict):
            raise ConfigError(f"{PLUGIN} printed no ExecCredential with a status")
        cert, key = _text(status, "clientCertificateData"), _text(status, "clientKeyData")
        files = [InMemory(text.encode(), f"of {PLUGIN}") if text else None for text in (cert, key)]
        ends, now = _text(status, "expirationTimestamp"), clock.wall()
        until = _time(ends) if ends else float("inf")
        return Credentials(
            token=_text(status, "token"),
            cert=files[0].path if files[0] else None,
            key=files[1].path if files[1] else None,
            files=tuple(file for file in files if file is not None),
            until=until - min(EARLY, (until - now) / 2),
        )

    def _file(self, section: Section, name: str) -> str | None:
        """The path of a file that a section names, or whose content it has."""
        data = _text(section, f"{name}-data")
        if data:
            shown = f"{name}-data of the kubeconfig"
            try:
                content = binascii.a2b_base64(data if BASE64.issuperset(data) else "?a")  # it passes over what is none
            except ValueError:
                raise ConfigError(f"kubernetes: {shown} is not base64") from None
            self._files.append(InMemory(content, shown))
            return self._files[-1].path
        return os.path.join(self._directory, path) if (path := _text(section, name)) else None


def find(kubeconfig: str, context: str) -> Access:
    """The access that these parameters mean. Raises ``ConfigError``."""
    named = kubeconfig or _variable("KUBECONFIG")
    paths = [absolute(path) for path in named.split(":") if path] or [os.path.expanduser("~/.kube/config")]
    paths = [path for path in paths if kubeconfig or os.path.exists(path)]
    if paths:
        return _in_config(paths[0], context)
    host, port = _variable("KUBERNETES_SERVICE_HOST"), _variable("KUBERNETES_SERVICE_PORT") or "443"
    if not host or context:
        raise ConfigError("kubernetes: there is no kubeconfig, and this is no pod: say kubeconfig=FILE")
    cluster = {"server": f"https://{hostport(host, port)}", "certificate-authority": f"{POD}/ca.crt"}
    return Access(cluster, {"tokenFile": f"{POD}/token"}, POD)


def _in_config(path: str, wanted: str) -> Access:
    content = _parsed(path)
    name = wanted or _text(content, "current-context") or ""
    context = _named(content, "contexts", "context", name, path)
    cluster = _named(content, "clusters", "cluster", _text(context, "cluster") or "", path)
    user = _named(content, "users", "user", _text(context, "user") or "", path) if context.get("user") else {}
    return Access(cluster, user, os.path.dirname(path))


def _parsed(path: str) -> Section:
    data = _read(path, "the kubeconfig")
    try:
        content = json_text.parse(data)
    except ValueError:
        from lockctl.extras import Needed

        with Needed("kubernetes: a kubeconfig in YAML", "kubernetes"):
            import yaml
        try:
            content = yaml.load(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        except (yaml.YAMLError, ValueError, RecursionError):
            content = None
    if not isinstance(content, dict):
        raise ConfigError(f"kubernetes: {printable(path)} is not a kubeconfig")
    return content


def _named(content: Section, plural: str, singular: str, name: str, path: str) -> Section:
    listed = content.get(plural)
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(singular), dict):
            found: Section = each[singular]
            return found
    raise ConfigError(f"kubernetes: {printable(path)} has no {singular} {printable(name)!r}")


def _read(path: str, commanding: str = "") -> bytes:
    """What is in a file; *commanding* names one whose words run commands, and which nobody else may write."""
    try:
        reading = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if commanding:
                check_owner(printable(path), os.fstat(reading), commanding, "change its owner, or say kubeconfig=")
            return os.read(reading, LARGEST)
        finally:
            os.close(reading)
    except OSError as failure:
        raise ConfigError(f"kubernetes: {printable(path)}: {failure.strerror}") from None


def _variable(name: str) -> str:
    return os.fsdecode(os.environb.get(name.encode(), b""))


def _text(section: Section, name: str) -> str | None:
    content = section.get(name)
    return content if isinstance(content, str) and content else None


def _time(text: str) -> float:
    """Seconds since the epoch; for an unreadable time 0: the answer has ended."""
    from calendar import timegm
    from time import strptime

    try:
        return float(timegm(strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0
