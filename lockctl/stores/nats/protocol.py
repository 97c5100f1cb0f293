"""The requests for the keys of one JetStream bucket, each under a deadline, and what a refusal means."""

from __future__ import annotations

import _thread
import binascii
import os

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.driver import TimedMutex
from lockctl.names import printable
from lockctl.stores.nats.session import NO_RESPONDERS, Connection, Message
from lockctl.value import Value
from lockctl.wire.stream import Closed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.nats.address import Address
    from lockctl.wire.deadline import Deadline

PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/-")
NO_MESSAGE, NO_STREAM, NO_JETSTREAM = 10037, 10059, 10039  # the last: for this account
WRONG_SEQUENCE = (10071, 10164)
EXPECTED, DELETED = b"Nats-Expected-Last-Subject-Sequence: ", b"KV-Operation: DEL"
PAGE = 30  # keys that are asked for together
FIRST_TRY = 1.5  # seconds for an answer, after which the request is sent again
LONGER = 1.5  # times as long for each further try: a network may be slow


class Entry(Value):
    """The last message of a key: no *data* if it is absent or removed; *number* 0 if there never was one."""

    data: bytes | None
    number: int
    at: float  # when the server answered, by its clock


class Refused(ConfigError):
    """What JetStream refuses. *code* is its number."""

    def __init__(self, message: str, code: int) -> None:
        """Keep the code."""
        super().__init__(message)
        self.code = code


