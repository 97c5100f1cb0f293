"""Many reads in one request, which ZooKeeper has since 3.6: a request for each takes longer than all of them.

kazoo does not know it. Servers that do not know it either are asked for one thing after the other.
"""

from __future__ import annotations

from kazoo.exceptions import EXCEPTIONS, UnimplementedError
from kazoo.protocol import serialization as wire

from lockctl.errors import BackendUnavailable
from lockctl.stores.zookeeper.errors import check_rights, usable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.session import Call, Session
    from lockctl.wire.deadline import Deadline

AT_ONCE = 200  # reads in one request, or requests under way at a time
ERROR = -1  # the type of an answer that is one


class MultiRead(tuple["Any", ...]):
    """Several reads, each answered for itself, as a request of kazoo's."""

    __slots__ = ()
    type = 22

    def serialize(self) -> bytes:
        """As it is sent."""
        parts = [wire.multiheader_struct.pack(read.type, False, -1) + read.serialize() for read in self]
        return b"".join([*parts, wire.multiheader_struct.pack(ERROR, True, ERROR)])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        """The answers, in the order of the reads; one may be an exception."""
        answers: list[Any] = []
        while True:
            header, offset = wire.MultiHeader.deserialize(data, offset)
            if header.done:
                return answers
            if header.type == wire.GetData.type:
                content, offset = wire.read_buffer(data, offset)
                answers.append((content, wire.ZnodeStat._make(wire.stat_struct.unpack_from(data, offset))))
                offset += wire.stat_struct.size
            elif header.type == wire.GetChildren.type:
                (count,) = wire.int_struct.unpack_from(data, offset)
                offset += wire.int_struct.size
                names = []
                for _ in range(count):
                    name, offset = wire.read_string(data, offset)
                    names.append(name)
                answers.append(names)
            else:
                (code,) = wire.int_struct.unpack_from(data, offset)
                answers.append(EXCEPTIONS[code]())
                offset += wire.int_struct.size


def read(
    session: Session, children_of: list[str], data_of: list[str], deadline: Deadline, *, sync: str | None = None
) -> list[Any]:
    """The children of some nodes, then the data and stat of others; for a node that is not there an exception.

    With *sync*, a node, they are not older than this call. Raises as ``Session.ask``.
    """
    reads = [*[wire.GetChildren(path, None) for path in children_of], *[wire.GetData(path, None) for path in data_of]]
    answers: list[Any] = []
    for start in range(0, len(reads), AT_ONCE):
        before = [] if sync is None or start else [wire.Sync(sync)]
        answers += _ask(session, before, reads[start : start + AT_ONCE], deadline)
    check_rights(session.place, answers)
    return answers


def _ask(session: Session, before: list[Any], reads: list[Any], deadline: Deadline) -> list[Any]:
    try:
        answers = session.ask(deadline, *_calls([*before, MultiRead(reads)]))[-1]
    except BackendUnavailable:
        # an answer that is too large ends the connection
        if len(reads) == 1 or deadline.left() <= 0:
            raise
        middle = len(reads) // 2
        return [part for some in (reads[:middle], reads[middle:]) for part in _ask(session, before, some, deadline)]
    if isinstance(answers, UnimplementedError):
        return session.ask(deadline, *_calls([*before, *reads]))[len(before) :]
    return list(usable(session.place, answers, reads[0].path))


def _calls(requests: list[Any]) -> list[Call]:
    return [lambda _, request=request: request for request in requests]  # type: ignore[misc]
