"""The command that a daemon runs under its lock: it holds nothing itself, and lives for as long as the lock is wanted.

It tells `acquire` what was granted, then waits for the end of its time, the end of the process that it is bound
to, or a word on its socket. It ends, and the daemon gives the lock back, as it does after any command. Started
with nothing of the site, and with its own modules as they were when its daemon began, see ``carried.py``.
"""

from __future__ import annotations

import _signal
import _socket
import os
import select
import sys

from lockctl import clock as clocks
from lockctl import json_text, kernel
from lockctl.names import json_string
from lockctl.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping

PROGRAM = (
    "import _signal; _signal.signal(2, _signal.SIG_DFL); "  # SIGINT: no traceback
    "import marshal, os, sys; carried = marshal.loads(os.read(int(sys.argv[-1]), 1 << 20)); exec(carried[0]); "
    "sys.path.insert(0, sys.argv[1]); from lockctl.cli.daemon import command; command.main(sys.argv[2:])"
)
RELEASED, TIME_OVER, BOUND_ENDED, NOT_TAKEN = 0, 10, 11, 12  # exit statuses: why it ended
ENDS = {
    RELEASED: "it was released",
    TIME_OVER: "its time (--for) was over",
    BOUND_ENDED: "the process that it was bound to (--bind-pid) had ended",
    NOT_TAKEN: "its handle was not delivered",
}
PLANNED = ((TIME_OVER, ENDS[TIME_OVER]), (BOUND_ENDED, ENDS[BOUND_ENDED]))  # they are no failures of the run
LARGEST = 4096  # bytes of a request
MOST_CALLERS = 8
FIELDS = ("lock", "token", "token_domain", "owner", "fencing", "ttl", "backend")


class Task(Value):
    """What its command is told on its command line."""

    stem: str  # path of the socket without its suffix
    span: float  # seconds
    bound: int  # descriptor of the process that it is bound to, -1: none
    link: int  # descriptor of the way back to `acquire`, on which the code of its modules lies

    def words(self) -> tuple[str, ...]:
        """The command that starts its command."""
        root = os.path.abspath(__file__)
        for _ in __name__.split("."):
            root = os.path.dirname(root)
        own = (self.stem, repr(self.span), str(self.bound), str(self.link))
        return (sys.executable, "-IS", "-c", PROGRAM, root, *own)


def main(words: list[str]) -> None:
    """Hold until it is enough; leaves by ``os._exit``."""
    stem, span, bound, link = words
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)  # the end of a session, and of the `acquire` that started us
    kernel.set_process_name("lockctl-daemon")
    command = DaemonCommand(Task(stem, float(span), int(bound), int(link)), os.environ)
    os._exit(command.run())


class DaemonCommand:
    """One loop over a timer, a process, the way back and a socket."""

    def __init__(self, task: Task, environ: Mapping[str, str]) -> None:
        """*environ* has the ``LOCKCTL_*`` variables of the job."""
        self._task = task
        self._granted = {name: environ.get("LOCKCTL_" + name.upper(), "") for name in FIELDS}
        self._timer = kernel.timer_descriptor(clocks.BOOTTIME)
        self._poll = select.poll()
        self._callers: dict[int, socket] = {}
        self._link = _socket.socket(fileno=task.link)
        self._path = task.stem + ".sock"

    def run(self) -> int:
        """Hold; the exit status says why it ended. The socket stays: if it is missing, somebody has removed it."""
        try:
            listener = self._listen()
        except OSError as failure:
            self._tell(f'{{"error":{json_string(f"cannot listen on {self._path}: {failure.strerror}")}}}')
            return NOT_TAKEN
        return self._hold(listener)

    def _hold(self, listener: socket) -> int:
        self._poll.register(listener.fileno(), select.POLLIN)
        self._poll.register(self._timer, select.POLLIN)
        expires_at = self._extend(self._task.span)
        fields = {**self._granted, "expires_at": expires_at}
        if not self._tell("{" + ",".join(f'"{name}":{json_string(text)}' for name, text in fields.items()) + "}"):
            return NOT_TAKEN
        self._poll.register(self._link.fileno(), select.POLLIN)
        if self._task.bound >= 0:
            self._poll.register(self._task.bound, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._link.fileno() in ready and not self._taken():
                return NOT_TAKEN
            for descriptor in ready:
                if descriptor in self._callers:
                    if self._serve(self._callers.pop(descriptor)):
                        return RELEASED
                elif descriptor == listener.fileno():
                    self._welcome(listener)
            if self._task.bound in ready:
                return BOUND_ENDED
            if self._timer in ready and clocks.boottime() >= self._until:
                return TIME_OVER

    def _taken(self) -> bool:
        """Whether the handle was handed out, of which nothing more is to come; else `acquire` has ended without it."""
        word = self._link.recv(16)
        self._poll.unregister(self._link.fileno())
        self._link.close()
        return bool(word)

    def _listen(self) -> socket:
        listener = _socket.socket(
            _socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
        )
        listener.bind(address(os.open(os.path.dirname(self._path), os.O_PATH | os.O_CLOEXEC), self._path))
        os.chmod(self._path, 0o600)
        listener.listen(MOST_CALLERS)
        return listener

    def _tell(self, text: str) -> bool:
        try:
            self._link.send(text.encode(), _socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def _extend(self, span: float) -> str:
        self._until = clocks.boottime() + span
        kernel.clear_timer(self._timer)
        kernel.set_timer(self._timer, self._until)
        return clocks.utc(clocks.wall() + span)

    def _welcome(self, listener: socket) -> None:
        try:
            descriptor, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - the wrapper is in `socket`
        except OSError:
            return
        caller = _socket.socket(fileno=descriptor)
        caller.setblocking(False)
        if len(self._callers) >= MOST_CALLERS or peer_user(caller) not in (0, os.geteuid()):
            caller.close()
            return
        self._callers[descriptor] = caller
        self._poll.register(descriptor, select.POLLIN)

    def _serve(self, caller: socket) -> bool:
        """Answer one request; whether it was to release."""
        self._poll.unregister(caller.fileno())
        try:
            request = json_text.an_object(caller.recv(LARGEST))
            if request is None or request.get("owner") != self._granted["owner"]:
                caller.send(b'{"refused":true}', _socket.MSG_NOSIGNAL)
                return False
            if request.get("verb") == "release":
                caller.send(b"{}", _socket.MSG_NOSIGNAL)
                return True
            asked = request.get("for")
            span = self._task.span if asked is None else max(0.0, float(asked))
            caller.send(f'{{"expires_at":{json_string(self._extend(span))}}}'.encode(), _socket.MSG_NOSIGNAL)
        except (OSError, TypeError, ValueError, OverflowError):
            return False
        finally:
            caller.close()
        return False


def address(directory: int, path: str) -> str:
    """A socket's address through a descriptor of its directory: a path may be longer than an address."""
    return f"/proc/self/fd/{directory}/{os.path.basename(path)}"


def peer_user(end: socket) -> int:
    """The user at the other end."""
    credentials = end.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)
