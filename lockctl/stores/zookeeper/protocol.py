"""Requests of ZooKeeper, as kazoo writes and reads them on the wire.

Of kazoo, its records, errors and rights are used, and not its client: that has threads, each answer passes through
three of them, and none of its waits has a time limit. Checked with kazoo 2.10 and 2.11.
"""

from __future__ import annotations

from kazoo.exceptions import EXCEPTIONS, AuthFailedError, SystemZookeeperError

from lockctl.lazy import Lazy, StandIns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.zookeeper.address import Place

ANY = -1  # the version of a node that is not compared
EPHEMERAL, SEQUENCE = 1, 2
PING, TOLD, LOGIN = -2, -1, -4  # numbers of what is no answer to a request
DELETED = 2  # the event of a watch
SESSION_REQUIRES_AUTH = -124  # an error that kazoo does not know
QUOTA_EXCEEDED = -125  # one that older kazoos do not know, and that may be inside of an answer
PASSWORD = bytes(16)  # of a session that there is not yet

EXCEPTIONS.setdefault(QUOTA_EXCEEDED, SystemZookeeperError)


class Base64(Lazy):
    """Stands in for ``base64``, of which kazoo takes one function when it is imported."""

    def b64encode(self, data: bytes) -> bytes:
        """As ``base64.b64encode``."""
        encoded: bytes = self.__getattr__("b64encode")(data)
        return encoded


with StandIns(Lazy("hashlib"), Base64("base64")):  # for digests of passwords, which are the servers' business
    from kazoo.protocol import serialization as wire
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE


class CloseSession(wire.Close):  # type: ignore[misc]
    """The end of a session, with an answer."""

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> bool:
        """The answer has no content."""
        return True


class Requests:
    """What can be asked of a server. Each method makes a request; those for writing are good for transactions, too."""

    def __init__(self, place: Place) -> None:
        """New nodes belong to the user of the *place*, if it has one."""
        self._acl = OPEN_ACL_UNSAFE if place.user is None else CREATOR_ALL_ACL
        self.login = None if place.user is None else wire.Auth(0, "digest", f"{place.user}:{place.password}")

    def hello(self, last_zxid: int, timeout: float, session: int, password: bytes) -> Any:
        """The first thing to be said on a connection; *session* 0 is a new one."""
        return wire.Connect(0, last_zxid, round(timeout * 1000), session, password, False)

    def close(self) -> Any:
        """End the session with all that belongs to it."""
        return CloseSession()

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, with_stat: bool = False
    ) -> Any:
        """Make a node; the answer is its path, *with_stat* beside its stat."""
        kind = wire.Create2 if with_stat else wire.Create
        return kind(path, data, self._acl, EPHEMERAL * ephemeral + SEQUENCE * sequence)

    def delete(self, path: str, version: int = ANY) -> Any:
        """Remove a node."""
        return wire.Delete(path, version)

    def put(self, path: str, data: bytes, version: Any = ANY) -> Any:
        """Write the data of a node; the answer is its stat."""
        return wire.SetData(path, data, version)

    def check(self, path: str, version: Any) -> Any:
        """Whether a node has this version, in a transaction."""
        return wire.CheckVersion(path, version)

    def transaction(self, *parts: Any) -> Any:
        """All or nothing. The answer is one for each part, of which some are exceptions if nothing was done."""
        return wire.Transaction(parts)

    def get(self, path: str, *, watch: bool = False) -> Any:
        """Data and stat of a node; *watch* tells of their next change."""
        return wire.GetData(path, watch)

    def children(self, path: str, *, watch: bool = False) -> Any:
        """The names of the nodes below one; *watch* tells of their next change, and of the end of that one."""
        return wire.GetChildren(path, watch)

    def exists(self, path: str) -> Any:
        """The stat of a node."""
        return wire.Exists(path, False)

    def rights(self, path: str) -> Any:
        """The ACL of a node, and its stat."""
        return wire.GetACL(path)

    def sync(self, path: str) -> Any:
        """Have the server know all that the leader knows now."""
        return wire.Sync(path)


def framed(content: bytes) -> bytes:
    """What goes on the wire for one message."""
    return len(content).to_bytes(4, "big") + content


def numbered(number: int, request: Any) -> bytes:
    """The message of a request."""
    return framed(wire.int_int_struct.pack(number, request.type) + request.serialize())


def ping() -> bytes:
    """The message that keeps a session alive."""
    return framed(wire.int_int_struct.pack(PING, wire.Ping.type))


def answer(request: Any, error: int, content: bytes, offset: int) -> Any:
    """What became of a request: an exception if there was an *error*. Raises for what is no answer."""
    if error == SESSION_REQUIRES_AUTH:
        return AuthFailedError()
    if error:
        return EXCEPTIONS[error]() if error in EXCEPTIONS else SystemZookeeperError()
    return request.deserialize(content, offset)


def header(content: bytes) -> tuple[int, int, int, int]:
    """Number, transaction and error of a message that came, and where its content begins."""
    number, zxid, error = wire.reply_header_struct.unpack_from(content)
    return number, zxid, error, wire.reply_header_struct.size


def event(content: bytes, offset: int) -> tuple[int, str]:
    """What has happened to a node that is watched."""
    told, _ = wire.Watch.deserialize(content, offset)
    return told.type, told.path


def welcome(content: bytes) -> tuple[int, int, bytes]:
    """Milliseconds of the session, its number and password; no milliseconds: it has ended."""
    said, _ = wire.Connect.deserialize(content, 0)
    return said.time_out, said.session_id, said.passwd
