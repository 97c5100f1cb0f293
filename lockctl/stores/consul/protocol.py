"""The requests to a Consul agent that locks need, each under a deadline, and what its refusals mean."""

from __future__ import annotations

from lockctl import json_text
from lockctl.durations import parse_duration
from lockctl.errors import BackendUnavailable
from lockctl.stores.consul.connection import INDEX, RENEW, Connection, refusals_in
from lockctl.stores.consul.layout import Entry, is_session, quoted, read_entry
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline

LONGEST_WAIT = 15.0  # seconds of one blocking query: a dead connection is noticed soon after
SPREAD = 1 / 16  # Consul adds up to this part of a wait, so that not all return at once
ANSWER_LIMIT = 5.0  # seconds after that
MOST_OPERATIONS = 64  # of one transaction


class Outcome(Value):
    """What became of a transaction: all of it (*results*) or nothing (*refusals*: operation -> reason)."""

    results: tuple[Entry | None, ...] | None
    refusals: dict[int, str]


class Agent(Connection):
    """One agent. Methods raise ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""

    def get(self, key: str, deadline: Deadline) -> Entry | None:
        """The entry of a key as the leader has it now; ``None``: there is none."""
        return self._entry(self.ask("GET", f"/v1/kv/{quoted(key)}", deadline, "consistent"))

    def renew_and_read(
        self, session: str | None, wanted: tuple[tuple[str, bool], ...], beside: tuple[str, ...], deadline: Deadline
    ) -> tuple[bool, list[list[Entry]]]:
        """In one round trip: whether *session* was there to be renewed, and then the entries of some keys.

        Each key with whether all that begin with it are *wanted*, too. Those of the keys *beside* that there are come
        last, as they were at one moment.
        """
        looks = [
            ("GET", f"/v1/kv/{quoted(key)}", "recurse&consistent" if below else "consistent", b"")
            for key, below in wanted
        ]
        renewal = [] if session is None else [("PUT", RENEW + session, "", b"")]
        answers = self.ask_all((*renewal, *looks, ("PUT", "/v1/txn", "", _body(_looks(beside)))), deadline)
        lives = session is not None and self._renewed(session, answers[0], deadline) is not None
        found = []
        for (_, below), answer in zip(wanted, answers[len(renewal) : -1], strict=True):
            one = None if below else self._entry(answer)
            found.append(self._entries(answer) if below else [] if one is None else [one])
        found.append(_those_of(self._outcome(answers[-1]), beside))
        return lives, found

    def watch(self, key: str, index: int, deadline: Deadline, span: float = LONGEST_WAIT) -> tuple[Entry | None, int]:
        """The same, as soon as it has changed since *index*, or after *span* seconds; and the index it is of."""
        answer, index = self._watch(key, "consistent", index, deadline, span)
        return self._entry(answer), index

    def watch_tree(
        self, prefix: str, index: int, deadline: Deadline, span: float = LONGEST_WAIT
    ) -> tuple[list[Entry], int]:
        """All entries whose keys begin with *prefix*, as soon as one has changed or gone; else as :meth:`watch`."""
        answer, index = self._watch(prefix, "recurse&consistent", index, deadline, span)
        return self._entries(answer), index

    def _watch(self, key: str, query: str, index: int, deadline: Deadline, span: float) -> tuple[Response, int]:
        span = min(deadline.left(), span, LONGEST_WAIT)
        step = deadline.sooner(span * (1 + SPREAD) + ANSWER_LIMIT)
        query = f"{query}&index={index}&wait={max(1, int(span * 1000))}ms"
        answer = self.ask("GET", f"/v1/kv/{quoted(key)}", step, query)
        digits = answer.headers[INDEX]
        seen = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
        # an index that went back is of another history, as after a restore
        return answer, seen if seen >= index else 0

    def tree(self, prefix: str, deadline: Deadline) -> list[Entry]:
        """All entries whose keys begin with *prefix*, as they were at one moment."""
        return self._entries(self.ask("GET", f"/v1/kv/{quoted(prefix)}", deadline, "recurse&consistent"))

    def read(self, keys: list[str], deadline: Deadline) -> list[Entry]:
        """The entries of those of *keys* that there are, as they were at one moment."""
        return _those_of(self.transact(_looks(keys), deadline, "consistent"), keys)

    def keys(self, prefix: str, deadline: Deadline, separator: str = "") -> list[str]:
        """All keys that begin with *prefix*, each cut after the first *separator* behind it, and no two the same."""
        query = f"keys&separator={quoted(separator)}" if separator else "keys"
        answer = self.ask("GET", f"/v1/kv/{quoted(prefix)}", deadline, query)
        return [] if answer.status == 404 else [key for key in self.a_list(answer) if isinstance(key, str)]

    def transact(self, operations: list[dict[str, Any]], deadline: Deadline, query: str = "") -> Outcome:
        """Do all of *operations* in one step of the cluster, or none of them."""
        return self._outcome(self.ask("PUT", "/v1/txn", deadline, query, body=_body(operations)))

    def renew_and_transact(self, session: str, operations: list[dict[str, Any]], deadline: Deadline) -> Outcome:
        """Renew a session, and then do *operations* with it, in one round trip: refused if it has ended."""
        requests = (("PUT", RENEW + session, "", b""), ("PUT", "/v1/txn", "", _body(operations)))
        renewal, answer = self.ask_all(requests, deadline)
        lives = self._renewed(session, renewal, deadline) is not None
        return self._outcome(answer) if lives else Outcome(None, {})

    def _outcome(self, answer: Response) -> Outcome:
        content = self.an_object(answer)
        if answer.status == 200:
            if "Results" not in content:
                raise self.strange(answer)
            results = content["Results"]
            pieces = results if isinstance(results, list) else []
            return Outcome(tuple(read_entry(each.get("KV")) for each in pieces if isinstance(each, dict)), {})
        refusals = refusals_in(answer)
        if any("ermission denied" in reason for reason in refusals.values()):
            raise self.forbidden(answer)
        return Outcome(None, refusals)

    def create_session(self, name: str, ttl: float, delay: float, deadline: Deadline) -> str:
        """A new session that ends *ttl* seconds after its last renewal, or later. Its id.

        What it holds when it ends, for whatever reason, stays closed for *delay* seconds more.
        """
        body = {
            "Name": name,
            "TTL": f"{milliseconds(ttl)}ms",
            "LockDelay": f"{milliseconds(delay)}ms",
            "Behavior": "delete",  # as `consul lock` does when it ends
            # without these it would end whenever the agent's health check fails, before its ttl
            "NodeChecks": [],
            "ServiceChecks": [],
            "Checks": [],  # what they were called before Consul 1.7
        }
        answer = self.ask("PUT", "/v1/session/create", deadline, body=json_text.render(body).encode())
        session = self.an_object(answer).get("ID")
        if not is_session(session):
            raise self.strange(answer)
        return str(session)

    def renew_session(self, session: str, deadline: Deadline) -> float | None:
        """How many seconds the session lives at least from now; ``None``: it has ended."""
        return self._renewed(session, self.ask("PUT", RENEW + session, deadline), deadline)

    def renew_and_get(
        self, session: str, keys: tuple[str, ...], deadline: Deadline
    ) -> tuple[float | None, list[Entry | None]]:
        """Renew a session and then look at *keys*, in one round trip: as :meth:`renew_session` and :meth:`get`."""
        answers = self.ask_all((("PUT", RENEW + session, "", b""), *_gets(keys)), deadline)
        return self._renewed(session, answers[0], deadline), [self._entry(answer) for answer in answers[1:]]

    def get_in_turn(self, keys: tuple[str, ...], deadline: Deadline) -> list[Entry | None]:
        """As :meth:`get` of each of *keys*, one after the other, in one round trip."""
        return [self._entry(answer) for answer in self.ask_all(_gets(keys), deadline)]

    def _renewed(self, session: str, answer: Response, deadline: Deadline) -> float | None:
        if answer.status == 404:
            if session.encode() not in answer.body:
                raise self.strange(answer)  # anything on the way may say 404
            # so does a server that starts, of a session that it has not read yet; a consistent read waits for that
            if self.describe_session(session, deadline):
                raise BackendUnavailable(f"{self.where}: the session is there, but was not found for its renewal")
            return None
        try:
            return parse_duration(str(self.a_list(answer)[0]["TTL"]))
        except (IndexError, KeyError, TypeError, ValueError):
            raise self.strange(answer) from None

    def destroy_session(self, session: str, deadline: Deadline, folder: str = "") -> list[str]:
        """End a session, and with it every lock that is held by it. That it has ended already is no error.

        In the same round trip: the keys of a *folder*, if they can be read.
        """
        listing = f"/v1/kv/{quoted(folder)}"
        looks = (("GET", listing, "keys", b""),) if folder else ()
        answer, *listed = self.ask_all((("PUT", f"/v1/session/destroy/{session}", "", b""), *looks), deadline, 1)
        if answer.status != 200 or answer.body.strip() != b"true":
            raise self.strange(answer)
        try:
            return [key for each in listed if each.status == 200 for key in self.a_list(each) if isinstance(key, str)]
        except BackendUnavailable:
            return []

    def describe_session(self, session: str, deadline: Deadline) -> dict[str, Any]:
        """What Consul knows of a session; empty: nothing."""
        answer = self.ask("GET", f"/v1/session/info/{quoted(session)}", deadline, "consistent")
        if INDEX not in answer.headers:
            raise self.strange(answer)
        found = self.a_list(answer)
        return found[0] if found and isinstance(found[0], dict) else {}

    def _entry(self, answer: Response) -> Entry | None:
        if answer.status == 404:
            return None
        entry = read_entry((self.a_list(answer) or [None])[0])
        if entry is None:
            raise self.strange(answer)
        return entry

    def _entries(self, answer: Response) -> list[Entry]:
        return [] if answer.status == 404 else [entry for entry in map(read_entry, self.a_list(answer)) if entry]


def _gets(keys: tuple[str, ...]) -> tuple[tuple[str, str, str, bytes], ...]:
    return tuple([("GET", f"/v1/kv/{quoted(key)}", "consistent", b"") for key in keys])


def _body(operations: list[dict[str, Any]]) -> bytes:
    """A transaction of these operations."""
    return json_text.render([{"KV": operation} for operation in operations]).encode()


def _looks(keys: Iterable[str]) -> list[dict[str, Any]]:
    """The operations that read *keys*; not "get": one key that there is not would refuse all."""
    return [{"Verb": "get-tree", "Key": key} for key in keys]


def _those_of(outcome: Outcome, keys: Iterable[str]) -> list[Entry]:
    """The entries of *keys* alone: a key that begins with one of them was read, too."""
    wanted = frozenset(keys)
    return [each for each in outcome.results or () if each is not None and each.key in wanted]


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, not fewer than asked for."""
    return int(seconds * 1000 + 0.999)
