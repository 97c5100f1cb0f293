"""What would break locks in ZooKeeper, asked in a session, and each server by its four letter words."""

from __future__ import annotations

import socket

from lockctl.durations import format_duration
from lockctl.errors import BackendUnavailable
from lockctl.finding import Check, Examination
from lockctl.names import printable
from lockctl.stores.zookeeper.address import Place, read_url
from lockctl.stores.zookeeper.errors import SessionLost
from lockctl.stores.zookeeper.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PATIENCE = 3.0  # seconds for one answer
SESSION_PER_TTL = 2  # only half of a session can be relied on
LONGEST_WORD = 65536  # bytes of the answer to a four letter word
CONFIG = "/zookeeper/config"
NAME = "lockctl-doctor"  # of a node that is never made
IMPOSSIBLE = 2**31 - 1  # a version that no node has

SERVERS = Check(
    "zookeeper.servers",
    "Locks outlive the failure of a server only where a majority is left, and a client goes on only with servers"
    " that its URL names.",
    "run 3 or 5 servers, name all of them in the URL, and start those that do not serve",
)
SESSION = Check(
    "zookeeper.session",
    "A lease lasts half a session: a shorter one stops jobs sooner, a longer one keeps the lock of a lost host longer.",
    "choose a --ttl that fits, or set minSessionTimeout and maxSessionTimeout in zoo.cfg of all servers",
)
FOUR_LETTERS = Check(
    "zookeeper.four_letters",
    "Without mntr neither doctor nor monitoring can see how long requests wait in the server.",
    "set 4lw.commands.whitelist=srvr,mntr,conf in zoo.cfg of all servers",
)
RIGHTS = Check(
    "zookeeper.rights",
    "Without these rights a lock cannot be acquired.",
    "with zkCli.sh, as a user who may: setAcl {root} auth:USER:crd (and name this user in the URL)",
)
OPEN = Check(
    "zookeeper.open",
    "Where nodes are open to everybody, everybody who reaches a server can delete locks.",
    "give a user and a password in the URL: new nodes are then open to this user only",
)
CHECKS = (SERVERS, SESSION, FOUR_LETTERS, RIGHTS, OPEN)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the ensemble of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    place = read_url(url)
    found.words["root"] = place.root
    if found.lacks("kazoo.exceptions", "zookeeper", needed=True):
        return
    wanted = SESSION_PER_TTL * found.ttl
    session = Session(place, wanted)
    try:
        _ask(session, deadline, "exists", "/")
        found.measure(lambda: _ask(session, deadline, "exists", place.root) and None)
        granted = session.timeout
        seen = f"{format_duration(granted)}, for a lease of {format_duration(granted / SESSION_PER_TTL)}"
        found.judge(SESSION, seen, warns=granted != wanted)
        config = _ask(session, deadline, "get", CONFIG)
        listed = config[0].count(b"server.") if isinstance(config, tuple) else 0
        _judge_servers(place, max(1, listed), found, deadline)
        _judge_rights(session, place, found, deadline)
    except SessionLost:
        raise BackendUnavailable(f"{place}: the session has ended") from None
    finally:
        session.end(deadline.sooner(PATIENCE))


def _ask(session: Session, deadline: Deadline, method: str, *words: object) -> Any:
    """The answer to one request; it may be an exception."""
    return session.ask(deadline.sooner(PATIENCE), lambda client: getattr(client, method)(*words))[0]


def _judge_servers(place: Place, count: int, found: Examination, deadline: Deadline) -> None:
    modes: list[str] = []
    missing: list[str] = []
    for host, port in place.hosts:
        try:
            answer = _four_letters(place, host, port, b"srvr", deadline)
            mode = next(line[6:] for line in answer.splitlines() if line.startswith("Mode: "))
        except OSError as failure:
            missing.append(f"{host}:{port}: {printable(str(failure.strerror or failure))}")
        except StopIteration:
            missing.append(f"{host}:{port}: {printable(answer.strip())[:100]}")
        else:
            modes.append(printable(mode))
            if len(modes) == 1:
                _judge_monitoring(_four_letters(place, host, port, b"mntr", deadline), found)
    plural = "" if count == 1 else "s"
    seen = f"{count} server{plural}, {len(place.hosts)} in the URL"
    seen = "; ".join([seen + (f" ({', '.join(modes)})" if modes else ""), *missing])
    found.judge(SERVERS, seen, warns=count < 3 or count % 2 == 0 or len(place.hosts) < count or bool(missing))


def _judge_monitoring(answer: str, found: Examination) -> None:
    facts = dict(line.split("\t", 1) for line in answer.splitlines() if "\t" in line)
    names = ("zk_avg_latency", "zk_max_latency", "zk_outstanding_requests")
    seen = ", ".join(f"{name[3:].replace('_', ' ')} {printable(facts[name])}" for name in names if name in facts)
    found.judge(FOUR_LETTERS, seen or "mntr is not allowed", warns=not seen)


def _four_letters(place: Place, host: str, port: int, word: bytes, deadline: Deadline) -> str:
    step = deadline.sooner(PATIENCE)
    with socket.create_connection((host, port), step.left()) as plain:
        connection = plain
        if place.tls is not None:
            from lockctl.wire.tls import context

            connection = context(place.tls).wrap_socket(plain, server_hostname=place.tls.tls_name or host)
        try:
            connection.sendall(word)
            data = b""
            while len(data) < LONGEST_WORD and step.left() > 0 and (piece := connection.recv(4096)):
                data += piece
        finally:
            connection.close()
    return data.decode("utf-8", "replace")


def _judge_rights(session: Session, place: Place, found: Examination, deadline: Deadline) -> None:
    from kazoo.exceptions import NoAuthError, NoNodeError

    parent = place.root
    while isinstance(seen := _ask(session, deadline, "exists", parent), NoNodeError) and parent.rpartition("/")[0]:
        parent = parent.rpartition("/")[0]
    if isinstance(seen, NoNodeError):
        parent = ""
    # in a transaction with a step that must fail: nothing is made
    path = f"{parent}/{NAME}"
    (made,) = session.ask(
        deadline.sooner(PATIENCE),
        lambda client: client.transaction(client.create(path), client.check("/", IMPOSSIBLE)),
    )
    if not isinstance(made, list):
        raise BackendUnavailable(f"{place}: {printable(str(made))}")
    refused = isinstance(made[0], NoAuthError)
    found.judge(RIGHTS, f"no node may be made below {parent or '/'}" if refused else "nodes may be made", fails=refused)
    acl = _ask(session, deadline, "rights", parent or "/")
    anyone = isinstance(acl, tuple) and any(each.id.scheme == "world" and each.perms & 8 for each in acl[0])
    if isinstance(acl, NoNodeError):
        anyone = False
    is_open = place.user is None or (anyone and parent == place.root)
    found.judge(OPEN, "everybody may delete nodes" if is_open else "nodes belong to their user", warns=is_open)
