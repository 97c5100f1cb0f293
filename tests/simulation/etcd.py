"""A cluster of etcd, as far as lockctl talks to it: keys, revisions, leases, transactions, watches.

The requests are those of the JSON gateway, in real HTTP. Like etcd 3.4 it ends leases by its own clock, looks for them
twice a second, and lets all of them run anew after a restart, and when another member leads. A host can be apart with the
leader before: that one still prolongs leases, for nobody, and whatever needs the others waits until it hears of them.
"""

from __future__ import annotations

import binascii
import copy
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.json_text import render
from tests.simulation.http import HttpServer
from tests.simulation.plan import KEPT
from tests.simulation.world import Here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.network import Host
    from tests.simulation.streams import Link

SHORTEST_LEASE = 2  # seconds
LOOK = 0.5  # seconds between two looks for leases that have ended
NOT_FOUND, FORBIDDEN, EXISTS, UNAVAILABLE, UNAUTHENTICATED = 5, 7, 9, 14, 16  # codes of gRPC
KEEP_ALIVE, LOGIN = "/v3/lease/keepalive", "/v3/auth/authenticate"
TARGETS = {"CREATE": ("created", "create_revision"), "MOD": ("modified", "mod_revision"), "VALUE": ("value", "value")}


class Refused(Exception):
    """A request that fails."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Entry(NamedTuple):
    """What is at a key. Revisions are those of the store; 0: there is no such key."""

    value: bytes = b""
    created: int = 0
    modified: int = 0
    version: int = 0
    lease: int = 0


class Event(NamedTuple):
    """A change of a key; *after* is ``None`` when it was deleted."""

    revision: int
    key: bytes
    after: Entry | None
    before: Entry | None


class Apart:
    """A leader that does not know that it is none, and what those who talk to it wait for."""

    def __init__(self, header: dict[str, str], leases: dict[int, tuple[int, float]]) -> None:
        self.header = header
        self.leases = leases
        self.waiting: list[tuple[str, str, str, Link]] = []


class Data:
    """All that is lost when the data is lost."""

    def __init__(self) -> None:
        self.keys: dict[bytes, Entry] = {}
        self.revision = 1
        self.leases: dict[int, tuple[int, float]] = {}  # seconds that it was granted for, and when it ends
        self.events: list[Event] = []


class Watch(NamedTuple):
    """One of those in a stream."""

    link: Link
    number: int
    beginning: bytes
    end: bytes
    wants_puts: bool


class EtcdServer(HttpServer):
    """The member that leads."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.data = Data()
        self._term = 2
        self._watches: list[Watch] = []
        self._looks = False
        self._apart: dict[Host, Apart] = {}

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy(self.data)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.data = memory or Data()

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._watches = []
        self._apart = {}
        super().fail(seconds, kept, old)

    def _come_back(self, kept: int, old: Any) -> None:
        super()._come_back(kept, old)
        self._elect()

    def _elect(self) -> None:
        self._term += 1
        now = self.clock.boottime()
        self.data.leases = {lease: (ttl, now + ttl) for lease, (ttl, _) in self.data.leases.items()}

    def depose(self, host: Host, seconds: float) -> None:
        """Have another member lead, which *host* does not hear of for so long."""
        if self.up:
            Here.world.tell(self.name, f"another member leads: {host.name} hears of it in {seconds:.3f} s")
            apart = self._apart[host] = Apart(self._header(), self.data.leases)
            self._elect()
            Here.world.at(Here.world.now + seconds, self._hear, host, apart)

    def _hear(self, host: Host, apart: Apart) -> None:
        if self._apart.get(host) is not apart:
            return
        del self._apart[host]
        since = int(apart.header["revision"])
        self._tell([event for event in self.data.events if event.revision > since], {host})
        for method, target, body, link in apart.waiting:
            answer = self.respond(method, target, body, link)
            if answer:
                self.answer_later(answer, link)

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        apart = self._apart.get(link.host)
        if apart is not None:
            if target != KEEP_ALIVE:
                apart.waiting.append((method, target, body, link))
                return b""
            lease = int(json.loads(body)["ID"])
            kept = {"TTL": str(apart.leases[lease][0])} if lease in apart.leases else {}
            return self.whole(200, render({"result": {"ID": str(lease), **kept, "header": apart.header}}))
        if target == "/v3/watch":
            return self.head(200, "Transfer-Encoding: chunked") + b"".join(self._watch(body, link))
        status, answer = 200, dict[str, Any]()
        try:
            answer = {**self._do(target, json.loads(body)), "header": self._header()}
            if target == KEEP_ALIVE:
                answer = {"result": answer}
        except Refused as refusal:
            status = 404 if refusal.code == NOT_FOUND else 400
            answer = {"error": str(refusal), "message": str(refusal), "code": refusal.code}
        return self.whole(status, render(answer))

    def changes(self, method: str, target: str, link: Link) -> bool:
        """See ``HttpServer``."""
        return target != "/v3/watch" and link.host not in self._apart

    def busy(self) -> bytes:
        """See ``HttpServer``."""
        said = "etcdserver: request timed out"
        return self.whole(503, render({"error": said, "message": said, "code": UNAVAILABLE}))

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        said = "etcdserver: permission denied"
        return self.whole(403, render({"error": said, "message": said, "code": FORBIDDEN}))

    def is_let_in(self, target: str) -> bool:
        """See ``HttpServer``: who knows the password has a token, which ends."""
        return target == LOGIN or self.field("authorization") == str(self.login)

    def expired(self) -> bytes:
        """See ``HttpServer``."""
        said = "etcdserver: invalid auth token"
        return self.whole(401, render({"error": said, "message": said, "code": UNAUTHENTICATED}))

    def _header(self) -> dict[str, str]:
        return {"cluster_id": "1", "member_id": "1", "revision": str(self.data.revision), "raft_term": str(self._term)}

    def _do(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._end_leases()
        lease = int(asked.get("ID", 0))
        if path == LOGIN:
            return {"token": str(self.login)}
        if path == "/v3/kv/range":
            return self._range(asked)
        if path == "/v3/kv/txn":
            return self._transact(asked)
        if path == "/v3/lease/grant":
            return self._grant(lease, int(asked["TTL"]))
        if path == KEEP_ALIVE:
            return self._keep_alive(lease)
        if path == "/v3/lease/revoke":
            if lease not in self.data.leases:
                raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
            self._end_lease(lease)
            return {}
        if path == "/v3/lease/timetolive":
            ttl, ends = self.data.leases.get(lease, (0, self.clock.boottime() - 1))
            return {"ID": str(lease), "TTL": str(int(ends - self.clock.boottime())), "grantedTTL": str(ttl)}
        raise AssertionError(path)

    # Leases

    def _grant(self, lease: int, seconds: int) -> dict[str, Any]:
        if lease in self.data.leases:
            raise Refused(EXISTS, "etcdserver: lease already exists")
        ttl = max(seconds, SHORTEST_LEASE)
        self.data.leases[lease] = ttl, self.clock.boottime() + ttl
        self._look_later()
        return {"ID": str(lease), "TTL": str(ttl)}

    def _keep_alive(self, lease: int) -> dict[str, Any]:
        if lease not in self.data.leases:
            return {"ID": str(lease)}
        ttl, _ = self.data.leases[lease]
        self.data.leases[lease] = ttl, self.clock.boottime() + ttl
        return {"ID": str(lease), "TTL": str(ttl)}

    def _look_later(self) -> None:
        if not self._looks:
            self._looks = True
            Here.world.at(Here.world.now + LOOK, self._look)

    def _look(self) -> None:
        self._looks = False
        if self.up:
            self._end_leases()
        if any(ttl < 86400 for ttl, _ in self.data.leases.values()):
            self._look_later()

    def _end_leases(self) -> None:
        """End those that are over; etcd does it when it looks, and a request may come just after that."""
        now = self.clock.boottime()
        for lease in [lease for lease, (_, ends) in self.data.leases.items() if ends <= now]:
            self._end_lease(lease)

    def _end_lease(self, lease: int) -> None:
        del self.data.leases[lease]
        self._change({key: None for key, entry in self.data.keys.items() if entry.lease == lease})

    # Keys

    def _change(self, changes: dict[bytes, Entry | None]) -> None:
        """Write and delete, in one revision."""
        if not changes:
            return
        data = self.data
        data.revision += 1
        events = []
        for key, after in changes.items():
            before = data.keys.pop(key, None)
            if after is not None:
                data.keys[key] = after
            events.append(Event(data.revision, key, after, before))
        data.events += events
        self._tell(events, {watch.link.host for watch in self._watches} - self._apart.keys())

    def _within(self, asked: dict[str, Any]) -> list[tuple[bytes, Entry]]:
        beginning, end = _bytes(asked["key"]), _bytes(asked.get("range_end", ""))
        if not end:
            return [(beginning, self.data.keys[beginning])] if beginning in self.data.keys else []
        return sorted((key, entry) for key, entry in self.data.keys.items() if _is_within(key, beginning, end))

    def _range(self, asked: dict[str, Any]) -> dict[str, Any]:
        found = self._within(asked)
        most = int(asked.get("max_create_revision", 0))
        if most:
            found = [each for each in found if each[1].created <= most]
        if asked.get("sort_target") == "CREATE":
            found.sort(key=lambda each: each[1].created, reverse=asked["sort_order"] == "DESCEND")
        limit = int(asked.get("limit", 0)) or len(found)
        if asked.get("count_only"):
            return {"count": str(len(found))}
        bare = bool(asked.get("keys_only"))
        return {"kvs": [_shown(key, entry, bare=bare) for key, entry in found[:limit]], "count": str(len(found))}

    def _holds(self, condition: dict[str, Any]) -> bool:
        field, name = TARGETS[condition["target"]]
        wanted: Any = _bytes(condition[name]) if field == "value" else int(condition[name])
        entries = [entry for _, entry in self._within(condition)]
        if not entries:
            if field == "value":
                return False  # nothing has no value
            entries = [Entry()]
        compare = {"EQUAL": lambda a: a == wanted, "GREATER": lambda a: a > wanted, "LESS": lambda a: a < wanted}
        return all(compare[condition["result"]](getattr(entry, field)) for entry in entries)

    def _transact(self, asked: dict[str, Any]) -> dict[str, Any]:
        succeeded = all(self._holds(each) for each in asked.get("compare", ()))
        steps = asked.get("success" if succeeded else "failure", ())
        for step in steps:
            lease = int(step.get("request_put", {}).get("lease", 0))
            if lease and lease not in self.data.leases:
                raise Refused(NOT_FOUND, "etcdserver: requested lease not found")
        changes: dict[bytes, Entry | None] = {}
        for step in steps:
            if "request_put" in step:
                changes |= self._put(step["request_put"])
            elif "request_delete_range" in step:
                changes |= {key: None for key, _ in self._within(step["request_delete_range"])}
        self._change(changes)
        # what is read after a write in the same transaction sees it
        responses: list[dict[str, Any]] = [
            {"response_range": self._range(step["request_range"])} if "request_range" in step else {} for step in steps
        ]
        return {**({"succeeded": True} if succeeded else {}), "responses": responses}

    def _put(self, asked: dict[str, Any]) -> dict[bytes, Entry | None]:
        key, after = _bytes(asked["key"]), self.data.revision + 1
        before = self.data.keys.get(key)
        if before is None and asked.get("ignore_value"):
            raise Refused(NOT_FOUND, "etcdserver: key not found")
        value = before.value if before and asked.get("ignore_value") else _bytes(asked.get("value", ""))
        created, version = (before.created, before.version + 1) if before else (after, 1)
        return {key: Entry(value, created, after, version, int(asked.get("lease", 0)))}

    # Watches

    def _watch(self, body: str, link: Link) -> Iterator[bytes]:
        decoder, at = json.JSONDecoder(), 0
        while at < len(body):
            content, at = decoder.raw_decode(body, at)
            asked = content["create_request"]
            beginning, end = _bytes(asked["key"]), _bytes(asked.get("range_end", ""))
            made = Watch(link, len(self._watches), beginning, end, "NOPUT" not in asked.get("filters", ()))
            self._watches.append(made)
            yield _chunk({"result": {"header": self._header(), "watch_id": str(made.number), "created": True}})
            since = int(asked["start_revision"])
            yield self._told(made, [event for event in self.data.events if event.revision >= since])

    def _tell(self, events: list[Event], hosts: set[Host]) -> None:
        """Have the watches of these hosts say what they have to say of these events."""
        for watch in self._watches:
            said = self._told(watch, events) if watch.link.host in hosts else b""
            if said:
                watch.link.say(said)

    def _told(self, watch: Watch, events: list[Event]) -> bytes:
        """What a watch says of these events; empty: nothing."""
        shown = []
        for event in events:
            if not _is_within(event.key, watch.beginning, watch.end) or (event.after and not watch.wants_puts):
                continue
            gone = Entry(modified=event.revision)
            one: dict[str, Any] = {"kv": _shown(event.key, event.after or gone)}
            if event.after is None:
                one["type"] = "DELETE"
            if event.before is not None:
                one["prev_kv"] = _shown(event.key, event.before)
            shown.append(one)
        if not shown:
            return b""
        return _chunk({"result": {"header": self._header(), "watch_id": str(watch.number), "events": shown}})


class Member(HttpServer):
    """Another member of a cluster, which does what the leader does."""

    def __init__(self, number: int, rate: float, leader: EtcdServer) -> None:
        super().__init__(number, rate)
        self._leader = leader

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``: what it has lost it learns from the others."""
        super().fail(seconds, KEPT, None)

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        return self._leader.respond(method, target, body, link)


def _is_within(key: bytes, beginning: bytes, end: bytes) -> bool:
    return beginning <= key < end if end else key == beginning


def _bytes(text: str) -> bytes:
    return binascii.a2b_base64(text)


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _shown(key: bytes, entry: Entry, *, bare: bool = False) -> dict[str, Any]:
    shown = {"key": _text(key), "create_revision": str(entry.created), "mod_revision": str(entry.modified)}
    return {**shown, "lease": str(entry.lease), "value": "" if bare else _text(entry.value)}


def _chunk(content: dict[str, Any]) -> bytes:
    line = render(content).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)
