"""The API servers of Kubernetes as far as lockctl talks to them: the Lease objects of a namespace, and watches.

Each change of an object gives it a new version, which is a number of the whole collection. A change names the version
that it follows. Of the servers each tells its own time, in whole seconds.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from tests.simulation.http import HttpServer
from tests.simulation.objects import APART
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.streams import Link

LEASES = "/apis/coordination.k8s.io/v1/namespaces/jobs/leases"
TEAM = {"example.org/team": "jobs"}  # what an admission controller puts into each new object
LONGEST_WATCH = 60.0  # seconds after which a watch is ended, at the latest


class Watch(NamedTuple):
    """Somebody who is told of the changes of an object."""

    link: Link
    name: str


class KubernetesServer(HttpServer):
    """All API servers, with one etcd behind them."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.objects: dict[str, dict[str, Any]] = {}
        self.removed_of_others: list[str] = []
        self._version = 1
        self._removed: dict[str, int] = {}  # the version at which that was
        self._watches: list[Watch] = []

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy((self.objects, self._version))

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.objects, self._version = memory or ({}, 1)
        self._removed = {}

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._watches = []
        super().fail(seconds, kept, old)

    def time(self) -> float:
        """See ``HttpServer``."""
        return self.clock.wall() - APART * Here.world.chance()

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        path, _, query = target.partition("?")
        name, words = path.removeprefix(LEASES).removeprefix("/"), parse_qs(query)
        if method == "GET" and "labelSelector" in words:
            return self._listed(words["labelSelector"][0])
        if method == "GET" and not name:
            wanted = words["fieldSelector"][0].partition("=")[2]
            if "watch" in words:
                return self._watch(Watch(link, wanted), int(words["resourceVersion"][0]))
            items = [self.objects[wanted]] if wanted in self.objects else []
            found = {"kind": "LeaseList", "metadata": {"resourceVersion": str(self._version)}, "items": items}
            return self.whole(200, json.dumps(found))
        asked = json.loads(body) if body else {}
        name = name or asked["metadata"]["name"]
        there = self.objects.get(name)
        if method == "POST" and there is not None:
            return self._refused(409, "AlreadyExists")
        if method != "POST" and there is None:
            return self._refused(404, "NotFound")
        if method == "GET":
            return self.whole(200, json.dumps(there))
        if method == "POST":
            return self.put(201, name, asked, f"{Here.world.random.getrandbits(64):x}")
        assert there is not None
        metadata = there["metadata"]
        expected = asked.get("preconditions", {}) if method == "DELETE" else asked["metadata"]
        for field in ("uid", "resourceVersion"):
            if expected.get(field) not in (None, "", metadata[field]):
                return self._refused(409, "Conflict")
        if method == "PUT":
            if not expected.get("resourceVersion"):
                return self._refused(422, "Invalid")
            return self.put(200, name, asked, metadata["uid"])
        del self.objects[name]
        self._version += 1
        self._removed[name] = self._version
        self._tell(name, "DELETED", {**there, "metadata": {**metadata, "resourceVersion": str(self._version)}})
        return self.whole(200, json.dumps({"kind": "Status", "status": "Success"}))

    def shown(self, method: str, target: str, body: str) -> str:
        """See ``HttpServer``."""
        asked = json.loads(body) if body else {}
        expected = asked.get("preconditions") or asked.get("metadata") or {}
        return f"{method} {target}, if it has version {expected.get('resourceVersion')}"

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        reasons = ((429, "TooManyRequests"), (500, "InternalError"), (504, "Timeout"))
        return self._refused(*Here.world.random.choice(reasons))

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self._refused(403, "Forbidden")

    def expired(self) -> bytes:
        """See ``HttpServer``."""
        return self._refused(401, "Unauthorized")

    def _listed(self, selector: str) -> bytes:
        """Those with a label, or with ``!`` those without it."""
        label, _, wanted = selector.removeprefix("!").partition("=")
        items = []
        for found in self.objects.values():
            has = found["metadata"].get("labels", {}).get(label)
            if has is None if selector.startswith("!") else has == wanted or (has is not None and not wanted):
                items.append(found)
        return self.whole(200, json.dumps({"kind": "LeaseList", "metadata": {}, "items": items}))

    def put(self, status: int, name: str, asked: dict[str, Any], uid: str) -> bytes:
        """Have an object as it is *asked* for; what is answered."""
        self._version += 1
        metadata = {**asked["metadata"], "uid": uid, "resourceVersion": str(self._version)}
        kind = "MODIFIED" if name in self.objects else "ADDED"
        for field in ("annotations", "labels"):
            there = metadata.get(field) or {}
            if kind == "MODIFIED" and not there.items() >= TEAM.items():
                self.removed_of_others.append(f"the {field} that others have put into {name}")
            metadata[field] = {**there, **TEAM}
        made = {**asked, "metadata": metadata}
        self.objects[name] = made
        self._tell(name, kind, made)
        return self.whole(status, json.dumps(made))

    def _refused(self, status: int, reason: str) -> bytes:
        said = {"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": status}
        return self.whole(status, json.dumps(said))

    def _watch(self, watch: Watch, since: int) -> bytes:
        self._watches.append(watch)
        self._unanswered.add(watch.link)
        Here.world.at(Here.world.now + LONGEST_WATCH * Here.world.chance(), self._end, watch)
        there = self.objects.get(watch.name)
        said = b""
        if self._removed.get(watch.name, 0) > since:
            said += _event("DELETED", {"metadata": {"resourceVersion": str(self._removed[watch.name])}})
        if there is not None and int(there["metadata"]["resourceVersion"]) > since:
            said += _event("MODIFIED", there)
        return self.head(200, "Transfer-Encoding: chunked") + said

    def _tell(self, name: str, kind: str, made: dict[str, Any]) -> None:
        for watch in self._watches:
            if watch.name == name:
                watch.link.say(_event(kind, made))

    def _end(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
            self.answer_later(b"0\r\n\r\n", watch.link)


def _event(kind: str, made: dict[str, Any]) -> bytes:
    line = json.dumps({"type": kind, "object": made}).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)
