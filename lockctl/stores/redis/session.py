"""One client of one Redis server: a connection that is made when it is needed, and thrown away when in doubt."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable
from lockctl.stores.redis.errors import code_of, refusal, refused_authentication
from lockctl.wire.resp import Connection, ReplyError
from lockctl.wire.stream import Closed, Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.stores.redis.address import Login, Watched
    from lockctl.stores.redis.scripts import Script
    from lockctl.wire.deadline import Deadline, Steps
    from lockctl.wire.resp import Reply

    Command = tuple[bytes | str | int, ...]
    Words = list[bytes | str | int]  # what a script is given
    Calls = list[tuple[tuple[str, ...], Words]]  # of a script: keys and words

FIRST_TRY = 1.5  # seconds for a greeting of the server that sentinels name, after which they are asked again
LONGER = 1.5  # times as long for each further try: a network may be slow
NO_PRIMARY = "the sentinels name a server that is no primary (yet)"


class Session:
    """Requests to one server. After any failure the next one uses a new connection.

    A request whose connection turns out to have been closed while it was idle is sent again once.
    """

    def __init__(self, place: Endpoint | Watched, login: Login, prefix: str = "") -> None:
        """Nothing is opened yet. *prefix* is that of the keys of locks."""
        self.prefix = prefix
        self.where = place.where
        self._place = place
        self._login = login
        self._connection: Connection | None = None
        self._answered = False  # whether the server ever did: then it speaks as we do

    def run(self, script: Script, keys: tuple[str, ...], words: Words, deadline: Deadline) -> Reply:
        """The answer of a script. Raises ``BackendUnavailable``, ``RequestInterrupted``, ``ConfigError``."""
        return self.run_many(script, [(keys, words)], deadline)[0]

    def run_many(self, script: Script, calls: Calls, deadline: Deadline) -> list[Reply]:
        """The answers of a script to several calls that are sent together."""
        return deadline.drive(self.running(script, calls, [], deadline), self.where)[0]

    def run_before(self, script: Script, calls: Calls, then: list[Command], deadline: Deadline) -> list[Reply]:
        """As :meth:`run_many`, with commands in the same round trip, whose answers these are, errors among them."""
        return deadline.drive(self.running(script, calls, then, deadline), self.where)[1]

    def running(
        self, script: Script, calls: Calls, then: list[Command], deadline: Deadline
    ) -> Steps[tuple[list[Reply], list[Reply]]]:
        """The steps of both, see ``Deadline.drive``, and what both give."""

        def commands(verb: str, name: str) -> list[Command]:
            return [(verb, name, len(keys), *keys, *words) for keys, words in calls]

        replies = yield from self.asking(commands("EVALSHA", script.sha) + then, deadline)
        said, more = replies[: len(calls)], replies[len(calls) :]
        if any(isinstance(reply, ReplyError) and reply.code == "NOSCRIPT" for reply in said):
            said = yield from self.asking(commands("EVAL", script.text), deadline)
        for reply in said:
            self._refuse_error(reply)
        return said, more

    def call(self, *words: bytes | str | int, deadline: Deadline) -> Reply:
        """The answer of one command."""
        return self.calls([words], deadline)[0]

    def calls(self, commands: list[Command], deadline: Deadline) -> list[Reply]:
        """The answers of some commands that are sent together."""
        replies = self.ask(commands, deadline)
        for reply in replies:
            self._refuse_error(reply)
        return replies

    def ask(self, commands: list[Command], deadline: Deadline) -> list[Reply]:
        """The answers of some commands; errors among them are given back."""
        return deadline.drive(self.asking(commands, deadline), self.where)

    def asking(self, commands: list[Command], deadline: Deadline) -> Steps[list[Reply]]:
        """The steps of :meth:`ask`, see ``Deadline.drive``."""
        while True:
            kept = self._connection
            try:
                if kept is not None:
                    return (yield from kept.exchange(commands, deadline))
                self._connection, replies = yield from self._opening(commands, deadline)
            except Closed:
                self.close()
                if kept is None:
                    raise
            except BaseException:
                self.close()
                raise
            else:
                return replies

    def open(self, commands: list[Command], deadline: Deadline) -> tuple[Connection, list[Reply]]:
        """A new connection that is the caller's to close, and the answers of its first commands."""
        return deadline.drive(self._opening(commands, deadline), self.where)

    def _opening(self, commands: list[Command], deadline: Deadline) -> Steps[tuple[Connection, list[Reply]]]:
        if isinstance(self._place, Endpoint):
            return (yield from self._greeting(self._place, commands, deadline))
        yield None
        primary, connection, role = self._find_primary(self._place, deadline)
        try:
            # a user who may not ask learns it from the first write
            if isinstance(role, list) and role[:1] != [b"master"]:
                raise BackendUnavailable(f"{primary.where}: {NO_PRIMARY}")
            return connection, (yield from connection.exchange(commands, deadline))
        except BaseException:
            connection.close()
            raise

    def _find_primary(self, place: Watched, deadline: Deadline) -> tuple[Endpoint, Connection, Reply]:
        """The server that the sentinels name, a connection to it, and what it says of its role.

        A host that has died answers nothing, and is named until they have seen that: they are asked again meanwhile.
        """
        from lockctl.stores.redis.sentinel import find_primary

        patience = FIRST_TRY
        while True:
            primary = find_primary(place, deadline)
            step = deadline.sooner(patience)
            try:
                connection, (role,) = step.drive(self._greeting(primary, [("ROLE",)], step), primary.where)
            except BackendUnavailable:
                if step.left() > 0 or deadline.left() <= 0:
                    raise
                patience *= LONGER
            else:
                return primary, connection, role

    def _greeting(
        self, place: Endpoint, commands: list[Command], deadline: Deadline
    ) -> Steps[tuple[Connection, list[Reply]]]:
        """In one packet, so that a request on a new connection takes one round trip."""
        if self._login.is_read_anew:
            yield None
        greeting = self._login.greeting(deadline)
        connection = Connection((yield from place.connecting(deadline)))
        try:
            replies = yield from connection.exchange([*greeting, *commands], deadline)
            for command, reply in zip(greeting, replies, strict=False):
                if isinstance(reply, ReplyError):
                    refuse = refused_authentication if command[0] == "AUTH" else refusal
                    raise refuse(place.where, reply)
            if replies and isinstance(replies[0], ReplyError) and code_of(replies[0]) == "DENIED":
                raise refusal(place.where, replies[0])
        except Closed as failure:
            connection.close()
            if place.tls is None and place.unix is None and not self._answered:
                raise Closed(
                    f"{failure} at once (does it want TLS? then the scheme ends in s; has it maxclients already?)"
                ) from None
            raise
        except BaseException:
            connection.close()
            raise
        self._answered = True
        return connection, replies[len(greeting) :]

    def _refuse_error(self, reply: Reply) -> None:
        if isinstance(reply, ReplyError):
            if code_of(reply) == "READONLY":
                self.close()  # the primary is elsewhere by now
            raise refusal(self.where, reply)

    def close(self) -> None:
        """Close the connection; idempotent, and the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
