"""`--metrics-dir`: what Prometheus reads is whole, adds up, and is what the alerts and the dashboard ask for."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lockctl.cli import metrics
from lockctl.cli.messages import Talk
from lockctl.model import OUTCOMES, Outcome
from tests.jobs import LIMIT

ROOT = Path(__file__).parents[2]


def samples(text):
    """Every sample as Prometheus reads it, by name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert metrics.METRICS[family.name if family.type != "counter" else f"{family.name}_total"][0] == family.type
        for sample in family.samples:
            found[sample.name, sample.labels.get("outcome"), sample.labels["lock"]] = sample.value
    return found


def outcome(kind="exited", **more):
    return Outcome(
        **{"kind": kind, "name": "a", "backend": "file", "words": ("true",), "host": "h", "waited": 0.5, **more}
    )


@pytest.fixture
def written(tmp_path):
    def write(*outcomes):
        for each in outcomes:
            metrics.write_metrics(str(tmp_path), ("a",), each, Talk())
        return samples((tmp_path / "lockctl-a.prom").read_text())

    return write


def test_a_run_of_the_command_is_counted_with_its_times_and_its_status(lockctl, tmp_path):
    for status in (0, 3):
        words = ("-l", "a", "-l", "b", "--metrics-dir", str(tmp_path), "--", "sh", "-c", f"exit {status}")
        assert lockctl("run", *words).returncode == status
    assert lockctl("run", "-l", "a", "--metrics-dir", str(tmp_path), "--ttl", "1ms", "--", "true").returncode == 64
    found = {lock: samples((tmp_path / f"lockctl-{lock}.prom").read_text()) for lock in "ab"}
    for lock in "ab":
        assert found[lock]["lockctl_runs_total", "exited", lock] == 2
        assert found[lock]["lockctl_last_exit_code", None, lock] == 3
        assert 0 < found[lock]["lockctl_acquire_seconds_sum", None, lock] < LIMIT
        assert found[lock]["lockctl_hold_seconds_count", None, lock] == 2
        assert (
            found[lock]["lockctl_last_success_timestamp_seconds", None, lock]
            < found[lock]["lockctl_last_run_timestamp_seconds", None, lock]
        )
    assert found["a"]["lockctl_runs_total", "not_executed", "a"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lockctl-a.prom", "lockctl-b.prom"]


def test_what_went_wrong_is_counted_apart(written):
    found = written(
        outcome("lost", renewals=4, renewal_failures=2),
        outcome("revoked", renewals=1),
        outcome("not_executed", fence="stale"),
        *map(outcome, OUTCOMES),
    )
    counts = {name: value for (name, kind, _), value in found.items() if kind is None}
    assert counts["lockctl_renewals_total"] == 5
    assert counts["lockctl_renewal_failures_total"] == 2
    assert counts["lockctl_leases_lost_total"] == counts["lockctl_revocations_total"] == 2
    assert counts["lockctl_stale_tokens_total"] == 1
    assert counts["lockctl_wait_seconds_sum"] == 0.5 * counts["lockctl_wait_seconds_count"] == 5.5
    assert counts["lockctl_acquire_seconds_count"] == 0
    assert "lockctl_last_exit_code" not in counts


def test_no_run_is_lost_when_many_end_at_once(tmp_path, written):
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(metrics.write_metrics, str(tmp_path), ("a",), outcome(), Talk()) for _ in range(40)]:
            done.result()
    assert written(outcome())["lockctl_runs_total", "exited", "a"] == 41


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\0" * 5000,
        b'lockctl_runs_total{lock="a",outcome="exited"} -5\nx nan\ny',
        b"lockctl_wait_seconds_sum 1e400\n",
    ],
)
def test_a_file_that_is_none_of_ours_is_replaced(tmp_path, written, content):
    (tmp_path / "lockctl-a.prom").write_bytes(content)
    assert written(outcome())["lockctl_runs_total", "exited", "a"] == 1


def test_a_directory_in_use_holds_up_no_run_for_long(tmp_path, capfd):
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    metrics.write_metrics(str(tmp_path), ("a",), outcome(), Talk())
    os.close(other)
    assert "cannot write metrics" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_to_is_wrong_usage(lockctl, locks):
    done = lockctl("run", "-l", "a", "--metrics-dir", str(locks / ".none"), "--", "touch", str(locks / ".ran"))
    assert (done.returncode, "--metrics-dir" in done.stderr, (locks / ".ran").exists()) == (64, True, False)


def test_the_alerts_and_the_dashboard_use_metrics_that_exist(written):
    found = written(outcome(status=0, acquired_in=0.1, held=1.0))
    exist = {name for name, _, _ in found}
    alerts = yaml.safe_load((ROOT / "configs/prometheus-alerts.yml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    board = json.loads((ROOT / "configs/grafana-dashboard.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    used = set()
    for expression in [each["expr"] for each in rules + targets]:
        assert expression.count("(") == expression.count(")")
        used |= set(re.findall(r"lockctl_\w+", expression))
        assert set(re.findall(r'outcome!?="(\w+)"', expression)) <= set(OUTCOMES)
    assert used == exist
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)


@pytest.mark.slow
def test_prometheus_itself_takes_the_metrics_the_alerts_and_the_queries_of_the_dashboard(promtool, written, tmp_path):
    def check(*words, **options):
        done = subprocess.run(
            [promtool, "check", *words], capture_output=True, text=True, timeout=LIMIT, check=False, **options
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout

    written(outcome(status=0, acquired_in=0.1, held=1.0))
    with (tmp_path / "lockctl-a.prom").open() as metrics_of_a_run:
        assert check("metrics", stdin=metrics_of_a_run) == ""
    assert "rules found" in check("rules", str(ROOT / "configs/prometheus-alerts.yml"))
    board = json.loads((ROOT / "configs/grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"query_{n}", "expr": each.replace("$__rate_interval", "5m")} for n, each in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in check("rules", str(tmp_path / "queries.yml"))
