"""Slots: the semaphore of ``consul lock -n``, of which some holders may be ours and some another program's.

As in the semaphore of Consul's Go API, the key ``PREFIX/.lock`` says how many may hold it and names the sessions that
do. Each of them has a key ``PREFIX/SESSION`` as well: who is named but has no such key has ended without leaving. As
long as Consul gives that key to nobody, because of its lock delay, the job of such a holder may still run: it counts,
and stays named. After that whoever changes the first key next leaves it out. Both keys are read as of one moment, and
the first is only changed if it still is as it was read. So nobody gets in beyond the limit, whoever ended meanwhile.

Ours are written in one step with their name and with the counter of the lock, so that no two have the same token.
"""

from __future__ import annotations

from lockctl import documents, json_text
from lockctl.stores.consul import layout as entries
from lockctl.stores.consul.layout import SEMAPHORE_FLAGS, SUFFIX, Entry, HolderRecord, encoded, lock
from lockctl.stores.consul.protocol import MOST_OPERATIONS, Agent
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Claim
    from lockctl.wire.deadline import Deadline

TRIES = 8  # times that the key changes meanwhile before it is left to the next to come
MOST = 1 << 31  # a limit beyond this is none


class Semaphore(Value):
    """A semaphore as it was at one moment."""

    path: str
    entry: Entry | None  # of the key that names the holders, whatever it is now
    limit: int  # 0: it does not say
    living: dict[str, Entry]  # session of a holder -> its own key
    ended: tuple[str, ...]  # sessions that are named and have none: they did not leave

    @property
    def is_taken(self) -> bool:
        """Whether somebody has it as a lock for one."""
        return self.entry is not None and self.entry.session is not None

    def own(self, claim: Claim) -> tuple[str, HolderRecord] | None:
        """The session and the record of a claim that has a slot already."""
        for session, entry in self.living.items():
            record = entries.read_holder(entry)
            if record is not None and record.owner == claim.owner:
                return session, record
        return None

    def is_full(self, claim: Claim) -> bool:
        """Whether *claim* is kept out; raises ``ConfigError`` when those inside say another number of slots."""
        if self.entry is not None and self.entry.session is not None:
            record = entries.read_holder(self.entry)
            if record is not None:
                documents.check_agrees(self.path, documents.slots(record.document), claim)
            return True
        if not self.living:
            return False
        # one holder and a semaphore of another program exclude each other, as `consul lock` does with and without -n
        if claim.slots > 1 or any(entries.read_holder(entry) is not None for entry in self.living.values()):
            documents.check_agrees(self.path, self.limit, claim)
        return claim.slots == 1 or len(self.living) >= claim.slots

    def is_open(self, claim: Claim) -> bool:
        """Whether an attempt of *claim* would not be refused, be it an error."""
        if self.is_taken:
            return False
        if not self.living or self.own(claim) is not None:
            return True
        return claim.slots > 1 and (self.limit != claim.slots or len(self.living) < claim.slots)

    def key_of(self, session: str) -> str:
        """The key that a holder has for itself."""
        return f"{self.path}/{session}"

    def closed(self, agent: Agent, session: str, deadline: Deadline) -> tuple[str, ...]:
        """Those who ended without leaving, and whose keys *session* cannot have: their lock delay is not over."""
        found: list[str] = []
        for start in range(0, len(self.ended), MOST_OPERATIONS // 2):
            piece = self.ended[start : start + MOST_OPERATIONS // 2]
            operations: list[dict[str, Any]] = []
            for each in piece:
                key = self.key_of(each)
                operations += [lock(key, b"", SEMAPHORE_FLAGS, session), {"Verb": "delete", "Key": key}]
            refusals = agent.transact(operations, deadline).refusals
            found += [each for number, each in enumerate(piece) if 2 * number in refusals]
        return tuple(found)

    def entering(self, slots: int, session: str, document: bytes, closed: tuple[str, ...]) -> list[dict[str, Any]]:
        """The operations that let *session* in beside the living and those of *closed*, if nothing has changed.

        *document* is the value of its own key.
        """
        key = self.path + SUFFIX
        value = _describe(slots, [*self.living, *closed, session])
        return [
            entries.unchanged(key, self.entry),
            # nobody has it in between, but only who takes a key must wait for its lock delay
            lock(key, value, SEMAPHORE_FLAGS, session),
            {**lock(key, value, SEMAPHORE_FLAGS, session), "Verb": "unlock"},
            lock(self.key_of(session), document, SEMAPHORE_FLAGS, session),
        ]

    def leaving(self, session: str, closed: tuple[str, ...]) -> list[dict[str, Any]]:
        """The operations that take out *session* and all who ended but those of *closed*; none: nothing is to be done.

        The last one removes the key: with the flags of a semaphore no `consul lock` for one would ever take it.
        """
        if self.entry is None or self.is_taken or self.entry.flags != SEMAPHORE_FLAGS:
            return []
        change = {"Key": self.entry.key, "Index": self.entry.index}
        staying = [each for each in (*self.living, *closed) if each != session]
        operations: list[dict[str, Any]] = []
        if not staying:
            operations.append({"Verb": "delete-cas", **change})
        elif session in self.living and self.limit:
            value = encoded(_describe(self.limit, staying))
            operations.append({"Verb": "cas", **change, "Value": value, "Flags": SEMAPHORE_FLAGS})
        if session in self.living:
            operations.append({"Verb": "delete", "Key": self.key_of(session)})
        return operations


def read(agent: Agent, path: str, deadline: Deadline) -> Semaphore:
    """The semaphore at *path* as it is now."""
    return checked(agent, semaphore(agent.tree(path + "/", deadline), path), deadline)


def checked(agent: Agent, found: Semaphore, deadline: Deadline) -> Semaphore:
    """The same semaphore; refused without the right to read, by which all look ended."""
    if found.ended:
        agent.get(found.key_of(found.ended[0]), deadline)
    return found


def semaphore(found: list[Entry], path: str) -> Semaphore:
    """The semaphore in all entries below *path*, as of one moment."""
    there = {entry.key: entry for entry in found}
    entry = there.get(path + SUFFIX)
    if entry is None or entry.session is not None or entry.flags != SEMAPHORE_FLAGS:
        return Semaphore(path, entry, 0, {}, ())
    limit, named = _parse(entry.value)
    living: dict[str, Entry] = {}
    for session in named:
        own = there.get(f"{path}/{session}")
        if own is not None and own.session == session:
            living[session] = own
    return Semaphore(path, entry, limit, living, tuple(session for session in named if session not in living))


def leave(agent: Agent, path: str, session: str, deadline: Deadline) -> None:
    """Give back what *session* may have. Its end would do: then `consul lock` cannot use the key until another has."""
    for _ in range(TRIES):
        found = read(agent, path, deadline)
        operations = found.leaving(session, found.closed(agent, session, deadline))
        if not operations or agent.transact(operations, deadline).results is not None:
            return


def keys_of_slot(path: str, session: str) -> tuple[str, str]:
    """The keys that say whether a holder is still inside: for :func:`slot`, looked at in this order.

    Who was left out never comes back, so that the two need not be of one moment.
    """
    return f"{path}/{session}", path + SUFFIX


def slot(found: list[Entry | None], path: str, session: str) -> Entry | None:
    """The key of a holder that is still inside; ``None``: it is not."""
    return semaphore([entry for entry in found if entry is not None], path).living.get(session)


def _describe(limit: int, sessions: list[str]) -> bytes:
    """The value that Consul's Go API writes."""
    return json_text.render({"Limit": limit, "Holders": dict.fromkeys(sessions, True)}).encode()


def _parse(value: bytes) -> tuple[int, list[str]]:
    """The limit and the sessions in such a value; 0 and none in any other."""
    content = json_text.an_object(value) or {}
    limit, named = documents.whole(content.get("Limit")), content.get("Holders")
    sessions = [name for name in named if entries.is_session(name)] if isinstance(named, dict) else []
    return limit if limit is not None and 0 < limit < MOST else 0, sessions
