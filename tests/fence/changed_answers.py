"""What a store of marks does when a server says nearly what it should."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lockctl.errors import ConfigError
from lockctl.fence import locate
from tests.fence.contract import LIMIT, mark
from tests.servers.replay import TIMEOUT, changed, each_ends, on_changes, recording, replaying

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.replay import Change, Conversation


def calls(words: tuple[str, str], timeout: float) -> list[Callable[[], Any]]:
    """What is asked of a store, in this order."""
    location = locate(words[0], words[1] or None)
    store, resource = location.store, location.resource

    def hold() -> None:
        with contextlib.suppress(ConfigError), store.holding(resource, mark(35), timeout=timeout):
            pass  # most stores refuse it

    def check_durable() -> None:
        with contextlib.suppress(ConfigError):
            store.check_durable(timeout=timeout)  # servers of tests do not wait for their disk

    return [
        lambda: store.advance(resource, mark(33), timeout=timeout),
        lambda: store.current(resource, timeout=timeout),
        lambda: store.advance(resource, mark(34), timeout=timeout),
        hold,
        check_durable,
        lambda: store.reset(resource, mark(7), timeout=timeout),
        store.close,
    ]


class ChangedAnswers:
    """For every store that asks a server: each call ends, well or with an error of ours, and never with a bug."""

    def test_answers_with_changed_bytes_cause_no_bug(self, harness: Any) -> None:
        heard: list[Conversation] = []

        with recording(harness.proxy.address, heard) as here:
            for call in calls(harness.behind(here), LIMIT):
                call()
        assert sum(len(said) for said in heard) > 3, heard

        @on_changes
        def check(changes: list[Change]) -> None:
            with replaying(changed(heard, changes)) as here:
                each_ends(calls(harness.behind(here), TIMEOUT))

        check()
