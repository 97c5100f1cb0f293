"""The nodes of ZooKeeper, what a write does with them, and how requests and answers are packed (jute)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, PING = 1, 2, 3, 4, 5, 8, 9, 11
CHILDREN2, CHECK, MULTI, CREATE2, MULTI_READ, CLOSE = 12, 13, 14, 15, 22, -11
WRITES = (CREATE, CREATE2, DELETE, SET, MULTI, CLOSE)
EPHEMERAL, SEQUENTIAL = 1, 2  # flags of a new node
OK, AFTER_FAILURE = 0, -2  # what the other parts of a transaction say that was refused
NO_NODE, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY = -101, -103, -108, -110, -111
SESSION_EXPIRED = -112
ANY = -1  # a version
INT, LONG, HEADER = struct.Struct("!i"), struct.Struct("!q"), struct.Struct("!iqi")
PART, STAT = struct.Struct("!iBi"), struct.Struct("!qqqqiiiqiiq")


class Refused(Exception):
    """A request that fails."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Node(NamedTuple):
    """One node. Times in milliseconds of the leader's clock."""

    data: bytes
    created: int  # the transaction
    modified: int
    created_at: int
    modified_at: int
    version: int = 0
    made: int = 0  # the number of the next sequential child: all that it ever had, and those of its first number
    owner: int = 0  # the session with which it goes
    children: tuple[str, ...] = ()
    changed: int = 0  # the last transaction that made or removed a child

    def stat(self) -> bytes:
        """What is told of it."""
        count = len(self.children)
        return STAT.pack(
            self.created,
            self.modified,
            self.created_at,
            self.modified_at,
            self.version,
            turned(2 * self.made - count),
            0,
            self.owner,
            len(self.data),
            count,
            self.changed,
        )


class Reader:
    """A packed request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next numbers."""
        found: tuple[int, ...] = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def number(self) -> int:
        """The next number of 32 bits."""
        return self.take(INT)[0]

    def flag(self) -> bool:
        """The next byte."""
        self._at += 1
        return bool(self._data[self._at - 1])

    def content(self) -> bytes:
        """The next bytes, of which the length is told."""
        length = max(0, self.number())
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        """The next text."""
        return self.content().decode()


def turned(count: int) -> int:
    """A counter of 32 bits with a sign, as it is after its turn."""
    return (count + 2**31) % 2**32 - 2**31


def packed(content: bytes | str) -> bytes:
    """Bytes, or a text, behind their length."""
    data = content.encode() if isinstance(content, str) else content
    return INT.pack(len(data)) + data


def parent(path: str) -> str:
    """The node above."""
    return path.rpartition("/")[0] or "/"


class Change:
    """One transaction: what it makes of some nodes. Operations raise ``Refused``."""

    first = 0  # the number of the first sequential child of a node that is made

    def __init__(self, before: Mapping[str, Node], number: int, at: int, session: int) -> None:
        self._before = before
        self._number, self._at, self._session = number, at, session
        self.after: dict[str, Node | None] = {}

    def node(self, path: str) -> Node:
        """As it is now."""
        found = self.after[path] if path in self.after else self._before.get(path)
        if found is None:
            raise Refused(NO_NODE)
        return found

    def do(self, kind: int, asked: Reader) -> bytes:
        """One operation, and what is answered to it."""
        if kind in (CREATE, CREATE2):
            path = self._create(asked)
            return packed(path) + (self.node(path).stat() if kind == CREATE2 else b"")
        path = asked.text()
        if kind == SET:
            return self._set(path, asked.content(), asked.number())
        version = asked.number()
        node = self.node(path)
        if version not in (ANY, node.version):
            raise Refused(BAD_VERSION)
        if kind == DELETE:
            if node.children:
                raise Refused(NOT_EMPTY)
            self.remove(path)
        return b""

    def _create(self, asked: Reader) -> str:
        path, data = asked.text(), asked.content()
        for _ in range(asked.number()):
            asked.number(), asked.content(), asked.content()
        flags = asked.number()
        above = parent(path)
        there = self.node(above)
        if flags & SEQUENTIAL:
            path += f"{turned(there.made):010d}"
        if there.owner:
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        try:
            self.node(path)
        except Refused:
            pass
        else:
            raise Refused(NODE_EXISTS)
        children = (*there.children, path.rpartition("/")[2])
        self.after[above] = there._replace(made=there.made + 1, children=children, changed=self._number)
        owner = self._session if flags & EPHEMERAL else 0
        times = self._number, self._number, self._at, self._at
        self.after[path] = Node(data, *times, made=self.first, owner=owner, changed=self._number)
        return path

    def _set(self, path: str, data: bytes, version: int) -> bytes:
        node = self.node(path)
        if version not in (ANY, node.version):
            raise Refused(BAD_VERSION)
        node = node._replace(data=data, modified=self._number, modified_at=self._at, version=node.version + 1)
        self.after[path] = node
        return node.stat()

    def remove(self, path: str) -> None:
        """Without a question."""
        above, name = self.node(parent(path)), path.rpartition("/")[2]
        children = tuple([each for each in above.children if each != name])
        self.after[parent(path)] = above._replace(children=children, changed=self._number)
        self.after[path] = None

    def multi(self, asked: Reader) -> bytes:
        """All of some operations, or none, and what is answered to each."""
        answers: list[tuple[int, bytes]] = []
        failure, failed_at = OK, 0
        while True:
            kind, is_end, _ = asked.take(PART)
            if is_end:
                break
            start = len(answers)
            try:
                answers.append((kind, self._part(kind, asked, is_void=failure != OK)))
            except Refused as refusal:
                failure, failed_at = refusal.code, start
                answers.append((kind, b""))
        if failure != OK:
            self.after = {}
            codes = [OK if number < failed_at else AFTER_FAILURE for number in range(len(answers))]
            codes[failed_at] = failure
            answers = [(-1, INT.pack(code)) for code in codes]
        end = PART.pack(-1, True, -1)
        return b"".join([PART.pack(kind, False, _code(kind, answer)) + answer for kind, answer in answers]) + end

    def _part(self, kind: int, asked: Reader, *, is_void: bool) -> bytes:
        if not is_void:
            return self.do(kind, asked)
        self._skip(kind, asked)
        return b""

    @staticmethod
    def _skip(kind: int, asked: Reader) -> None:
        asked.content()
        if kind in (CREATE, CREATE2):
            asked.content()
            for _ in range(asked.number()):
                asked.number(), asked.content(), asked.content()
        elif kind == SET:
            asked.content()
        asked.number()


def _code(kind: int, answer: bytes) -> int:
    return INT.unpack(answer)[0] if kind == -1 else 0


def look(nodes: Mapping[str, Node], kind: int, path: str) -> bytes:
    """What is answered to a read; raises ``Refused``."""
    node = nodes.get(path)
    if node is None:
        raise Refused(NO_NODE)
    if kind == GET:
        return packed(node.data) + node.stat()
    if kind == EXISTS:
        return node.stat()
    names = INT.pack(len(node.children)) + b"".join(map(packed, node.children))
    return names + (node.stat() if kind == CHILDREN2 else b"")


def read_all(nodes: Mapping[str, Node], asked: Reader) -> bytes:
    """What is answered to many reads in one request."""
    answers = b""
    while True:
        kind, is_end, _ = asked.take(PART)
        if is_end:
            return answers + PART.pack(-1, True, -1)
        path = asked.text()
        asked.flag()
        try:
            answers += PART.pack(kind, False, 0) + look(nodes, kind, path)
        except Refused as refusal:
            answers += PART.pack(-1, False, refusal.code) + INT.pack(refusal.code)
