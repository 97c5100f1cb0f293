"""A library that is missing, and how this installation gets it: each installer has a command of its own."""

from __future__ import annotations

import os
import sys

from lockctl.errors import ConfigError

LIBRARIES = {  # extra -> what it installs
    "redis": "redis",
    "consul": "py-consul",
    "zookeeper": "kazoo",
    "postgresql": "psycopg2-binary",
    "mysql": "PyMySQL",
    "s3": "botocore",
    "gcs": "google-auth requests",
    "azure": "azure-identity",
    "dynamodb": "botocore",
    "nats": "nkeys",
    "kubernetes": "PyYAML",
}
PIPX_FOR_ALL = "/opt/pipx/"  # where `pipx install --global` has its environments
OF_THE_SYSTEM = "/dist-packages"  # where Debian has the modules of its own packages


class LibraryMissing(ConfigError):
    """A library is not installed, or cannot be loaded."""


class Needed:
    """A block that imports the library of an *extra*; ``LibraryMissing`` for *what* needs it says how to get it."""

    def __init__(self, what: str, extra: str) -> None:
        """Nothing is imported yet."""
        self._what = what
        self._extra = extra

    def __enter__(self) -> None:
        """Only the end matters."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
            # it is installed, and to install it again does not help: a library of the system, or memory, is missing
            raise LibraryMissing(f"{self._what} cannot load {_named(self._extra)}: {error}") from None
        if isinstance(error, ImportError):
            raise LibraryMissing(f"{self._what} needs {_named(self._extra)}: {remedy(self._extra)}") from None


def remedy(extra: str, prefix: str = sys.prefix, module: str = __file__) -> str:
    """The command that adds *extra*: *prefix* is that of the interpreter, and *module* is this file."""
    if os.path.exists(f"{prefix}/pipx_metadata.json"):
        everywhere = "--global " if prefix.startswith(PIPX_FOR_ALL) else ""
        return f"pipx inject {everywhere}lockctl {LIBRARIES[extra]}"
    if os.path.exists(f"{prefix}/uv-receipt.toml"):
        return f"uv tool install 'lockctl[{extra}]'"
    if OF_THE_SYSTEM in module:
        return f"install the package of your distribution that has the Python module of {_named(extra)}"
    if os.path.exists(f"{prefix}/bin/pip"):
        return f"{prefix}/bin/pip install 'lockctl[{extra}]'"
    if os.path.exists(f"{prefix}/pyvenv.cfg"):  # an environment without pip, such as uv makes
        if _made_by_uv(prefix):
            return f"uv pip install --python {prefix} 'lockctl[{extra}]'"
        return f"pip --python {prefix} install 'lockctl[{extra}]'"
    return f"pip install 'lockctl[{extra}]'"


def _named(extra: str) -> str:
    return " and ".join(LIBRARIES[extra].removesuffix("-binary").split())


def _made_by_uv(prefix: str) -> bool:
    with open(f"{prefix}/pyvenv.cfg", encoding="utf-8", errors="replace") as file:
        return any(line.startswith("uv =") for line in file)
