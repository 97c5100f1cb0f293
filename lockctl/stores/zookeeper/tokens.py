"""The record beside a lock, ``ROOT/.kept/NAME``: the counter of its tokens, and the hold of its last holder.

Its data are ``{"last":N}`` with the last token, or the document of a hold (:mod:`lockctl.stores.zookeeper.hold`) with
``last`` in it. Each grant raises the counter in the transaction that makes the holder's node, on condition of the
version of the record. So tokens rise in the order of these transactions, and no two are the same; and whoever gets the
lock has seen the record as it was. A counter that is damaged is 0: then the clock alone counts. One that is missing
begins above the floor, the same data in ``ROOT/.kept``, which is raised above every counter that is removed.

The versions of a record that was removed and made again begin anew. So the floor is written whenever a counter is
removed, and each grant is on condition that it is as it was before the record was read: then that is the same record.
"""

from __future__ import annotations

import math

from lockctl import documents
from lockctl.model import next_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.address import Place
    from lockctl.stores.zookeeper.protocol import Requests

MISSING = -1  # the version of a record that there is not
EPOCH = 32  # bits of the number of a transaction; those above them number the leaders
HEAD, TAIL = b'{"last":', b"}"
DIGITS = 19  # at most, of a token
LARGEST = 1 << 62  # of a counter: more is rubbish, and what follows would fit into no database


class Record:
    """A record as it was seen."""

    __slots__ = ("data", "floor", "last", "leader", "until", "version")

    def __init__(self, data: bytes = b"", stat: Any = None) -> None:
        """*data* and *stat* of the node; without them, there is none."""
        self.data = data
        self.version: int = MISSING if stat is None else stat.version
        self.leader: int = 0 if stat is None else stat.mzxid >> EPOCH  # the number of the one who wrote it
        self.floor: Record | None = None  # as it was seen before this record
        self.until = 0  # when the hold ends, in milliseconds of the leader's clock; 0: there is none
        digits = data[len(HEAD) : -len(TAIL)]
        if data.startswith(HEAD) and data.endswith(TAIL) and digits.isdigit() and len(digits) <= DIGITS:
            self.last = _counter(int(digits))  # as usual, without the time that it takes to load a parser
            return
        content = documents.an_object(data)
        self.last = _counter(None if content is None else content.get("last"))
        if content is None or not documents.text(content.get("owner")):
            return
        hold, known = documents.seconds(content.get("hold")), documents.whole(content.get("until"))
        if hold:
            self.until = stat.mtime + 1 + math.ceil(hold * 1000) if known is None else known

    def next_token(self, now: float) -> int:
        """The token after the last one, on a host whose clock says *now*."""
        return next_token(self.floor.last if self.floor is not None and self.version == MISSING else self.last, now)

    def raised(self, token: int, now: int) -> bytes:
        """The data with *token* as the last one; a hold stays as it is unless it is over at *now*, as `until` is."""
        if self.until <= now:
            return plain(token)
        from lockctl import json_text

        content = documents.an_object(self.data) or {}
        hold: dict[str, object] = {name: each for name, each in content.items() if isinstance(each, (str, int, float))}
        hold["command"] = [word for word in documents.words(content.get("command")) or () if isinstance(word, str)]
        hold["labels"] = dict(documents.labels(content.get("labels")))
        return json_text.render({**hold, "last": token, "until": self.until}).encode()

    def after(self, token: int) -> Record:
        """The record after it was raised to *token*."""
        raised = Record()
        raised.last, raised.version = token, self.version + 1
        return raised

    @property
    def written_version(self) -> int:
        """As `version`; of a node that there is not, the one that it has when it is made, until somebody writes it."""
        return max(self.version, 0)

    def write(self, client: Requests, path: str, data: bytes) -> Any:
        """The part of a transaction by which the record at *path* gets these data, if it is still as it was seen."""
        if self.version == MISSING:
            return client.create(path, data)
        return client.put(path, data, self.version)


def plain(token: int) -> bytes:
    """The data of a record without a hold."""
    return HEAD + str(token).encode() + TAIL


def read(answer: Any) -> Record | None:
    """The record in an answer to a request for data and stat; ``None``: the answer is another failure."""
    if isinstance(answer, Exception):
        from kazoo.exceptions import NoNodeError

        return Record() if isinstance(answer, NoNodeError) else None
    return Record(*answer)


def known(place: Place, answer: Any, path: str) -> Record:
    """As :func:`read`, of the node at *path*; raises ``BackendUnavailable`` for another failure."""
    record = read(answer)
    if record is None:
        from lockctl.stores.zookeeper.errors import refusal

        raise refusal(place, answer, path)
    return record


def is_other(answer: Any) -> bool:
    """Whether :meth:`Record.write` was refused because the record is not as it was seen, or nothing is above it."""
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    return isinstance(answer, (BadVersionError, NodeExistsError, NoNodeError))


def is_reason(answer: Any) -> bool:
    """Whether this answer to a part of a transaction says why all of it was refused."""
    from kazoo.exceptions import RolledBackError, RuntimeInconsistency

    return isinstance(answer, Exception) and not isinstance(answer, (RolledBackError, RuntimeInconsistency))


def token_in(data: bytes) -> int | None:
    """The token in the document of a holder; ``None``: an older lockctl or another program has written it."""
    document = documents.read(data.partition(b"\n")[0])
    return None if document is None else _counter(document.get("token")) or None


def _counter(content: object) -> int:
    number = documents.whole(content)
    return number if number is not None and 0 < number < LARGEST else 0
