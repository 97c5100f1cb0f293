"""A question to a person at a terminal, whose answer decides. Without a terminal ``--yes`` is needed."""

from __future__ import annotations

import sys

from lockctl.errors import UsageError


def ask_person(alone: str, shown: str, question: str) -> bool:
    """Whether the answer to *question* is yes. Above it stands *shown*, in the refusal *alone*.

    Raises ``UsageError`` without a terminal. Not by ``click.confirm``: with click 8.1 it puts a blank on stdout.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{alone}; --yes is required without a terminal")
    sys.stderr.write(f"{shown}\n{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
