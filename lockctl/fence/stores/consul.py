"""Marks in Consul: one key for each resource, written with check-and-set by its index.

What a quorum of the servers has on disk is what counts; reads ask the leader, which asks a quorum whether it is one.
"""

from __future__ import annotations

from lockctl.backends.consul.agent import Agent, encoded
from lockctl.backends.consul.settings import from_url
from lockctl.fence.stores.conditional import ConditionalStore, Seen
from lockctl.fence.stores.text import escaped
from lockctl.url import take_params
from lockctl.value import replace
from lockctl.wire import tls_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from lockctl.backends.consul.settings import Settings
    from lockctl.url import Url
    from lockctl.wire.deadline import Deadline

PREFIX = "lockctl-fence/"


class _KeysAlone(Agent):
    """An agent that is asked for keys, and never for a session."""

    rights = 'key_prefix "{prefix}" {{ policy = "write" }}'


class ConsulStore(ConditionalStore):
    """See ``Store``. The key is the prefix and the name, without a slash in it: all keys of locks have one more."""

    parameters: ClassVar[dict[str, str]] = {
        "prefix": PREFIX,
        "dc": "",
        "ns": "",
        "partition": "",
        **tls_settings.PARAMETERS,
    }

    def __init__(self, settings: Settings) -> None:
        """Nothing is opened before it is needed."""
        self._prefix = settings.prefix
        self._agent = _KeysAlone(settings)
        self.where = self._agent.where

    @classmethod
    def from_url(cls, url: Url) -> ConsulStore:
        """``consul://[:TOKEN@]HOST[:PORT]/?prefix=P&dc=D&...``; raises ``ConfigError``."""
        params = take_params(url, cls.parameters)
        return cls(from_url(replace(url, params=tuple(params.items())), {**cls.parameters, "lock_delay": "0"}))

    def close(self) -> None:
        """See ``Store``."""
        self._agent.close()

    def _key(self, resource: str) -> str:
        return self._prefix + escaped(resource)

    def _read(self, key: str, deadline: Deadline) -> Seen:
        entry = self._agent.get(key, deadline)
        return Seen(None, 0) if entry is None else Seen(entry.value, entry.index)

    def _write(self, key: str, seen: Seen, data: bytes | None, deadline: Deadline) -> bool:
        operation: dict[str, Any] = {"Verb": "delete-cas", "Key": key, "Index": seen.version}
        if data is not None:
            operation = {**operation, "Verb": "cas", "Value": encoded(data)}  # index 0: only if there is no such key
        return self._agent.transact([operation], deadline).results is not None
