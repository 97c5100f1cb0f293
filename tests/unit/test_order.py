"""The order of the tests in several workers."""

from __future__ import annotations

import pytest

from tests.order import longest_first, scope_of

TESTS = (
    "tests/unit/test_url.py::test_a",
    "tests/run/test_cron.py::test_b",
    "tests/faults/test_hang.py::test_c[redis]",
    "tests/unit/test_url.py::test_d[x]",
    "tests/faults/test_stopped.py::test_e[redis]",
    "tests/surface/test_wheel.py::test_f",
)


def test_the_longest_come_first_and_what_stays_in_one_worker_comes_together() -> None:
    order = longest_first(TESTS)
    assert sorted(TESTS, key=order.__getitem__) == [TESTS[number] for number in (1, 2, 4, 5, 0, 3)]


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        (TESTS[2], "redis faults"),
        ("tests/stores/redlock/test_lock.py::test_redis", "redlock contract"),
        ("tests/run/test_prune.py::test_a[words3]", "tests/run/test_prune.py::test_a[words3]"),
        ("tests/fleet/test_history.py::test_a[file]", "tests/fleet/test_history.py::test_a[file]"),
        (TESTS[3], "tests/unit/test_url.py"),
        (f"{TESTS[5]}[etcd]", "tests/surface/test_wheel.py"),
    ],
)
def test_what_needs_the_same_server_or_is_made_for_a_file_stays_in_one_worker(nodeid: str, scope: str) -> None:
    assert scope_of(nodeid) == scope
