"""A store that loses its data, or is put back to an earlier state, in the middle of a fleet with a fenced resource."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.backends import PLACES, addresses_of
from tests.jobs import eventually
from tests.promises.harms import HARMS
from tests.promises.tokens import rising, tenure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.jobs import Lockctl

FLEET = 3
TTL = 3.0  # seconds
LOSSES = {"wiped", "put back to a snapshot"}
# MariaDB's files are written anew, which takes half a minute
WIPED = [(store, name) for store, (_, harms) in HARMS.items() for name in harms if name in LOSSES and store != "mysql"]
USED = 100  # grants before: more than a server that counts from the beginning makes in the time of a lease
AFTER = 3  # jobs that must have run under the new data
# each line: the status, when the run began, when it ended
LOOP = """
until test -e "$0.end"; do
    began=$(cut -d' ' -f1 /proc/uptime)
    "$@"
    echo "$? $began $(cut -d' ' -f1 /proc/uptime)" >>"$0.said"
    sleep 0.5
done
"""
# what is appended is written under the mark of the resource
JOB = """exec "$1" fence exec "$2" -- sh -c 'echo "$LOCKCTL_TOKEN" >>"$0"' "$0" """


@pytest.mark.parametrize(("backend_name", "harm"), WIPED)
def test_a_fleet_goes_on_within_a_lease_and_no_token_falls(
    backend_name: str, harm: str, start_server: Callable[..., Any], lockctl: Lockctl, tmp_path: Path
) -> None:
    start, harms = HARMS[backend_name]
    server, word = start(start_server), f"t{os.urandom(6).hex()}"
    url = PLACES[backend_name].url(addresses_of(server), word, lockctl.directory)
    for _ in range(USED):
        tenure(url)
    if "saved" in harms:
        harms["saved"](server, word, 0)
    resource, log, place = tmp_path / "stock", tmp_path / "tokens", tmp_path / "fleet"
    options = ("-b", url, "-l", "nightly", "-t", f"{TTL}s", "--wait", "60s")
    words = ["sh", "-c", LOOP, str(place), lockctl.command, "run", *options, "--", "sh", "-c", JOB, str(log)]
    words += [lockctl.command, str(resource)]
    with (tmp_path / "errors").open("w") as errors:
        fleet = [subprocess.Popen(words, env=lockctl.environment(), stderr=errors) for _ in range(FLEET)]

    def tokens() -> list[int]:
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    try:
        eventually(lambda: len(tokens()) >= AFTER, limit=30.0)
        harms[harm](server, word, tokens()[-1])
        wiped, before = time.clock_gettime(time.CLOCK_BOOTTIME), len(tokens())
        eventually(lambda: len(tokens()) >= before + AFTER, limit=60.0)
    finally:
        (tmp_path / "fleet.end").touch()
        said = [each.wait(90) for each in fleet]
    assert said == [0] * FLEET, shlex.join(words)
    assert rising(tokens()), "what is old was accepted"
    runs = [line.split() for line in (tmp_path / "fleet.said").read_text().splitlines()]
    refused = [run for run in runs if run[0] == "77" and float(run[2]) > wiped + TTL]
    assert refused == [], "a token was refused for longer than a lease"
