"""lockctl.history: runs of the past as documents."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lockctl import history
from lockctl.documents import LONGEST_NAME
from lockctl.model import Run
from lockctl.value import replace

TEXTS = st.text(max_size=40)
MOMENTS = st.none() | st.floats(0, 1e11)
RUNS = st.builds(
    Run,
    host=st.none() | TEXTS,
    user=st.none() | TEXTS,
    command=st.none() | st.lists(st.text(), max_size=5).map(tuple),
    token=st.none() | st.integers(0, 2**63),
    started_at=MOMENTS,
    ended_at=MOMENTS,
    duration=MOMENTS,
    waited=MOMENTS,
    outcome=st.text(min_size=1, max_size=20),
    exit_code=st.none() | st.integers(0, 255),
    detail=st.none() | TEXTS,
)
WHOLE = Run("web3", "ops", ("true",), 41, 1.0, 2.0, 1.0, 0.0, "exited", 0)


@given(RUNS)
def test_a_run_comes_back_as_it_was_but_for_the_end_of_a_long_command(run: Run) -> None:
    text = history.describe(run)
    assert b"\n" not in text
    back = history.read(text)
    assert back is not None
    assert replace(back, command=None) == clean(replace(run, command=None))
    words = tuple(word.encode("utf-8", "replace").decode() for word in run.command or ())
    assert back.command == words or (back.command or ())[-1:] == ("...",)


def clean(run: Run) -> Run:
    """Without halves of characters, which are no text."""
    texts = {name: getattr(run, name) for name in ("host", "user", "outcome", "detail")}
    return replace(run, **{name: text and text.encode("utf-8", "replace").decode() for name, text in texts.items()})


def test_nothing_makes_a_document_much_longer_than_its_room() -> None:
    huge = replace(
        WHOLE, host="\x00" * 10_000, user="\x00" * 10_000, detail="\x00" * 10_000, command=("\x00",) * 10_000
    )
    most = 6 * (2 * LONGEST_NAME + history.LONGEST_DETAIL) + 500
    assert len(history.describe(huge)) < most
    assert len(history.describe(replace(WHOLE, command=("x" * 100,) * 100))) <= history.ROOM


@given(st.binary())
def test_what_is_no_such_document_is_no_run(data: bytes) -> None:
    assert history.read(data) is None
    assert history.read(b"{" + data) is None


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100))))
def test_each_kind_stays_in_its_order_whatever_the_clocks_of_the_hosts_say(found: list[tuple[bool, float]]) -> None:
    runs = [
        replace(WHOLE, token=number, ended_at=moment, started_at=1.0 if started else None)
        for number, (started, moment) in enumerate(found)
    ]
    merged = history.in_order(runs)
    assert sorted(run.token or 0 for run in merged) == list(range(len(runs)))
    for kind in (True, False):
        tokens = [run.token or 0 for run in merged if run.started is kind]
        assert all(earlier < later for earlier, later in itertools.pairwise(tokens))


def test_clocks_decide_between_the_kinds() -> None:
    kinds = [(True, 9.0), (True, 3.0), (False, 5.0), (False, 1.0)]
    runs = [replace(WHOLE, ended_at=moment, started_at=1.0 if started else None) for started, moment in kinds]
    assert [run.ended_at for run in history.in_order(runs)] == [9.0, 5.0, 3.0, 1.0]


def test_when_a_run_was_noted_is_rounded_up_so_that_its_name_is_not_forgotten_too_soon() -> None:
    assert history.describe(WHOLE, 1799999709.2).endswith(b',"noted_at":1799999710}')
    assert history.describe(WHOLE, 1799999709.0).endswith(b',"noted_at":1799999709}')
