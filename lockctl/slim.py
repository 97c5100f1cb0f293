"""Compiling a module without what only people and type checkers read, which a start would load for nothing.

Left out are docstrings, annotations of functions, what is imported for these, and the import of ``__future__``, whose
effect stays. The annotations of classes stay, too: they name the fields of values.
"""

from __future__ import annotations
import __future__

from _ast import PyCF_ONLY_AST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any


def compiled(text: bytes, source: str) -> CodeType:
    """The code of this text of the file *source*. Raises ``SyntaxError``, ``ValueError``."""
    tree: Any = compile(text, source, "exec", PyCF_ONLY_AST, dont_inherit=True)
    flags = 0
    body: list[Any] = []
    for statement in tree.body:
        if getattr(statement, "module", None) == __future__.__name__:
            for feature in statement.names:
                flags |= getattr(__future__, feature.name).compiler_flag
        elif getattr(getattr(statement, "test", None), "id", None) == "TYPE_CHECKING":
            body += statement.orelse
        else:
            body.append(statement)
    tree.body = body
    _drop_annotations(body)
    code: CodeType = compile(tree, source, "exec", flags, dont_inherit=True, optimize=2)
    return code


def _drop_annotations(nodes: list[Any]) -> None:
    """Take them from all functions in these nodes of a syntax tree."""
    while nodes:
        inner: list[Any] = []
        for node in nodes:
            for field in getattr(node, "_fields", ()):
                content = getattr(node, field)
                inner += content if isinstance(content, list) else [content]
            if type(node).__name__ == "arg":
                node.annotation = None
            elif hasattr(node, "returns"):
                node.returns = None
        nodes = inner
