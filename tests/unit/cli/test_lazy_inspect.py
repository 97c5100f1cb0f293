"""The module that stands in for ``inspect``."""

from __future__ import annotations

import inspect
import sys

import pytest

from lockctl.cli.lazy_inspect import Inspect, install


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
