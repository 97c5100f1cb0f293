"""Requests for the Lease objects of one namespace, each under a deadline, and what a refusal means."""

from __future__ import annotations

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.stores.kubernetes import access, layout
from lockctl.stores.kubernetes.connection import Connections
from lockctl.url import Url, absolute, take_params
from lockctl.wire.http import Client, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from lockctl.stores.kubernetes.layout import Object
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.lines import Lines

PARAMETERS = {"kubeconfig": "", "context": ""}
GROUP = "/apis/coordination.k8s.io/v1"
VERBS = "get, list, watch, create, update and delete"
DOUBTFUL = MISSING, CHANGED, GONE = 404, 409, 410
JSON = (("Content-Type", "application/json"), ("Accept", "application/json"))


class Refused(ConfigError):
    """An answer that is no result. *status* is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        """Keep the status."""
        super().__init__(message)
        self.status = status
        self.at = 0.0  # when the server answered


class Leases:
    """Those of one namespace. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``.

    Safe for several threads.
    """

    def __init__(self, url: Url) -> None:
        """The namespace that *url* names. Nothing is sent yet."""
        params = take_params(url, PARAMETERS)
        if url.user or url.password or len(url.hosts) > 1:
            raise ConfigError("kubernetes: a URL names a namespace: kubernetes://NAMESPACE/PREFIX?kubeconfig=FILE")
        self.namespace = url.hosts[0] if url.hosts else ""
        if not self.namespace.replace("-", "a").isalnum() or not self.namespace.isascii():
            raise ConfigError("kubernetes: a URL names a namespace: kubernetes://NAMESPACE/PREFIX?kubeconfig=FILE")
        if params["kubeconfig"]:
            params["kubeconfig"] = absolute(params["kubeconfig"])
        self._params = params
        self.where = f"kubernetes namespace {self.namespace}"
        self._access: access.Access | None = None
        self._clients: Connections | None = None

    def load(self) -> None:
        """Read where the server is, unless that was done. Raises ``ConfigError``."""
        if self._access is None:
            self._access = access.find(self._params["kubeconfig"], self._params["context"])

    def get(self, name: str, deadline: Deadline) -> tuple[Object | None, float]:
        """An object, ``None`` if it is absent, and the time in whole seconds at which the server said so."""
        try:
            found, at = self._ask("GET", f"/{name}", None, deadline)
        except Refused as refused:
            if refused.status != MISSING:
                raise
            return None, refused.at
        if found.get("kind") != "Lease" or not layout.is_object(found) or found["metadata"]["name"] != name:
            raise self._strange("that object")
        return found, at

    def create(self, made: Object, deadline: Deadline) -> bool:
        """Whether an object was made, which it was unless there is one."""
        return self._done("POST", "", made, deadline)

    def update(self, made: Object, deadline: Deadline) -> bool:
        """Whether an object was changed, which it was if it still had its ``resourceVersion``."""
        return self._done("PUT", f"/{made['metadata']['name']}", made, deadline)

    def delete(self, seen: Object, deadline: Deadline) -> bool:
        """Whether an object was removed, which it was if nobody has changed it."""
        metadata = seen["metadata"]
        named = {name: metadata[name] for name in ("uid", "resourceVersion") if name in metadata}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": named}
        return self._done("DELETE", f"/{metadata['name']}", options, deadline)

    def list(self, selector: str, page: int, deadline: Deadline) -> Iterator[tuple[Object, float]]:
        """All objects that a label selector finds."""
        query = f"?limit={page}&labelSelector={quoted(selector)}"
        rest = ""
        while True:
            content, at = self._ask("GET", query + rest, None, deadline)
            for item in self._items(content):
                yield item, at
            going_on = (content.get("metadata") or {}).get("continue")
            if not going_on:
                return
            rest = f"&continue={quoted(str(going_on).encode('utf-8', 'replace').decode())}"

    def named(self, name: str, deadline: Deadline) -> tuple[Object | None, str]:
        """An object, and the version of the whole collection, from which a watch goes on."""
        content, _ = self._ask("GET", f"?fieldSelector={quoted(f'metadata.name={name}')}", None, deadline)
        items = self._items(content)
        return (items[0] if items else None), str((content.get("metadata") or {}).get("resourceVersion") or "")

    def watch(self, name: str, since: str, deadline: Deadline) -> Lines:
        """The changes of an object after a version, line by line, on a connection that the caller closes."""
        query = f"?watch=1&fieldSelector={quoted(f'metadata.name={name}')}&resourceVersion={quoted(since)}"
        clients, headers = self._connect(deadline)
        lines = Client(clients.endpoint).stream("GET", self._target(query), deadline, headers=headers)
        if lines.status != 200:
            lines.close()
            raise self._refusal(lines.status, {})
        return lines

    def version(self, deadline: Deadline) -> str:
        """That of the server."""
        clients, headers = self._connect(deadline)
        assert self._access is not None
        answer = clients.request("GET", f"{self._access.path}/version", deadline, headers=headers)
        content = self._content(answer)
        return printable(str(content.get("gitVersion") or f"answers with {answer.status}"))

    def allowed(self, verb: str, deadline: Deadline) -> bool:
        """Whether we may do that to the Lease objects of the namespace."""
        asked = {"namespace": self.namespace, "group": "coordination.k8s.io", "resource": "leases", "verb": verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        target = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        content, _ = self._ask("POST", target, body, deadline, whole=True)
        return bool((content.get("status") or {}).get("allowed"))

    def close(self) -> None:
        """Close the connections; the next request opens one."""
        if self._clients is not None:
            self._clients.close()

    def _done(self, method: str, target: str, body: Object, deadline: Deadline) -> bool:
        try:
            content, _ = self._ask(method, target, body, deadline)
        except Refused as refused:
            if refused.status == CHANGED or (refused.status == MISSING and method != "POST"):
                return False
            raise
        if content.get("kind") not in ("Lease", "Status"):
            raise self._strange("what became of a change")
        return True

    def _items(self, content: Object) -> tuple[Object, ...]:
        """Those of a list."""
        items = layout.objects(content)
        if items is None:
            raise self._strange("a list of leases")
        return tuple(items)

    def _ask(
        self, method: str, target: str, body: Object | None, deadline: Deadline, *, whole: bool = False
    ) -> tuple[Object, float]:
        """The answer, and its time. A request may be done twice. Raises ``Refused``."""
        data = b"" if body is None else json_text.render(body).encode("utf-8", "replace")
        for attempt in (1, 2):
            clients, headers = self._connect(deadline)
            place = self._access.path + target if whole and self._access else self._target(target)
            answer = clients.request(method, place, deadline, body=data, headers=headers)
            if answer.status == 401 and attempt == 1 and self._access is not None and self._access.forget():
                clients.retire()  # a certificate is that of its connection, and has an end in each of its requests
                self._clients = None
                continue  # there may be others by now
            break
        content = self._content(answer)
        if answer.status not in (200, 201, 202):
            refused = self._refusal(answer.status, content)
            if isinstance(refused, Refused):
                refused.at = self._date(answer)
            raise refused
        return content, self._date(answer)

    def _connect(self, deadline: Deadline) -> tuple[Connections, tuple[tuple[str, str], ...]]:
        """Connections for who we are now, and what goes with each request."""
        self.load()
        assert self._access is not None
        found = self._access.credentials(deadline)
        clients, files = self._clients, (found.cert, found.key, found.files)
        if clients is None or clients.files != files:
            if clients is not None:
                clients.retire()
            self._clients = clients = Connections(self._access.endpoint(found), files)
        if found.token is None:
            return clients, JSON
        if not (found.token.isascii() and found.token.isprintable()):
            raise ConfigError(f"{self.where}: the token has characters that none has")
        return clients, (*JSON, ("Authorization", f"Bearer {found.token}"))

    def _target(self, rest: str) -> str:
        assert self._access is not None
        return f"{self._access.path}{GROUP}/namespaces/{self.namespace}/leases{rest}"

    def _content(self, answer: Response) -> dict[str, Any]:
        content = json_text.an_object(answer.body)
        # anything on the way may say that there is no such thing
        if content is None or (answer.status in DOUBTFUL and content.get("kind") != "Status"):
            if answer.status in (401, 403):
                return {}
            said = f"{self.where}: the answer ({answer.status}) is not that of an API server: {answer.excerpt()}"
            raise BackendUnavailable(said)
        return content

    def _date(self, answer: Response) -> float:
        if answer.date is None:
            raise BackendUnavailable(f"{self.where}: an answer without a date: is that an API server?")
        return answer.date

    def _strange(self, wanted: str) -> BackendUnavailable:
        return BackendUnavailable(f"{self.where}: the answer is not {wanted}: is that an API server?")

    def _refusal(self, status: int, content: dict[str, Any]) -> BackendUnavailable | Refused:
        reason = printable(str(content.get("message") or "")[:200])
        said = f"{self.where}: {printable(str(content.get('reason') or 'refused'))[:40]} ({status})"
        if status == 429:
            return BackendUnavailable(f"{said}: the API server has too much to do")
        if status >= 500 or status in (408, GONE):
            return BackendUnavailable(f"{said}: {reason}" if reason else said)
        if status == 401:
            return Refused(f"{said}: the credentials are not, or no longer, valid", status)
        if status == 403:
            return Refused(f"{said}: needed are {VERBS} for leases in the namespace: {reason}", status)
        return Refused(f"{said}: {reason}", status)
