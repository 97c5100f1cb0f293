"""The code of the daemon's command, kept from the start of its daemon.

The command is a new interpreter, and begins when the lock is granted. The program may have been removed by then, or
replaced by a version that does not know the words of this one.
"""

from __future__ import annotations

import errno
import marshal
import sys
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

TOO_LONG = (errno.EMSGSIZE, errno.EAGAIN, errno.ENOBUFS)  # of a message: net.core.wmem_default is less than usual
PACKAGE = __name__.partition(".")[0]
# each after those that it imports; what is not listed is loaded from the disk
MODULES = "clock errors names value json_text kernel cli cli.daemon cli.daemon.command"
# what the command executes first, with `carried` as `pack` made it; the interpreter may be another one, too
UNPACK = """
from _frozen_importlib_external import MAGIC_NUMBER
for name, file, path, code in carried[2] if carried[1] == MAGIC_NUMBER else ():
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = file
    if path is not None:
        module.__path__ = path
    exec(marshal.loads(code), module.__dict__)
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
"""


def pack() -> bytes:
    """All that, in the form in which the command finds it on its way back to ``acquire``. Raises ``OSError``."""
    entries = [_entry(name) for name in (PACKAGE, *(f"{PACKAGE}.{each}" for each in MODULES.split()))]
    return marshal.dumps((UNPACK, MAGIC_NUMBER, entries))


def send(end: socket) -> None:
    """Lay it on the way back, whose other *end* is this: no file, which could be one too many, or be too large.

    Where no message can be so long, the command loads its modules from the disk. Raises ``OSError``.
    """
    try:
        end.send(pack())
    except OSError as failure:
        if failure.errno not in TOO_LONG:
            raise
        end.send(marshal.dumps(("",)))


def _entry(name: str) -> tuple[str, str, list[str] | None, bytes]:
    """A module that is loaded here: its name, its file, its folder if it is a package, its code."""
    module = sys.modules[name]
    loader = module.__spec__.loader  # type: ignore[union-attr] # it is no main module
    path = [*module.__path__] if hasattr(module, "__path__") else None
    return name, str(module.__file__), path, marshal.dumps(loader.get_code(name))  # type: ignore[union-attr]
