"""The experiment in short: a paused holder destroys updates, unless its token was registered before the first read.

`make lostupdate` is the long form, with all variants on all three backends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import PLACES, addresses_of, announced
from tests.lostupdate.__main__ import ENOUGH, TEETH, failures, results_of, start_race
from tests.lostupdate.plan import Order, Pace, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# shorter than in the long form: fewer updates between two pauses, and several lists beside each other
PACE = Pace(section=1.0, every=1.0, shortest_pause=3.2, longest_pause=4.5)
LIMIT = 55.0  # seconds at most: on a machine that is not busy it takes a third of it
ENDING = 40.0


@pytest.fixture
def compare(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., dict[str, Result]]:
    """The results of some variants, which run side by side on a backend."""

    def run(backend: str, orders: Sequence[Order]) -> dict[str, Result]:
        server: Any = request.getfixturevalue(PLACES[backend].servers)
        url = PLACES[backend].url(addresses_of(server), "t" + os.urandom(6).hex(), tmp_path)
        with start_race(url, tmp_path, PACE, orders, LIMIT) as process:
            results = {each.variant: each for each in results_of(process, LIMIT + ENDING)}
        assert all(each.pauses and not each.wrong for each in results.values()), results
        return results

    return run


@pytest.mark.servers("redis_server")
def test_only_a_token_that_is_registered_before_the_read_loses_nothing(
    compare: Callable[..., dict[str, Result]],
) -> None:
    many = {"groups": 6, "workers": 3, "updates": ENOUGH + 10, "pauses": 18}
    few = {"groups": 2, "workers": 3, "updates": 20, "pauses": 6}
    found = compare(
        "redis",
        [
            Order("none", **many),
            Order("register", **many),
            Order("register-worst", **few),
            Order("write-only-worst", **few),
            Order("deadline-late", **few),
        ],
    )
    assert found["none"].acknowledged >= ENOUGH
    assert found["none"].percent >= TEETH
    assert found["register"].acknowledged >= ENOUGH
    assert found["register"].refused > 0
    assert found["register"].lost == 0
    assert found["register-worst"].lost == 0
    assert found["write-only-worst"].lost > 0
    assert found["deadline-late"].lost > 0


@pytest.mark.parametrize("backend", [pytest.param(name, marks=announced(name)) for name in ("etcd", "postgresql")])
def test_so_it_is_with_tokens_of_other_backends(backend: str, compare: Callable[..., dict[str, Result]]) -> None:
    few = {"groups": 3, "workers": 3, "updates": 30, "pauses": 6}
    found = compare(backend, [Order("none", **few), Order("register", **few)])
    assert found["none"].lost > 0
    assert found["register"].refused > 0
    assert found["register"].lost == 0


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (Result("none", ENOUGH, 4, 0, 0, 10), "do not hit"),
        (Result("none", ENOUGH - 1, 20, 0, 0, 10), "longer"),
        (Result("register", ENOUGH, 1, 9, 0, 10), "lost 1"),
        (Result("write-only", ENOUGH, 1, 9, 1, 10), "should not be"),
    ],
)
def test_the_long_form_fails_when_it_proves_nothing_or_the_opposite(result: Result, told: str) -> None:
    sound = [Result("none", ENOUGH, 5, 0, 0, 10), Result("register", ENOUGH, 0, 9, 0, 10)]
    assert list(failures({"redis": sound})) == []
    (found,) = failures({"redis": [result]})
    assert told in found
