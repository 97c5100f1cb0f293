"""Loading what is not needed for the start: when a run begins to wait, or its job has run for a moment."""

from __future__ import annotations

import os
import sys

LEASE = "lockctl.lease"
STORES = "lockctl.stores."
# of a store: locks over cells have loaded `cell` from the start, others need it for marks; the last two are of verbs
NOT_NEEDED = ("__init__", "cell", "doctor", "prune")
# what only those need that have loaded this: who waits, and who writes a report of what did not start
WITH = {"lockctl.wire.http": "lockctl.wire.lines", "lockctl.cli.report": "lockctl.cli.redact"}
LATER = (
    "lockctl.json_text",
    "lockctl.wire.deadline",
    "lockctl.locks.records",
    "lockctl.locks.inspect",
    "lockctl.supervise.keeper",
    "lockctl.cli.exit_status",
    "lockctl.cli.output",
    "lockctl.cli.outcome_messages",
    "lockctl.cli.report",
    "lockctl.cli.campaign",
    "lockctl.cli.bug",
)


def load_rest() -> None:
    """Load what the rest of a run may need, as far as it is there.

    A program may be replaced or removed while it waits for a lock or its job runs. What it has loaded by then stays
    as it was, and must be enough to renew, to release and to report. From an archive (``zipapp``) nothing is loaded.
    """
    modules = list(sys.modules.items())  # threads of a client library may load something just now
    used = [name for name, module in modules if name.startswith(STORES) and hasattr(module, "__path__")]
    for package in (LEASE, *used):
        try:
            files = os.listdir(sys.modules[package].__path__[0])
        except OSError:
            return
        for file in files:
            name, _, ending = file.partition(".")
            if ending == "py" and name not in NOT_NEEDED:
                _try_to_load(f"{package}.{name}")
    more = [name for user, name in WITH.items() if user in sys.modules]
    for name in (*more, *LATER):
        _try_to_load(name)


def _try_to_load(name: str) -> None:
    try:
        __import__(name)
    except Exception:  # noqa: BLE001 - it is told when it is needed, and most runs never need it
        return
