"""Connections to NATS: the login, and messages in and out, each under a deadline."""

from __future__ import annotations

import binascii
import os

from lockctl import json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.names import printable
from lockctl.value import Value, replace
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.stream import LARGEST_ANSWER, Closed, Endpoint, TooLarge, secure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.stores.nats.address import Address

LONGEST_LINE = 1 << 16  # bytes of an INFO
LOGIN = ("authorization", "authentication")  # in what the server says of a login that it does not accept
SLOW = "authentication timeout"  # which is that of another moment
NO_RESPONDERS = b"NATS/1.0 503"


class Message(Value):
    """What came for one subject."""

    subject: str
    headers: bytes
    payload: bytes


class Connection:
    """One connection, for one thread at a time. After an error it is of no more use."""

    def __init__(self, address: Address, endpoint: Endpoint, deadline: Deadline) -> None:
        """Connect and log in. Raises ``BackendUnavailable``, ``ConfigError``."""
        self.where = f"nats at {endpoint.where}"
        self._data = bytearray()
        self._come = 0  # bytes since the last request
        self._let_in = False
        self._rights = address.rights
        self._inbox = f"_INBOX.{os.urandom(12).hex()}"
        self._count = 0
        self._stream = replace(endpoint, where=self.where).connect(deadline)
        try:
            info = self._greeting(deadline)
            if address.wants_tls or info.get("tls_required") or info.get("tls_verify"):
                self._stream.secured = secure(self._stream, address.tls, endpoint.host, deadline)
            login = json_text.render(self._login(address, info, deadline))
            self._stream.send(f"CONNECT {login}\r\nSUB {self._inbox}.* 1\r\nPING\r\n".encode(), deadline)
            self._await_pong(deadline)
            self._let_in = True
        except BaseException:
            self.close()
            raise

    def ask(self, requests: list[tuple[str, bytes, bytes]], deadline: Deadline) -> list[Message]:
        """The answers to requests (subject, header fields, payload), which are sent together."""
        first, self._come, written = self._count, 0, []
        for subject, headers, payload in requests:
            reply = f"{self._inbox}.{self._count}"
            self._count += 1
            head = b"NATS/1.0\r\n" + headers + b"\r\n"
            written.append(f"HPUB {subject} {reply} {len(head)} {len(head) + len(payload)}\r\n".encode())
            written += [head, payload, b"\r\n"]
        self._stream.send(b"".join(written), deadline)
        answers: dict[int, Message] = {}
        while len(answers) < len(requests):
            message = self.next(deadline)
            number = message.subject.removeprefix(self._inbox + ".")
            if number.isdigit() and first <= int(number) < self._count:
                answers[int(number)] = message
        return [answers[number] for number in range(first, self._count)]

    def subscribe(self, subject: str, deadline: Deadline) -> None:
        """From the return on, :meth:`next` gives what is published there."""
        self._stream.send(f"SUB {subject} 2\r\nPING\r\n".encode(), deadline)
        self._await_pong(deadline)

    def next(self, deadline: Deadline) -> Message:
        """The next message. Raises ``Closed``, ``BackendUnavailable``, ``ConfigError``."""
        while True:
            message = self._step(deadline)
            if isinstance(message, Message):
                return message

    def close(self) -> None:
        """End it; idempotent."""
        self._stream.close()

    def _greeting(self, deadline: Deadline) -> dict[str, Any]:
        line = self._line(deadline)
        if not line.startswith(b"INFO "):
            raise BackendUnavailable(f"{self.where}: that is no NATS server")
        return self._info(line)

    def _info(self, line: bytes) -> dict[str, Any]:
        info = json_text.an_object(line[5:])
        if info is None:
            raise BackendUnavailable(f"{self.where}: that is no NATS server")
        return info

    def _login(self, address: Address, info: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        words: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        words |= {"lang": "python", "version": "1", "protocol": 1, "name": "lockctl", "echo": True}
        password = password_now(address.password, deadline)
        if address.user:
            words |= {"user": address.user, "pass": password}
        elif password:
            words["auth_token"] = password
        elif address.creds or address.nkey:
            words |= signed(address, str(info.get("nonce") or "").encode())
        return words

    def _await_pong(self, deadline: Deadline) -> None:
        while self._step(deadline) is not True:
            pass

    def _step(self, deadline: Deadline) -> Message | bool:
        """One step of the protocol: a message, or whether it was a PONG."""
        line = self._line(deadline)
        word, _, rest = line.partition(b" ")
        if word.upper() == b"PING":
            self._stream.send(b"PONG\r\n", deadline)
        elif word.upper() in (b"MSG", b"HMSG"):
            return self._message(rest.decode("utf-8", "replace").split(), deadline, has_headers=word.upper() == b"HMSG")
        elif word.upper() == b"-ERR":
            raise self._refusal(printable(rest.decode("utf-8", "replace").strip().strip("'"))[:300])
        elif word.upper() not in (b"PONG", b"+OK", b"INFO"):
            raise BackendUnavailable(f"{self.where}: what came is not NATS")
        return word.upper() == b"PONG"

    def _message(self, words: list[str], deadline: Deadline, *, has_headers: bool) -> Message:
        try:
            size = int(words[-1])
            head = int(words[-2]) if has_headers else 0
            subject = words[0]
        except (IndexError, ValueError):
            raise BackendUnavailable(f"{self.where}: what came is not NATS") from None
        if not 0 <= head <= size <= LARGEST_ANSWER:
            raise TooLarge(self.where)
        while len(self._data) < size + 2:
            self._receive(deadline)
        content = bytes(self._data[:size])
        del self._data[: size + 2]
        return Message(subject, content[:head], content[head:])

    def _line(self, deadline: Deadline) -> bytes:
        while (end := self._data.find(b"\r\n")) < 0:
            if len(self._data) > LONGEST_LINE:
                raise BackendUnavailable(f"{self.where}: a line without end")
            self._receive(deadline)
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line

    def _receive(self, deadline: Deadline) -> None:
        data = self._stream.receive(deadline)
        self._come += len(data)
        if self._come > LARGEST_ANSWER:
            raise TooLarge(self.where)
        self._data += data

    def _refusal(self, said: str) -> BackendUnavailable | ConfigError:
        if any(word in said.lower() for word in LOGIN):
            if self._let_in or SLOW in said.lower():
                return Closed(f"{self.where}: {said}")  # the next login shows whether there are new credentials
            return ConfigError(f"{self.where}: {said}: the server does not accept the login")
        if "permissions violation" in said.lower():
            return ConfigError(f"{self.where}: {said}: allow the user to {self._rights}")
        if "tls" in said.lower():
            return ConfigError(f"{self.where}: {said}: say tls=yes")
        return Closed(f"{self.where}: {said}")


def load(address: Address) -> None:
    """Load what takes long, before the time of a lease is counted. Raises ``ConfigError``."""
    if address.creds or address.nkey:
        from lockctl.extras import Needed

        with Needed("a NATS login by creds or nkey", "nats"):
            import nkeys  # noqa: F401


def signed(address: Address, nonce: bytes) -> dict[str, Any]:
    """The login by a file with a seed, which is read again for each connection. Raises ``ConfigError``."""
    import nkeys

    path = address.creds or address.nkey
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(1 << 16)
        words: dict[str, Any] = {}
        seed = text.strip()
        if address.creds:
            words["jwt"], seed = _block(text, "NATS USER JWT"), _block(text, "USER NKEY SEED")
        pair = nkeys.from_seed(seed.encode())
        if address.nkey:
            words["nkey"] = pair.public_key.decode()
        words["sig"] = binascii.b2a_base64(pair.sign(nonce), newline=False).decode().rstrip("=")
        words["sig"] = words["sig"].replace("+", "-").replace("/", "_")
    except OSError as failure:
        raise ConfigError(f"nats: {printable(path)}: {failure.strerror}") from None
    except Exception as failure:  # noqa: BLE001 - of nkeys, which has many; its texts may have what was in the file
        raise ConfigError(f"nats: {printable(path)} has no usable seed ({type(failure).__name__})") from None
    return words


def _block(text: str, name: str) -> str:
    return text.partition(f"-----BEGIN {name}-----")[2].partition("---")[0].strip()
