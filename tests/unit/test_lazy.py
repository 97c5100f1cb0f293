"""lockctl.lazy: modules that are loaded when something of them is asked for."""

from __future__ import annotations

import base64
import sys

import pytest

from lockctl.lazy import Lazy, StandIns


class Base64(Lazy):
    """With one thing of the module itself."""

    b64encode = "ours"


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "base64")


def test_what_a_stand_in_has_loads_nothing() -> None:
    stand_in = Base64("base64")
    with StandIns(stand_in):
        from base64 import b64encode

        assert sys.modules["base64"] is stand_in
    assert str(b64encode) == "ours"
    assert "base64" not in sys.modules


def test_what_else_is_asked_for_is_that_of_the_module() -> None:
    stand_in = Base64("base64")
    with StandIns(stand_in):
        assert stand_in.b32decode(b"ME======") == b"a"
        assert sys.modules["base64"] is not stand_in
        with pytest.raises(AttributeError):
            stand_in.__getattr__("no_such_thing")
    assert sys.modules["base64"].b64encode(b"a") == b"YQ=="


def test_a_stand_in_is_good_after_its_block() -> None:
    with StandIns(stand_in := Lazy("base64")):
        pass
    assert stand_in.b64encode(b"a") == b"YQ=="


def test_a_module_that_is_loaded_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "base64", base64)
    with StandIns(Base64("base64")):
        assert sys.modules["base64"] is base64
    assert sys.modules["base64"] is base64


def test_nothing_stays_of_a_block_that_fails() -> None:
    with pytest.raises(ImportError), StandIns(Lazy("base64")):
        raise ImportError
    assert "base64" not in sys.modules
