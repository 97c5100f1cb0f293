"""lockctl-scale(7) has the numbers of its model, and the model those that servers count for real runs."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

import pytest

from lockctl import registry
from tests.bench.scale import counters, model
from tests.faults.backends import PLACES, addresses_of, on_backends

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs import Lockctl

SHORT, LONG = 4, 4  # runs
AT_ONCE = 4
MORE = 0.1  # by which a server may count something else than the model


def test_the_page_has_the_tables_of_the_model() -> None:
    page = model.PAGE.read_text(encoding="utf-8")
    assert model.filled(page) == page, "run `.venv/bin/python -m tests.bench.scale.model`, then `make docs`"
    assert len(page.splitlines()) <= 210


def test_every_store_of_many_hosts_is_in_the_model_with_what_gives_first() -> None:
    schemes = {registry.load(scheme).capabilities.scheme for scheme in registry.SCHEMES}
    assert set(model.STORES) == schemes
    assert {name for name in model.STORES if not model.first(name)} == {"file"}


def test_twice_as_many_holders_ask_twice_as_much() -> None:
    for name in model.STORES:
        assert tuple(model.load(name, 200)) == pytest.approx([2 * each for each in model.load(name, 100)])


@pytest.mark.parametrize("name", model.OBJECTS)
def test_holders_and_waiters_of_objects_cost_what_lockctl_backends_says(name: str) -> None:
    promised, of = registry.load(name).capabilities, model.constants(name)
    assert promised.holder_cost is not None
    assert 3600 * of.renewal.requests / of.interval == pytest.approx(promised.holder_cost.requests, rel=0.02)


@pytest.mark.parametrize("name", on_backends("redis", "etcd", "zookeeper", "mysql", "nats"))
def test_servers_count_for_runs_what_the_model_says(
    name: str, request: pytest.FixtureRequest, lockctl: Lockctl, tmp_path: Path
) -> None:
    server = request.getfixturevalue(PLACES[name].servers)
    url = PLACES[name].url(addresses_of(server), "model", tmp_path)
    metrics = tmp_path / "metrics"
    metrics.mkdir()

    def run(number: int, seconds: str) -> None:
        command = ("sleep", seconds) if number < LONG else ("true",)
        done = lockctl("run", "-b", url, "-l", f"n{number}", "--metrics-dir", str(metrics), "--", *command)
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, range(LONG + SHORT), repeat("0")))  # what a server keeps of a name is made once
        metrics_before, before = renewals(metrics), counters.REQUESTS[name](server)
        list(pool.map(run, range(LONG + SHORT), repeat("3")))
        counted = counters.REQUESTS[name](server) - before
    renewed, of = renewals(metrics) - metrics_before, model.constants(name)
    assert renewed >= LONG
    meant = (LONG + SHORT) * of.run.requests + renewed * of.renewal.requests
    assert counted == pytest.approx(meant, rel=MORE), (counted, meant, renewed)


def renewals(metrics: Path) -> float:
    """Of all runs so far."""
    text = "".join(path.read_text() for path in metrics.glob("*.prom"))
    return sum(map(float, re.findall(r"^lockctl_renewals_total\{[^}]*\} (\S+)$", text, re.MULTILINE)))
