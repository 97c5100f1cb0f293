"""A server of NATS with JetStream as far as lockctl talks to it: the last message of each key of a bucket.

A message is passed on to those who subscribe before the stream has it, and also if the stream refuses it. After a restart
another server leads, with a clock of its own. One that has been replaced, and does not know it, shows what it had, and
does not store anything.
"""

from __future__ import annotations

import base64
import copy
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from lockctl.stores.nats.protocol import escaped
from tests.simulation.network import DOING
from tests.simulation.objects import APART
from tests.simulation.streams import StreamServer
from tests.simulation.world import Here

if TYPE_CHECKING:
    from tests.simulation.network import Host
    from tests.simulation.streams import Link

KEYS = "$KV.jobs."
EXPECTED = b"\r\nNats-Expected-Last-Subject-Sequence: "
LONGEST_BEHIND = 5.0  # seconds before it is shown that a leader was replaced
STORING = 0.004  # seconds until the stream has a message, at most
INFO = b'INFO {"server_id":"S","version":"2.10.0","headers":true,"max_payload":1048576,"jetstream":true}\r\n'


class Stored(NamedTuple):
    """The last message of a subject."""

    number: int
    headers: bytes
    payload: bytes


class NatsServer(StreamServer):
    """It has one bucket, ``jobs``."""

    def __init__(self, number: int, rate: float) -> None:
        super().__init__(number, rate)
        self.messages: dict[str, Stored] = {}
        self._number = 0
        self._come: dict[Link, bytes] = {}
        self._subscribed: dict[Link, dict[str, str]] = {}  # subject -> number of the subscription
        self._past: list[tuple[float, dict[str, Stored]]] = []  # what was there before each write
        self._behind = APART * Here.world.chance()  # seconds by which the clock of the leader is
        self._deposed: dict[Host, tuple[dict[str, Stored], float]] = {}  # what a host is shown, and until when

    def memory(self) -> Any:
        """See ``Server``."""
        return copy.copy(self.messages), self._number

    def remember(self, memory: Any) -> None:
        """See ``Server``."""
        self.messages, self._number = memory or ({}, 0)

    def fail(self, seconds: float, kept: int, old: Any) -> None:
        """See ``Server``."""
        self._come, self._subscribed = {}, {}
        super().fail(seconds, kept, old)

    def cell(self, key: str) -> bytes | None:
        """What is in a cell."""
        last = self.messages.get(KEYS + escaped(key))
        return None if last is None or b"KV-Operation: DEL" in last.headers else last.payload

    def depose(self, host: Host, seconds: float) -> None:
        """For so long, *host* talks to a server that leads no more."""
        Here.world.tell(self.name, f"{host.name} talks to one that leads no more, for {seconds:.3f} s")
        since = Here.world.now - LONGEST_BEHIND * Here.world.chance()
        shown = next((before for at, before in self._past if at > since), self.messages)
        self._deposed[host] = dict(shown), Here.world.now + seconds

    def _shown(self, host: Host) -> dict[str, Stored] | None:
        """What a replaced leader shows to a host that talks to it."""
        shown, until = self._deposed.get(host, (None, 0.0))
        return shown if Here.world.now < until else None

    def _come_back(self, kept: int, old: Any) -> None:
        super()._come_back(kept, old)
        self._behind = APART * Here.world.chance()

    def expire(self) -> None:
        """See ``Server``: who was let in has to log in again."""
        super().expire()
        for link in self._subscribed:
            link.say(b"-ERR 'User Authentication Expired'\r\n")
            link.hang_up()
        self._subscribed = {}

    def greet(self, link: Link) -> None:
        """See ``StreamServer``."""
        link.say(INFO)

    def serve(self, data: bytes, link: Link) -> bytes:
        """See ``StreamServer``."""
        come = self._come.pop(link, b"") + data
        said = b""
        while b"\r\n" in come:
            line, _, rest = come.partition(b"\r\n")
            words = line.decode().split()
            if words[0] == "HPUB":
                head, size = int(words[-2]), int(words[-1])
                if len(rest) < size + 2:
                    break
                self._publish(link, words[1], words[2], rest[:head], rest[head:size])
                rest = rest[size + 2 :]
            elif words[0] == "SUB":
                self._subscribed.setdefault(link, {})[words[1]] = words[2]
            elif words[0] == "PING":
                said += b"PONG\r\n"
            come = rest
        if come:
            self._come[link] = come
        return said

    def _publish(self, link: Link, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        at = Here.world.now
        if subject.startswith(KEYS):
            for other, subscribed in self._subscribed.items():
                if subject in subscribed:
                    other.say(_message(subject, subscribed[subject], headers, payload))
            at += STORING * Here.world.chance()
        Here.world.at(at, self._answer, self.starts, link, subject, reply, headers, payload)

    def _answer(self, starts: int, link: Link, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        if not self.up or starts != self.starts:
            return
        shown, is_busy = self._shown(link.host), self.refuses_now()
        if subject.startswith(KEYS):
            if shown is not None:
                return
            is_done = not is_busy or (not self.denies and Here.world.chance() < DOING)
            said = self._store(subject, headers, payload) if is_done else {}
        elif ".MSG.GET." in subject:
            said = _last(self.messages if shown is None else shown, json.loads(payload)["last_by_subj"])
        else:
            moment = datetime.fromtimestamp(self.clock.wall() - self._behind, timezone.utc)
            wanted = json.loads(payload).get("subjects_filter", "\0").removesuffix(">")
            subjects = [each for each in (self.messages if shown is None else shown) if each.startswith(wanted)]
            state = {"subjects": dict.fromkeys(subjects, 1)}
            said = {
                "ts": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "config": {},
                "state": state,
                "total": len(subjects),
            }
        if is_busy:
            said = _error(503, 10008, "JetStream system temporarily unavailable")
        if is_busy and self.denies:
            said = _error(404, 10059, "stream not found")
        link.say(_message(reply, "1", b"", json.dumps(said).encode()))

    def _store(self, subject: str, headers: bytes, payload: bytes) -> dict[str, Any]:
        last = self.messages.get(subject)
        _, is_expected, rest = headers.partition(EXPECTED)
        expected, number = rest.partition(b"\r\n")[0], 0 if last is None else last.number
        if Here.world.telling and is_expected:
            done = "is done" if int(expected) == number else f"is refused: it has {number}"
            Here.world.tell(self.name, f"a write of {subject}, if it has number {expected.decode().strip()}, {done}")
        if is_expected and int(expected) != number:
            return _error(400, 10071, f"wrong last sequence: {number}")
        self._number += 1
        self._past.append((Here.world.now, dict(self.messages)))
        self.messages[subject] = Stored(self._number, headers, payload)
        return {"stream": "KV_jobs", "seq": self._number}


def _last(messages: dict[str, Stored], subject: str) -> dict[str, Any]:
    last = messages.get(subject)
    if last is None:
        return _error(404, 10037, "no message found")
    texts = [base64.b64encode(each).decode() for each in (last.payload, last.headers)]
    return {"message": {"seq": last.number, "data": texts[0], "hdrs": texts[1]}}


def _error(code: int, number: int, text: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": number, "description": text}}


def _message(subject: str, number: str, headers: bytes, payload: bytes) -> bytes:
    if not headers:
        return f"MSG {subject} {number} {len(payload)}\r\n".encode() + payload + b"\r\n"
    head = f"HMSG {subject} {number} {len(headers)} {len(headers) + len(payload)}\r\n".encode()
    return head + headers + payload + b"\r\n"
