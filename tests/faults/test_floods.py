"""Servers that send without end: each verb ends in time, in little memory, and says what was wrong in one line."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.unit.wire.servers import flooding, serving

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from tests.jobs import Lockctl

ENDINGS = (0, 69, 75, 78)  # what was sent may mean something by chance
MOST_MEMORY = 250_000  # kB, of which Python, drivers and tables for people take up to a third
LONGEST = 20.0  # seconds: an attempt and giving back what it may have got, on a busy machine


def frame(kind: bytes, content: bytes) -> bytes:
    """A message of PostgreSQL."""
    return kind + (len(content) + 4).to_bytes(4, "big") + content


def answer(body: bytes, length: int | None = None, status: bytes = b"200 OK") -> bytes:
    """An answer that etcd, Consul, or a store of objects could give."""
    fields = b'X-Consul-Index: 5\r\nETag: "x"\r\nContent-Length: %d\r\n\r\n' % (length or len(body))
    return b"HTTP/1.1 " + status + b"\r\n" + fields + body


SETTINGS = {"client_encoding": "UTF8", "DateStyle": "ISO, MDY", "server_version": "15.0", "integer_datetimes": "on"}
GREETING = frame(b"R", bytes(4)) + b"".join(
    [frame(b"S", f"{name}\0{content}\0".encode()) for name, content in SETTINGS.items()]
)
READY = GREETING + frame(b"K", b"\0\0\0\x05\0\0\0\x06") + frame(b"Z", b"I")
COLUMN = frame(b"T", b"\0\x01a\0" + bytes(6) + b"\0\0\0\x19\xff\xff" + bytes(6))
DONE = frame(b"C", b"SELECT 1\0") + frame(b"Z", b"I")
# a session of ZooKeeper, and an event for one path
CONNECTED = b"\0\0\0\x25\0\0\0\0\0\0\x27\x10" + b"\0\0\0\0\0\0\0\x01\0\0\0\x10" + bytes(17)
PATH = b"\0\x50\0\0" + b"/" * 0x500000
EVENT = (28 + len(PATH) - 4).to_bytes(4, "big") + b"\xff" * 4 + bytes(12) + b"\0\0\0\x01\0\0\0\x03" + PATH

CHUNKED = answer(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
# what is sent at each time that something comes, and at last what is sent without end
FLOODS: dict[str, dict[str, tuple[bytes, ...]]] = {
    "redis": {
        "nested strings": (b"*100000\r\n", (b"*1000\r\n" + b"$1000\r\n" + b"x" * 1000 + b"\r\n") * 60),
        "strings": (b"*100000\r\n", b"$65536\r\n" + b"x" * 65536 + b"\r\n"),
        "arrays": (b"*131000\r\n", b"*0\r\n" * 10_000),
        "a long error": (b"-ERR ", b"x" * 65536),
    },
    "http": {
        "lists": (answer(b"[", 62914560), b"[]," * 20_000),
        "lists that are complete": (answer(b"[" + b"[]," * 2_600_000 + b"[]]"), b""),
        "objects": (answer(b'{"header":{},"kvs":[' + b'{"":0},' * 1_100_000 + b"{}]}"), b""),
        "numbers": (answer(b"[" + b"9" * 8_000_000 + b"]"), b""),
        "strings": (answer(b"[" + b'"\\u1234",' * 190_000 + b"0]"), b""),
        "tiny chunks": (CHUNKED, b"1\r\n[\r\n" * 10_000),
        "an error without end": (b"HTTP/1.1 500 No\r\n\r\n", b"x" * 65536),
        "1xx": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
        "an error": (answer(b"x" * 1_000_000, status=b"500 No"), b""),
    },
    "postgresql": {
        "notices": (GREETING, frame(b"N", b"Mabcdef\0\0") * 5000),
        "notifications": (READY, frame(b"A", b"\0\0\0\x05a\0bc\0") * 5000),
        "rows": (READY, COLUMN, frame(b"D", b"\0\x01\xff\xff\xff\xff") * 5000),
        "long rows": (READY, COLUMN + b"D\x3f\0\0\0\0\x01\x3e\0\0\0", b"x" * 65536),
        "a long error": (b"E\x3f\0\0\0SERROR\0M", b"x" * 65536),
        "a long parameter": (frame(b"R", bytes(4)) + b"S\x3f\0\0\0", b"x" * 65536),
    },
    "zookeeper": {
        "a long frame": (b"\x7f\0\0", b"x" * 65536),
        "events": (CONNECTED, EVENT),
    },
}
# a store of marks has a time limit of its own, so that every flood is tried there: of those in HTTP, which all stores
# read with the same code, each with a store that makes something of it
STORES: dict[str, tuple[str, Iterable[str]]] = {
    "redis://{}/0": ("redis", FLOODS["redis"]),
    "http://{}/x": ("http", ("lists", "tiny chunks", "an error without end", "1xx", "an error")),
    "s3://k:s@b/x?endpoint=http://{}": ("http", ("lists", "an error")),
    "etcd://{}": ("http", ("lists", "lists that are complete", "objects", "numbers", "strings")),
    "consul://{}": ("http", ("lists that are complete", "objects", "numbers")),
    "postgresql://u@{}/d?tls=no": ("postgresql", FLOODS["postgresql"]),
    "zookeeper://{}": ("zookeeper", FLOODS["zookeeper"]),
}
MARKS = [(store, protocol, flood) for store, (protocol, floods) in STORES.items() for flood in floods]
# of locks, what is only looked at is asked for in other ways
BACKENDS = {
    "redis://{}": "strings",
    "redlock://{},localhost:1,127.0.0.1:1": "nested strings",
    "etcd://{}": "objects",
    "consul://{}": "lists that are complete",
    "postgresql://u@{}/d?tls=no": "long rows",
}


# prints the exit status of a command and its memory in kB; a child of pytest would begin with the memory of pytest
MEASURED = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def ends_well(lockctl: Lockctl, *words: str) -> str:
    """What is wrong with how a command ended, or nothing."""
    began = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURED, lockctl.command, *words],
        env=lockctl.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    status, memory = map(int, process.stdout.split())
    said = process.stderr
    took = time.monotonic() - began
    wrong = []
    if status not in ENDINGS:
        wrong.append(f"status {status}")
    if memory > MOST_MEMORY:
        wrong.append(f"{memory} kB")
    if took > LONGEST:
        wrong.append(f"{took:.1f} s")
    if len(said) > 4000 or b"Traceback" in said:
        wrong.append(f"said {said[:2000]!r}")
    return f"{words}: {', '.join(wrong)}" if wrong else ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_sends_without_end_costs_little_time_and_memory(lockctl: Lockctl, backend: str) -> None:
    scheme = backend.partition(":")[0]
    protocol = {"redlock": "redis", "etcd": "http", "consul": "http"}.get(scheme, scheme)
    with serving(flooding(*FLOODS[protocol][BACKENDS[backend]])) as (host, port):
        where = ("-b", backend.format(f"{host}:{port}"))
        verbs = [("run", "-l", "x", *where, "--", "true"), ("list", *where), ("history", *where, "x")]
        assert [found for verb in verbs if (found := ends_well(lockctl, *verb))] == []


@pytest.mark.parametrize("row", [b"\0\x01\xff\xff\xff\xff", b"\0\x01\0\0\0\x02\xff\xfe", b""])
def test_a_server_that_speaks_as_postgresql_and_is_none_is_named_in_one_line(lockctl: Lockctl, row: bytes) -> None:
    answer = COLUMN + (frame(b"D", row) if row else b"") + DONE
    with serving(flooding(READY, *[answer] * 10, b"")) as (host, port):
        where = ("-b", f"postgresql://u@{host}:{port}/d?tls=no")
        for verb in (("run", "-l", "x", *where, "--", "true"), ("list", *where), ("inspect", *where, "x")):
            done = lockctl(*verb)
            assert (done.returncode, done.stderr.count("\n")) == (78, 1), done
            assert "is not PostgreSQL as lockctl knows it: its answers are others" in done.stderr


@pytest.mark.parametrize(("store", "protocol", "flood"), MARKS)
def test_a_store_of_marks_that_sends_without_end_costs_little_time_and_memory(
    lockctl: Lockctl, store: str, protocol: str, flood: str
) -> None:
    with serving(flooding(*FLOODS[protocol][flood])) as (host, port):
        what = ("--store", store.format(f"{host}:{port}"), "--token", "5", "--domain", "d", "--timeout", "2s")
        assert ends_well(lockctl, "fence", "advance", "r", *what) == ""


def test_packets_of_mysql_without_end_cost_little_time_and_memory(lockctl: Lockctl) -> None:
    def behave(connection: socket.socket) -> None:
        part = b"x" * (0xFFFFFF // 255)
        for number in range(1000):
            connection.sendall(b"\xff\xff\xff" + bytes([number % 256]))
            for _ in range(255):
                connection.sendall(part)

    with serving(behave) as (host, port):
        what = ("--store", f"mysql://u@{host}:{port}/d?tls=no", "--token", "5", "--domain", "d")
        assert ends_well(lockctl, "fence", "advance", "r", *what) == ""
