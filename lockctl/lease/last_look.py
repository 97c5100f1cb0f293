"""Whether the lock was ours to the end, for who is told so: renewals look only now and then."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LeaseLost, LeaseRevoked
from lockctl.lease.attempts import GIVE_BACK_TIMEOUT
from lockctl.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.backend import Backend
    from lockctl.model import Grant, Outcome


def look(backend: Backend, grant: Grant, outcome: Outcome) -> Outcome:
    """The *outcome* of a run that ended by itself, or that it was lost, if the store says clearly that it was.

    A store that gives no answer within a second leaves it as it is.
    """
    if outcome.kind not in ("exited", "signaled"):
        return outcome
    try:
        backend.renew(grant, timeout=GIVE_BACK_TIMEOUT)
    except LeaseLost as lost:
        return replace(outcome, kind="lost", detail=str(lost))
    except (LeaseRevoked, BackendUnavailable, ConfigError):
        return outcome  # still ours, or not known
    return outcome
