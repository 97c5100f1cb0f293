"""The errors for holders that cannot be asked for their lock: it can only be taken away from them."""

from __future__ import annotations

from lockctl.errors import LockctlError


def another_program(name: str, which: str = "") -> LockctlError:
    """The error for a lock that another program holds; *which* one, if that is known."""
    return LockctlError(f"{name} is held by another program{which}, which cannot be told: end it, or use --now")


def only_a_hold(name: str) -> LockctlError:
    """The error for a lock whose job has ended."""
    return LockctlError(f"{name} is kept by --min-hold, and its job has ended: use --now to free it")
