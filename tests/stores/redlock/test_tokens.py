"""The token of Redlock rises when the majority is another one each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.promises.tokens import rising, tenure
from tests.servers.redis import Redis

if TYPE_CHECKING:
    from collections.abc import Callable

FENCE = "{lockctl:nightly}:fence"


def test_tokens_rise_when_the_majority_is_another_one_each_time_and_one_nodes_clock_is_ahead(
    start_server: Callable[..., Any],
) -> None:
    three = [start_server(Redis, fsync=True) for _ in range(3)]
    url = f"redlock://{','.join(server.address for server in three)}/0"
    tokens = [tenure(url).token]
    three[0].ask("SET", FENCE, str(tokens[0] + 3_600_000_000))  # as after an hour with a clock ahead
    tokens.append(tenure(url).token)
    assert tokens[1] > tokens[0] + 3_600_000_000
    for away in (0, 1, 2, 0):
        three[away].stop()
        tokens += [tenure(url).token for _ in range(2)]
        three[away].start()
    assert rising(tokens), "a majority without that node had taken the large token over"
