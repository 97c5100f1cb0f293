"""What would break locks in Kubernetes: a server that does not answer, and our rights."""

from __future__ import annotations

from lockctl.errors import ConfigError
from lockctl.finding import WHOLE_SECONDS, Check, Examination
from lockctl.stores.kubernetes.protocol import VERBS, Leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PATIENCE = 5.0  # seconds for one answer

SERVER = Check(
    "kubernetes.server",
    "Each lock is a Lease object: without the API server none is acquired or renewed.",
    "kubectl --namespace {namespace} get leases, with the same kubeconfig",
)
RIGHTS = Check(
    "kubernetes.rights",
    "Without these rights a lock cannot be acquired, waited for, listed or removed.",
    f"allow {VERBS} for leases of coordination.k8s.io in a Role of namespace {{namespace}}",
)
CHECKS = (SERVER, RIGHTS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the namespace of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    leases = Leases(url)
    found.where = leases.where
    found.words["namespace"] = leases.namespace
    leases.load()
    try:
        found.judge(SERVER, leases.version(deadline.sooner(PATIENCE)))
        verbs = VERBS.replace(" and ", ", ").split(", ")
        try:
            lacking = [verb for verb in verbs if not leases.allowed(verb, deadline.sooner(PATIENCE))]
        except ConfigError as refused:
            found.judge(RIGHTS, f"they cannot be asked for: {refused}", warns=True)
        else:
            found.judge(RIGHTS, f"not allowed: {', '.join(lacking)}" if lacking else "all", fails=bool(lacking))
        found.measure(lambda: leases.get("lockctl--doctor", deadline.sooner(PATIENCE))[1], WHOLE_SECONDS)
    finally:
        leases.close()
