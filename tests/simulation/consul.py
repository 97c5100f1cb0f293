"""A cluster of Consul behind one agent, as far as lockctl talks to it: keys, sessions, transactions, blocking queries.

The requests are those of its HTTP interface. It ends a session once or twice its ttl after its last renewal by its own
clock: Consul 1.8 after twice, and its manual promises no more than once. Like that it counts anew after a restart, and
forgets then which keys were closed for a lock delay. A moment after a restart it does not find sessions that are
there, except for consistent reads. A server that failed is deregistered, and with it the sessions of all who talk to
it, long before their ttl.
"""

from __future__ import annotations

import binascii
import copy
import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote

from lockctl.json_text import render
from tests.simulation.http import HttpServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.streams import Link

LATER = (1, 2)  # times its ttl until a session ends; one of them, by chance
START = 0.3  # seconds after a restart in which sessions are not found
SPREAD = 1 / 16  # part of its time that a blocking query may last longer


class Refused(Exception):
    """An operation that fails, and all of its transaction."""


class Entry(NamedTuple):
    """What is at a key."""

    value: bytes
    flags: int
    created: int
    modified: int
    session: str = ""  # that has it


class Session(NamedTuple):
    """A session of somebody on a host, and when it ends. In seconds."""

    host: str
    ttl: float
    delay: float
    ends: float


class Data:
    """All that is lost when the data is lost."""

    def __init__(self) -> None:
        self.index = 1
        self.keys: dict[str, Entry] = {}
        self.removed: dict[str, int] = {}  # and the index of that
        self.sessions: dict[str, Session] = {}


class Query(NamedTuple):
    """One that waits for a change."""

    link: Link
    key: str
    words: dict[str, list[str]]
    since: int


