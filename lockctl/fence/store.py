"""The protocol of a store of marks: these docstrings are the contract, and ``tests/fence/contract.py`` tests it."""

from __future__ import annotations

from lockctl.value import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import ClassVar

    from lockctl.fence.mark import Mark


class Store(Protocol):
    """Where the marks of resources are kept. *timeout* bounds the whole call, in seconds.

    All raise ``BackendUnavailable`` when the store gives no usable answer in time (then it is not known whether the
    mark was recorded), and ``ConfigError`` when a person must change something first (a missing table, no permission,
    a mark that is damaged or not ours); a mark is never lowered and never guessed. Resources are names of 1 to 300
    printable characters. Safe for use by many processes and threads at once, each with a store object of its own;
    an object may go from thread to thread, also while it holds a mark.
    """

    lockable: ClassVar[bool]  # whether :meth:`holding` can keep a mark from rising while something is done
    parameters: ClassVar[dict[str, str]]  # what its URLs may have after the "?", with the defaults

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        """Compare with the mark of *resource* and record, in one atomic and durable step; the mark as it is then.

        Raises ``Stale`` (see ``lockctl.fence.mark.accept``); nothing was written then.
        """

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        """The mark as it is, ``None`` if the resource never had one. Reads only."""

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        """Set the mark without any comparison, or remove it; the mark before. For a person who knows why."""

    def holding(self, resource: str, mark: Mark, *, timeout: float) -> AbstractContextManager[None]:
        """Like :meth:`advance`, and no other process can advance or reset the mark until the block has ended.

        The mark is durable before the block begins, also if the holder dies in it. *timeout* is for getting in. It
        ends with this process, however that ends. Raises ``ConfigError`` if the store is not :attr:`lockable`.
        """

    def check_durable(self, *, timeout: float) -> None:
        """Raise ``ConfigError`` unless a mark that was recorded survives a crash of the server and a loss of power.

        As far as the server can be asked; and where that is possible and forbidden, it is not met.
        """

    def close(self) -> None:
        """Free what this object holds open."""
