"""What a terminal sends for keys."""

from __future__ import annotations

import pytest

from lockctl.cli.watch import keys


@pytest.mark.parametrize(
    ("data", "pressed"),
    [
        (b"q", ["q"]),
        (b"\x1b", [keys.ESCAPE]),
        (b"\x1b[A\x1bOB", [keys.UP, keys.DOWN]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[4~", [keys.PAGE_UP, keys.PAGE_DOWN, keys.HOME, keys.END]),
        (b"/n\xc3\xa4\x7f\r", ["/", "n", "\u00e4", keys.BACKSPACE, keys.ENTER]),
        (b"\x1b[1;5C\x1b[200~x", ["x"]),  # of keys that mean nothing here
        (b"\x1b\x1b[A", [keys.ESCAPE, keys.UP]),
        (b"\x00\x01\x1b[", []),
        (b"\xff\xfe", []),
    ],
)
def test_a_key_is_known_by_its_bytes(data: bytes, pressed: list[str]) -> None:
    assert list(keys.read(data)) == pressed