class ConsulServer(HttpServer):
    """The agent, and the servers behind it."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.data = Data()
        self._closed: dict[str, float] = {}  # keys, and until when nobody can lock them
        self._queries: list[Query] = []
        self._ready_at = 0.0
        self._later = Here.world.random.choice(LATER)

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.deepcopy(self.data)

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.data = memory or Data()

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._queries, self._closed = [], {}
        super().fail(seconds, kept, old)

    def _come_back(self, kept: int, old: Any) -> None:
        super()._come_back(kept, old)
        self._ready_at = Here.world.now + START
        for session in list(self.data.sessions):
            self._live_on(session)

    def respond(self, method: str, target: str, body: str, link: Link) -> bytes:
        """See ``HttpServer``."""
        path, _, query = target.partition("?")
        if path.startswith("/v1/kv/"):
            return self._read(unquote(path[len("/v1/kv/") :]), parse_qs(query, keep_blank_values=True), link)
        if path == "/v1/txn":
            return self._transact(json.loads(body))
        what, _, session = path[len("/v1/session/") :].partition("/")
        if what == "create":
            asked = json.loads(body)
            made = Session(link.host.name, _seconds(asked["TTL"]), _seconds(asked["LockDelay"]), 0.0)
            return self.whole(200, render({"ID": self._create(made)}))
        if what == "renew":
            if session not in self.data.sessions or Here.world.now < self._ready_at:
                return self.whole(404, f"Session id '{session}' not found")
            self._live_on(session)
            return self.whole(200, render([{"ID": session, "TTL": f"{self.data.sessions[session].ttl:g}s"}]))
        if what == "destroy":
            self._end(session)
            return self.whole(200, "true")
        if what == "info":
            found = [{"ID": session}] if session in self.data.sessions else []
            return self.whole(200, render(found), f"X-Consul-Index: {self.data.index}")
        raise AssertionError(target)

    def busy(self) -> bytes:
        """See ``HttpServer``: who leads is not known."""
        return self.whole(500, "rpc error making call: No cluster leader")

    def denied(self) -> bytes:
        """See ``HttpServer``."""
        return self.whole(403, "Permission denied")

    # Sessions

    def deregister(self, host: str) -> None:
        """Autopilot removes the server that *host* talks to, which has failed."""
        Here.world.tell(self.name, f"the server of {host} is deregistered")
        for session in [session for session, made in self.data.sessions.items() if made.host == host]:
            self._end(session)

    def _create(self, made: Session) -> str:
        number = Here.world.random.getrandbits(128)
        session = f"{number:032x}"
        self.data.index += 1
        self.data.sessions[session] = made
        self._live_on(session)
        return session

    def _live_on(self, session: str) -> None:
        ends = self.clock.boottime() + self._later * self.data.sessions[session].ttl
        self.data.sessions[session] = self.data.sessions[session]._replace(ends=ends)
        Here.world.at(self.clock.true(ends) + 0.001, self._end_if_over, session, ends)

    def _end_if_over(self, session: str, ends: float) -> None:
        found = self.data.sessions.get(session)
        if self.up and found is not None and found.ends == ends:
            self._end(session)

    def _end(self, session: str) -> None:
        found = self.data.sessions.pop(session, None)
        if found is None:
            return
        held = [key for key, entry in self.data.keys.items() if entry.session == session]
        for key in held:
            self._closed[key] = self.clock.boottime() + found.delay
        self._change(dict.fromkeys(held))

    # Keys

    def _change(self, changes: dict[str, Entry | None]) -> None:
        """Write and delete, at one index."""
        data = self.data
        data.index += 1
        for key, entry in changes.items():
            if entry is not None:
                data.keys[key] = entry
            elif data.keys.pop(key, None) is not None:
                data.removed[key] = data.index
        for query in list(self._queries):
            self._answer_if_changed(query)

    def _read(self, key: str, query: dict[str, list[str]], link: Link) -> bytes:
        since = int(query.get("index", ["0"])[0])
        if since and self._index_of(key, below="recurse" in query) <= since:
            waiting = Query(link, key, query, since)
            self._queries.append(waiting)
            span = int(query["wait"][0].removesuffix("ms")) / 1000
            Here.world.at(Here.world.now + span * (1 + SPREAD * Here.world.chance()), self._answer, waiting)
            return b""
        return self._found(key, query)

    def _answer_if_changed(self, query: Query) -> None:
        if self._index_of(query.key, below="recurse" in query.words) > query.since:
            self._answer(query)

    def _answer(self, query: Query) -> None:
        if query in self._queries:
            self._queries.remove(query)
            self.answer_later(self._found(query.key, query.words), query.link)

    def _index_of(self, key: str, *, below: bool) -> int:
        """The index of the last change of a key, or of those that begin so; of all, if there never was one."""
        data = self.data
        changes = [entry.modified for name, entry in data.keys.items() if _is_meant(name, key, below=below)]
        changes += [index for name, index in data.removed.items() if _is_meant(name, key, below=below)]
        return max(changes, default=data.index)

    def _found(self, key: str, query: dict[str, list[str]]) -> bytes:
        below, only_keys = "recurse" in query, "keys" in query
        index = f"X-Consul-Index: {self._index_of(key, below=below or only_keys)}"
        names = self._names(key, below=below or only_keys)
        if not names:
            return self.whole(404, "", index)
        if only_keys:
            cut = "separator" in query  # after the first slash behind what all begin with
            folders = dict.fromkeys(
                key + "".join(name[len(key) :].partition("/")[:2]) if cut else name for name in names
            )
            return self.whole(200, render([*folders]), index)
        return self.whole(200, render([_shown(name, self.data.keys[name]) for name in names]), index)

    def _names(self, key: str, *, below: bool) -> list[str]:
        return sorted(name for name in self.data.keys if _is_meant(name, key, below=below))

    # Transactions

    def _transact(self, operations: list[dict[str, dict[str, Any]]]) -> bytes:
        before, results, errors, changes = dict(self.data.keys), [], [], dict[str, Entry | None]()
        for number, operation in enumerate(operations):
            asked = operation["KV"]
            try:
                made, shown = self._do(asked, asked["Key"])
            except Refused as refusal:
                errors.append({"OpIndex": number, "What": str(refusal)})
                continue
            for key, entry in made.items():  # what follows sees it
                if entry is None:
                    self.data.keys.pop(key, None)
                else:
                    self.data.keys[key] = entry
            changes |= made
            results += [{"KV": _shown(key, self.data.keys[key])} for key in shown]
        self.data.keys = before
        if errors:
            return self.whole(409, render({"Results": None, "Errors": errors}))
        if changes:
            self._change(changes)
        return self.whole(200, render({"Results": results, "Errors": None}))

    def _do(self, asked: dict[str, Any], key: str) -> tuple[dict[str, Entry | None], list[str]]:
        """What one operation changes, and what it shows."""
        verb, there = asked["Verb"], self.data.keys.get(key)
        if verb == "get-tree":
            return {}, self._names(key, below=True)
        if verb == "get":
            if there is None:
                raise Refused(f'key "{key}" doesn\'t exist')
            return {}, [key]
        if verb in ("check-index", "cas", "delete-cas") and (there.modified if there else 0) != asked["Index"]:
            raise Refused(f'failed index check for key "{key}"')
        if verb == "check-not-exists" and there is not None:
            raise Refused(f'key "{key}" exists')
        if verb == "check-session" and (there is None or there.session != asked["Session"]):
            raise Refused(f'failed session check for key "{key}"')
        if verb.startswith("check"):
            return {}, []
        if verb in ("delete", "delete-cas"):
            return {key: None}, []
        session = there.session if there else ""
        if verb == "lock":
            session = self._locking(key, there, asked["Session"])
        elif verb == "unlock":
            if session != asked["Session"]:
                raise Refused(f'failed to unlock key "{key}", lock isn\'t held, or is held by another session')
            session = ""
        at = self.data.index + 1
        value = binascii.a2b_base64(asked["Value"])
        return {key: Entry(value, asked.get("Flags", 0), there.created if there else at, at, session)}, [key]

    def _locking(self, key: str, there: Entry | None, session: str) -> str:
        if session not in self.data.sessions:
            raise Refused(f'invalid session "{session}"')
        if there is not None and there.session not in ("", session):
            raise Refused(f'failed to lock key "{key}", lock is already held')
        if self._closed.get(key, 0.0) > self.clock.boottime():
            raise Refused(f'failed to lock key "{key}" due to lock delay')
        return session


def _is_meant(name: str, key: str, *, below: bool) -> bool:
    return name.startswith(key) if below else name == key


def _seconds(text: str) -> float:
    return int(text.removesuffix("ms")) / 1000


def _shown(key: str, entry: Entry) -> dict[str, Any]:
    value = binascii.b2a_base64(entry.value, newline=False).decode()
    shown = {
        "Key": key,
        "Flags": entry.flags,
        "Value": value,
        "CreateIndex": entry.created,
        "ModifyIndex": entry.modified,
    }
    return {**shown, "Session": entry.session} if entry.session else shown
