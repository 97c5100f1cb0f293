"""The contract of a backend: every promise of ``lockctl.backend`` as one test, for every backend the same.

A backend's test module has a ``harness`` fixture and one class that inherits this one. A capability
that a backend lacks is asserted absent, never skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.model import Capabilities
from tests.contract.agreeing import Agreeing
from tests.contract.forgetting import Forgetting
from tests.contract.keeping import Keeping
from tests.contract.looking import Looking
from tests.contract.remembering import Remembering
from tests.contract.sharing import Sharing
from tests.contract.taking import Taking
from tests.contract.waiting import Waiting

if TYPE_CHECKING:
    from lockctl.backend import Backend
    from tests.contract.harness import Harness


# Python 3.12 warns of any fork beside a thread; the file backend's helper only makes system calls after its own
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
class BackendContract(Taking, Keeping, Waiting, Sharing, Remembering, Forgetting, Looking, Agreeing):
    """All promises; to be inherited by one class for each backend."""

    @pytest.fixture
    def backend(self, harness: Harness) -> Backend:
        """A client of the store."""
        return harness.client()

    @pytest.fixture
    def other(self, harness: Harness) -> Backend:
        """A second client of the same store."""
        return harness.client()

    def test_what_the_backend_promises_is_complete_and_in_known_words(self, harness: Harness, backend: Backend) -> None:
        promised = backend.capabilities
        assert isinstance(promised, Capabilities)
        assert promised == harness.capabilities
        assert promised.fencing in {"strict", "durable-storage"}
        assert promised.leased or promised.kernel_held, "else nothing frees an abandoned lock"
        assert 0 <= promised.rate_error < 0.1
        assert 0 < promised.heartbeat <= 10
        assert promised.freed_when
        assert promised.token_from
        assert promised.survives
        assert promised.clocks
        assert promised.period_clock
        assert promised.hold_by in {"lease", "record"}
