"""What nobody has foreseen: a bug, or a compiled file of ours that a full disk has cut short.

Until such a file is removed, no Python can import its module: one that does not see that only a part of it was
written believes it for as long as its source stays as it is. Any module may be the one, so none is loaded here first.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WHERE = "bytecode_path"  # in the function of importlib that reads it
BUG = 70  # as in ``exit_status``


def tell(failure: BaseException, say: Callable[[str], None]) -> int:
    """Say what went wrong, while it is handled; the exit status."""
    path = _incomplete(failure)
    if path is None:
        import traceback

        from lockctl import __version__

        report = traceback.format_exc()
        say(f"lockctl: this is a bug in lockctl {__version__}; please report it with these lines:\n{report}")
    else:
        say(f"lockctl: {path!a} is incomplete, as a full disk leaves it{_removed(path)}\n")
    return BUG


def say_at_once(text: str) -> None:
    """Say it on stderr, where nothing else is loaded that could."""
    try:
        os.write(2, text.encode())
    except OSError:
        return  # nobody reads it


def _incomplete(failure: BaseException) -> str | None:
    """The compiled file whose end was missed; ``None`` if *failure* is about anything else."""
    found, step = None, failure.__traceback__ if isinstance(failure, EOFError) else None
    while step is not None:
        found = step.tb_frame.f_locals.get(WHERE, found)
        step = step.tb_next
    return found


def _removed(path: str) -> str:
    try:
        os.unlink(path)
    except OSError as denied:
        return f": remove it ({denied.strerror})"
    return ", and was removed: run this again"
