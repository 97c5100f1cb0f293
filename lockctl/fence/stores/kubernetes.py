"""Marks in Kubernetes: one Lease object for each resource."""

from __future__ import annotations

from lockctl.fence.stores.cells import PREFIX, CellMarks
from lockctl.stores.kubernetes.cell import KubernetesCells
from lockctl.stores.kubernetes.layout import prefix
from lockctl.stores.kubernetes.protocol import PARAMETERS, Leases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.url import Url


class KubernetesStore(CellMarks):
    """See ``Store``."""

    parameters: ClassVar[dict[str, str]] = PARAMETERS

    @classmethod
    def from_url(cls, url: Url) -> KubernetesStore:
        """``kubernetes://NAMESPACE/PREFIX?kubeconfig=FILE``; raises ``ConfigError``."""
        return cls(KubernetesCells(Leases(url)), "mark:" + (prefix(url.path) or PREFIX))
