"""The module that stands in for ``inspect``, and that most verbs start without the real one."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lockctl.cli.later import Inspect, install

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("doc", ["", "one line", "  indented\tline  ", "two\n    lines\n", "\n  begins later\n"])
def test_a_doc_is_cleaned_as_by_the_real_module(doc: str) -> None:
    assert Inspect("inspect").cleandoc(doc) == inspect.cleandoc(doc)


def test_what_else_is_asked_for_is_that_of_the_real_module(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Inspect("inspect")
    monkeypatch.delitem(sys.modules, "inspect")
    install()
    assert isinstance(sys.modules["inspect"], Inspect)
    monkeypatch.setitem(sys.modules, "inspect", stand_in)
    assert stand_in.isfunction(test_a_doc_is_cleaned_as_by_the_real_module)
    assert sys.modules["inspect"] is not stand_in
    with pytest.raises(AttributeError):
        stand_in.__getattr__("no_such_thing")


def test_where_it_is_loaded_already_nothing_is_changed() -> None:
    install()
    assert sys.modules["inspect"] is inspect


@pytest.mark.slow
def test_a_verb_does_not_load_it(tmp_path: Path) -> None:
    words = ["-X", "importtime", "-m", "lockctl", "list", "--json", "--backend", f"file://{tmp_path}"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"click", "lockctl.cli.query"} <= loaded
    assert loaded.isdisjoint({"inspect", "ast", "dis", "tokenize"})