class Bucket:
    """One bucket, by one connection. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""

    def __init__(self, address: Address) -> None:
        """Connects when it is first used."""
        self.where = str(address)
        self.name = address.bucket
        self.config: dict[str, Any] = {}  # of the stream, as the last answer with its time tells it
        self._address = address
        self._mutex = _thread.allocate_lock()  # a connection answers one at a time
        self._kept: Connection | None = None

    def get(self, key: str, deadline: Deadline) -> Entry:
        """What a key has now, as the leader of the stream knows it."""
        answers = self._ask([self._look(key), self._info()], deadline)
        return self._entry(answers[0], self._time(answers[1]))

    def put(self, key: str, number: int | None, data: bytes | None, deadline: Deadline) -> bool:
        """Write, or remove with ``None``, if the last message is still this one, or always; whether it was done."""
        headers = b"" if number is None else EXPECTED + str(number).encode() + b"\r\n"
        if data is None:
            headers += DELETED + b"\r\n"
        (answer,) = self._ask([(self.subject(key), headers, data or b"")], deadline)
        try:
            content = self._content(answer)
        except Refused as refused:
            if refused.code in WRONG_SEQUENCE:
                return False
            raise
        if not isinstance(content.get("seq"), int):
            raise BackendUnavailable(f"{self.where}: the answer to a write is not JetStream's")
        return True

    def scan(self, prefix: str, deadline: Deadline) -> list[tuple[str, Entry]]:
        """All keys that begin so."""
        beginning, found = self.subject(""), []
        subjects = self._subjects(beginning + ">", deadline)
        keys = [name for each in subjects if (name := unescaped(each[len(beginning) :])).startswith(prefix)]
        for start in range(0, len(keys), PAGE):
            part = keys[start : start + PAGE]
            *looks, info = self._ask([*map(self._look, part), self._info()], deadline)
            at = self._time(info)
            found += [(key, self._entry(look, at)) for key, look in zip(part, looks, strict=True)]
        return [(key, entry) for key, entry in found if entry.data is not None]

    def _subjects(self, wanted: str, deadline: Deadline) -> list[str]:
        """All subjects of this form, of which an answer has 100,000 at most."""
        found: list[str] = []
        subject, headers, _ = self._info()
        while True:
            asked = _json({"subjects_filter": wanted, "offset": len(found)})
            (answer,) = self._ask([(subject, headers, asked)], deadline)
            content = self._content(answer)
            state, total = content.get("state"), content.get("total")
            page = state.get("subjects") if isinstance(state, dict) else None
            found += page or ()
            if not page or not isinstance(total, int) or len(found) >= total:
                return found

    def settings(self, deadline: Deadline) -> tuple[dict[str, Any], float]:
        """The configuration of the stream, and the time there."""
        at = self._time(self._ask([self._info()], deadline)[0])
        return self.config, at

    def subject(self, key: str) -> str:
        """Where the messages of a key are."""
        return f"$KV.{self.name}.{escaped(key)}"

    def connect(self, deadline: Deadline) -> Connection:
        """A new connection to the first server that accepts one."""
        endpoints = list(self._address.endpoints)
        start = os.urandom(1)[0] % len(endpoints)
        endpoints = endpoints[start:] + endpoints[:start]
        problem: BackendUnavailable | None = None
        for each, share in zip(endpoints, deadline.shares(len(endpoints)), strict=True):
            try:
                return Connection(self._address, each, share)
            except BackendUnavailable as failure:
                problem = failure
        raise problem or BackendUnavailable(self.where)

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        with self._mutex:
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    def _look(self, key: str) -> tuple[str, bytes, bytes]:
        asked = _json({"last_by_subj": self.subject(key)})
        return f"$JS.API.STREAM.MSG.GET.KV_{self.name}", b"", asked

    def _info(self) -> tuple[str, bytes, bytes]:
        return f"$JS.API.STREAM.INFO.KV_{self.name}", b"", b"{}"

    def _ask(self, requests: list[tuple[str, bytes, bytes]], deadline: Deadline) -> list[Message]:
        """The answers; on a connection that was kept and has ended meanwhile, all are sent again on a new one.

        So they are if there is no answer: while a leader is elected, the servers lose what they are asked, and never
        answer that. A write that is sent again changes nothing if it was done.
        """
        patience = FIRST_TRY
        with TimedMutex(self._mutex, deadline, self.where):
            while True:
                deadline.check(self.where)
                kept, self._kept = self._kept, None
                connection = kept or self.connect(deadline)
                step = deadline.sooner(patience)
                try:
                    answers = connection.ask(requests, step)
                except BaseException as failure:
                    connection.close()
                    if isinstance(failure, BackendUnavailable) and step.left() <= 0:
                        patience *= LONGER
                    elif kept is None or not isinstance(failure, Closed):
                        raise
                else:
                    self._kept = connection
                    return answers

    def _content(self, answer: Message) -> dict[str, Any]:
        if answer.headers.startswith(NO_RESPONDERS):
            raise BackendUnavailable(f"{self.where}: JetStream does not answer: it is not enabled, or has no leader")
        content = json_text.an_object(answer.payload)
        if content is None:
            raise BackendUnavailable(f"{self.where}: the answer is not JetStream's")
        error = content.get("error")
        if not isinstance(error, dict):
            return content
        code, status = error.get("err_code"), error.get("code")
        said = f"{self.where}: {printable(str(error.get('description'))[:200])}"
        if status in (500, 503) and code not in (*WRONG_SEQUENCE, NO_JETSTREAM):
            raise BackendUnavailable(said)
        if code == NO_STREAM:
            said += f": make the bucket: nats kv add {self.name} --history=1 --storage=file --replicas=3"
        if code == NO_JETSTREAM:
            said += ": enable JetStream for the account of this user, or name another user"
        raise Refused(said, code if isinstance(code, int) else 0)

    def _entry(self, answer: Message, at: float) -> Entry:
        try:
            message = self._content(answer)["message"]
            number, data = message["seq"], binascii.a2b_base64(message.get("data") or "")
            headers = binascii.a2b_base64(message.get("hdrs") or "")
        except Refused as refused:
            if refused.code == NO_MESSAGE:
                return Entry(None, 0, at)
            raise
        except (KeyError, TypeError, ValueError):
            raise BackendUnavailable(f"{self.where}: the answer is not JetStream's") from None
        if not isinstance(number, int):
            raise BackendUnavailable(f"{self.where}: the answer is not JetStream's")
        removed = b"\r\nKV-Operation: DEL" in headers or b"\r\nKV-Operation: PURGE" in headers
        return Entry(None if removed else data, number, at)

    def _time(self, answer: Message) -> float:
        """The time of the server, of an answer about the stream."""
        content = self._content(answer)
        config = content.get("config")
        self.config = config if isinstance(config, dict) else {}
        try:
            return _seconds(str(content.get("ts")))
        except ValueError:
            raise ConfigError(
                f"{self.where}: the server does not tell its time: NATS 2.10 or newer is needed"
            ) from None


def escaped(key: str) -> str:
    """A key as one part of a subject: ``=XX`` for each byte that may not be there."""
    return "".join(chr(byte) if byte in PLAIN else f"={byte:02X}" for byte in key.encode("utf-8", "surrogateescape"))


def unescaped(text: str) -> str:
    """The other way round; what lockctl did not write gives anything."""
    first, *parts = text.split("=")
    out = first.encode()
    for part in parts:
        try:
            out += bytes([int(part[:2], 16)]) + part[2:].encode()
        except ValueError:
            out += b"=" + part.encode()
    return out.decode("utf-8", "surrogateescape")


def _json(content: dict[str, str | int]) -> bytes:
    return json_text.render(content).encode()


def _seconds(text: str) -> float:
    """The time of RFC 3339 in UTC since the epoch; raises ``ValueError``."""
    from datetime import datetime, timezone

    whole, _, fraction = text.removesuffix("Z").partition(".")
    if len(whole) != 19:
        raise ValueError(text)
    year, month, day, hour, minute, second = (
        int(whole[start : start + size]) for start, size in ((0, 4), (5, 2), (8, 2), (11, 2), (14, 2), (17, 2))
    )
    moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    return moment.timestamp() + (float("0." + fraction) if fraction else 0.0)
