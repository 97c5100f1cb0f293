"""URLs of ZooKeeper's locks, and the order of the nodes below one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.stores.zookeeper import queue
from lockctl.stores.zookeeper.lock import ZooKeeperBackend
from lockctl.url import parse_url
from tests.contract.harness import claim

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_password_is_shown_nowhere() -> None:
    made = ZooKeeperBackend.from_url(parse_url("zookeeper://ops:s3cret@h1,[::1]:99/locks"))
    assert "s3cret" not in repr(made._place)
    assert str(made._place) == "zookeeper at h1:2181,[::1]:99"
    assert made._place.key("nightly") == "/locks/nightly"


def test_without_a_path_the_locks_are_below_lockctl() -> None:
    for url in ("zookeeper://h", "zookeeper://h/"):
        assert ZooKeeperBackend.from_url(parse_url(url))._place.key("x") == "/lockctl/x"


def test_files_for_tls_that_cannot_be_used_are_named(opened: Callable[[str], ZooKeeperBackend]) -> None:
    with pytest.raises(ConfigError, match=r"/does/not/exist"):
        opened("zookeepers://127.0.0.1:1/?ca=/does/not/exist").try_acquire(claim(), timeout=1.0)


# The order of the queue


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("0123456789abcdef0123456789abcdef__lock__0000000007", 7),
        ("0123456789abcdef0123456789abcdef__rlock__0000000008", 8),
        ("_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000009", 9),
        ("_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__0000000010", 10),
        ("x__lock__-2147483648", -2147483648),
        ("x__lock__-000000001", -1),
        ("_c_x-lock--000000001", -1),
        ("lock-0000000001", 1),
        ("config", None),
        ("job-2024", None),
        ("", None),
        ("x__lock__\N{ARABIC-INDIC DIGIT ONE}000000001", None),
    ],
)
def test_who_counts_is_known_by_the_number_at_the_end(name: str, number: int | None) -> None:
    assert queue.number(name) == number


@pytest.mark.parametrize("layout", ["kazoo", "curator"])
def test_our_own_names_count(layout: str) -> None:
    assert queue.number(queue.prefix("0123456789" * 3 + "01", layout) + "0000000042") == 42


def test_the_order_is_that_of_the_numbers_also_when_the_servers_counter_turns_over() -> None:
    def named(*numbers: int) -> list[str]:
        return [f"x__lock__{number:010d}" for number in numbers]

    assert queue.in_order(["config", *reversed(named(1, 9, 10))]) == named(1, 9, 10)
    assert queue.in_order(named(-2147483648, 2147483647, -2147483647)) == named(2147483647, -2147483648, -2147483647)
    assert queue.in_order(named(0, -1)) == named(-1, 0)
