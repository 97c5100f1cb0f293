"""The driver: psycopg2, of which the module in C is enough.

The package around it converts types that no statement of ours has, and all of it together takes longer to load than
lockctl. Where the module in C cannot be loaded alone, the package is loaded as usual. A program that uses lockctl as a
library has the package: its modules are left as they are.
"""

from __future__ import annotations

import _thread
import os
import sys
from _frozen_importlib_external import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

VERBOSE = 2  # PQERRORS_VERBOSE of libpq-fe.h
KNOWS_PASS_PHRASES = 130_000  # version of libpq
COMMAND = "lockctl.loading"  # only the command has loaded it
IN_C = "psycopg2._psycopg"
NEEDED = ("_connect", "BYTES", "register_type", "encodings", "libpq_version", "Error", "ProgrammingError")


def conninfo(parameters: dict[str, Any]) -> str:
    """The parameters of a connection as one text."""
    told = dict(parameters)
    if types.libpq_version() >= KNOWS_PASS_PHRASES:
        # else that of a key is asked for on the terminal, where nobody may be, or read from what the command is to read
        told["sslpassword"] = " "
    escaped = {name: str(content).replace("\\", "\\\\").replace("'", "\\'") for name, content in told.items()}
    return " ".join([f"{name}='{content}'" for name, content in escaped.items()])


def show_codes(connection: Any) -> None:
    """Have libpq write the SQLSTATE into the error that a connection may end with: the text has the server's language.

    The driver has that call for connections that are established alone.
    """
    import ctypes

    try:
        library = ctypes.CDLL(getattr(_driver, "_psycopg", _driver).__file__)
        library.PQsetErrorVerbosity(ctypes.c_void_p(connection.pgconn_ptr), VERBOSE)
    except (AttributeError, OSError):
        return  # libpq is inside of the driver, and not to be found: the text must do


def module_in_c() -> Any:
    """The module in C without its package, and without ``ssl``; ``None`` where it cannot be had so.

    It loads ``ssl`` only because an OpenSSL before 1.1 must be told how to lock: without that module libpq tells it.
    Package and ``ssl`` are hidden only while there is no other thread that could ask for them.
    """
    is_alone = COMMAND in sys.modules and not _thread._count()  # noqa: SLF001 - threads, as threading counts them
    found = PathFinder.find_spec("psycopg2") if is_alone and "psycopg2" not in sys.modules else None
    if found is None:
        return None
    package = type(sys)("psycopg2")
    package.__path__ = found.submodule_search_locations or []
    hidden: dict[str, ModuleType | None] = {"psycopg2": package}
    if "ssl" not in sys.modules:
        hidden["ssl"] = None
    sys.modules.update(hidden)  # type: ignore[arg-type] # None says that there is no such module
    usual = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)  # of the thousands of functions of its twenty libraries a connection uses few
    try:
        module = __import__(IN_C, fromlist=["_connect"])
    except ImportError:
        module = None
    finally:
        sys.setdlopenflags(usual)
        for name in hidden:
            sys.modules.pop(name, None)
    if all(hasattr(module, name) for name in NEEDED):
        return module
    for name in [name for name in sys.modules if name.startswith("psycopg2.")]:
        del sys.modules[name]
    return None


_driver: Any = module_in_c()
if _driver is not None:
    connect, types = _driver._connect, _driver  # noqa: SLF001 - the function of the package ends with it
    for _name in list(types.encodings):  # as in the package: an encoding is found however a server writes its name
        types.encodings[_name.replace("_", "").replace("-", "").upper()] = types.encodings[_name]
else:
    from lockctl.extras import Needed

    with Needed("the postgresql backend", "postgresql"):
        import psycopg2
        import psycopg2.extensions
    _driver, connect, types = psycopg2, psycopg2.connect, psycopg2.extensions
Error, ProgrammingError = _driver.Error, _driver.ProgrammingError
