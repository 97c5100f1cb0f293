"""What `lockctl doctor` finds without a server: in directories and databases, by times, and without a library."""

from __future__ import annotations

import http.server
import sqlite3
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockctl import registry
from lockctl.doctor import backend, host
from lockctl.doctor.backend import judge_times
from lockctl.finding import Examination
from lockctl.lease.schedule import plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doctor.conftest import Diagnosis

    Diagnose = Callable[..., Diagnosis]


def test_every_finding_is_named_by_a_test() -> None:
    of_verbs = [Path(__file__).parents[1] / "run" / name for name in ("test_doctor.py", "test_contain.py")]
    tests = [*Path(__file__).parent.glob("test_*.py"), *of_verbs]
    text = "".join(test.read_text(encoding="utf-8") for test in tests)
    known = {check.id for check in (*host.CHECKS, *backend.checks())}
    quoted = {check for check in known if f'"{check}"' in text or f'"{check.partition(".")[2]}"' in text}
    assert quoted == known


def test_a_directory_that_everybody_may_change_is_found(diagnose: Diagnose, locks: Path) -> None:
    new = locks / "a" / "b"
    assert diagnose(f"file://{new}").levels()["file.directory"] == "ok"
    assert not new.parent.exists()
    locks.chmod(0o777)
    found = diagnose(f"file://{locks}")
    assert found.levels()["file.directory"] == "fail"
    assert "sticky" in found["file.directory"]["seen"]


def test_a_database_that_is_none_is_found(diagnose: Diagnose, locks: Path) -> None:
    path = locks / "locks.db"
    assert diagnose(f"sqlite://{path}").levels()["sqlite.writable"] == "ok"
    with sqlite3.connect(path) as made:
        made.execute("CREATE TABLE a (b)")
    made.close()
    found = diagnose(f"sqlite://{path}")
    assert (found["sqlite.writable"]["level"], found["backend.round_trip"]["level"]) == ("ok", "ok")
    path.write_text("no database at all, but a text that is long enough to be taken for one" * 10)
    assert diagnose(f"sqlite://{path}").levels()["sqlite.writable"] == "fail"


def test_a_server_that_is_something_else_is_a_finding(diagnose: Diagnose) -> None:
    class Strange(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"DebugConfig": 7, "Healthy": "\\u001b[31m"}')

        def do_PUT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Strange) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = diagnose(f"consul://127.0.0.1:{server.server_address[1]}/")
        server.shutdown()
    assert found.levels()["backend.reachable"] == "fail"


@pytest.mark.parametrize(
    ("url", "module", "level"),
    [
        ("redis://127.0.0.1:1/0", "redis", "warn"),
        ("consul://127.0.0.1:1/", "consul", "warn"),
        ("zookeeper://127.0.0.1:1/", "kazoo.exceptions", "fail"),
        ("postgresql://u@127.0.0.1:1/d", "psycopg2", "fail"),
        ("mysql://u@127.0.0.1:1/d", "pymysql", "fail"),
    ],
)
def test_a_library_that_is_not_installed_is_a_finding(
    diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch, url: str, module: str, level: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = diagnose(url)
    assert found.troubles("backend.") == {"backend.library": level}
    assert "pip install 'lockctl[" in found["backend.library"]["remedy"]


@pytest.mark.parametrize(
    ("ttl", "spans", "offsets", "troubles"),
    [
        (30.0, [0.01] * 5, [(0.3, 0.01)], {}),
        (30.0, [0.01, 0.01, 0.8], [], {"backend.round_trip": "warn"}),
        (2.0, [0.01, 0.5, 0.6], [], {"backend.round_trip": "fail"}),
        (30.0, [0.01], [(-9.0, 8.5), (-7.0, 0.5)], {"backend.clock": "warn"}),
        (30.0, [0.01], [(1.4, 0.5)], {}),
    ],
)
def test_times_are_judged_by_the_lease(
    ttl: float, spans: list[float], offsets: list[tuple[float, float]], troubles: dict[str, str]
) -> None:
    found = Examination("redis", ttl)
    found.spans, found.offsets = spans, offsets
    judge_times(plan(ttl, None, registry.load("redis").capabilities), found)
    assert {each.id: each.level for each in found.findings if each.level != "ok"} == troubles
