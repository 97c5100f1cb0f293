"""How a job has ended, and what that makes of its run."""

from __future__ import annotations

import os

from lockctl.events import GUARD_GONE, LOST, REVOKED, TIMED_OUT
from lockctl.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.model import Outcome

KINDS = {LOST: "lost", REVOKED: "revoked", TIMED_OUT: "timed_out"}  # of the outcome, by the cause


class Ending(Value):
    """How a job ended, as the keeper saw it."""

    status: int | None  # of the command, as from waitpid; None: it never ran
    cause: str | None  # why it was stopped, one of ``lockctl.events``; None: it ended by itself
    detail: str  # one line about the cause
    error: int  # errno of an exec that failed, else 0
    refused: str  # one line about what else was needed and not given, if it was not the exec that failed
    leftovers: int  # processes that outlived the command and were stopped
    left: str  # which ones, for people
    asked_to_end: bool  # somebody sent lockctl a signal that ends programs
    renewals: int  # that succeeded
    renewal_failures: int


def ended(outcome: Outcome, ending: Ending, ends: tuple[tuple[int, str], ...] = (), **ran: Any) -> Outcome:
    """The outcome with how the command has ended. *ends*: see ``Request``; each of them is a success.

    *ran* are further fields of the outcome, as they are if the command was executed.
    """
    exited = ending.status is not None and os.WIFEXITED(ending.status)
    found = {
        **ran,
        "kind": "exited" if exited else "signaled",
        "status": ending.status,
        "detail": ending.detail if ending.cause == GUARD_GONE else "",
        "leftovers": ending.leftovers,
        "left": ending.left,
        "error": ending.error,
        "asked_to_end": ending.asked_to_end,
        "renewals": ending.renewals,
        "renewal_failures": ending.renewal_failures,
    }
    if ending.error:
        found.update(kind="not_executed", started_at=None, duration=None, detail=ending.refused)
    elif ending.cause in KINDS:
        found.update(kind=KINDS[ending.cause], detail=ending.detail)
    else:
        for code, why in ends:
            if exited and ending.status == code << 8:
                found.update(status=0, detail=why)
                break
    return replace(outcome, **found)
