"""Names that are forgotten while the network loses an answer: what `prune` says of them is so."""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import SERVED, addresses_of, on_kinds
from tests.faults.network import Network
from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.backends import Place
    from tests.jobs import Lockctl
    from tests.servers.proxy import Proxy

LAST = 6  # answers of a `prune`, among them those to the requests that remove something
MANY = 1000  # more than it gets

# of several nodes no single answer decides
pytestmark = pytest.mark.parametrize("backend_name", on_kinds(*(name for name in SERVED if name != "redlock")))


@pytest.fixture
def proxy(servers: Any) -> Iterator[Proxy]:
    """The network before the server."""
    with contextlib.closing(Network(servers)) as network:
        (made,) = network.proxies
        yield made


def unused(lockctl: Lockctl, url: str) -> list[str]:
    """The names that are left."""
    done = lockctl("prune", "-b", url, "--older-than", "0", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return [each["name"] for each in json.loads(done.stdout)]


def pruned_without(proxy: Proxy, answered: int, lockctl: Lockctl, url: str) -> list[str]:
    """What `prune` says that it forgot. After so many answers one is lost."""
    proxy.answered, proxy.lost = answered, 0
    proxy.mode = "lose_a_reply"
    done = lockctl("prune", "-b", url, "--older-than", "0", "--json")
    return [each["name"] for each in json.loads(done.stdout or "[]") if each["forgotten"]]


def test_what_is_said_of_a_name_is_so_whichever_answer_is_lost(
    lockctl: Lockctl, place: Place, servers: Any, locks: Path, proxy: Proxy
) -> None:
    wrong = []
    answers = 0
    for lost in range(LAST + 1):  # none, the last one, the one before it
        word = "t" + os.urandom(6).hex()
        direct, through = (place.url(at, word, locks) for at in (addresses_of(servers), [proxy.address]))
        assert lockctl("run", "-b", direct, "-l", "nightly", "--", "true").returncode == 0
        eventually(partial(unused, lockctl, direct), LIMIT)
        said = pruned_without(proxy, answers - lost if lost else MANY, lockctl, through)
        answers = answers or MANY - proxy.answered
        if bool(said) == bool(unused(lockctl, direct)):
            wrong.append((lost, said))
    assert wrong == []
