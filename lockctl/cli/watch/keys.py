"""Keys that a person presses: what a terminal sends for them, and the terminal while they are read one by one."""

from __future__ import annotations

import os
import termios
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"
ESC = 0x1B
LONGEST = 1024  # bytes at once: nobody types faster
SEQUENCES = {  # of VT100, xterm, the Linux console and rxvt
    **{f"{lead}A".encode(): UP for lead in ("\x1b[", "\x1bO")},
    **{f"{lead}B".encode(): DOWN for lead in ("\x1b[", "\x1bO")},
    **dict.fromkeys((b"\x1b[H", b"\x1bOH", b"\x1b[1~", b"\x1b[7~"), HOME),
    **dict.fromkeys((b"\x1b[F", b"\x1bOF", b"\x1b[4~", b"\x1b[8~"), END),
    b"\x1b[5~": PAGE_UP,
    b"\x1b[6~": PAGE_DOWN,
}
SINGLE = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\x08": BACKSPACE}


def read(data: bytes) -> Iterator[str]:
    """The keys that sent *data*: a name for those that have one, else the letter. Other sequences are passed over."""
    while data:
        if data[0] == ESC:
            sequence = _sequence(data)
            if len(sequence) == 1:
                yield ESCAPE
            elif sequence in SEQUENCES:
                yield SEQUENCES[sequence]
            data = data[len(sequence) :]
            continue
        letters, escape, rest = data.partition(b"\x1b")
        for letter in letters.decode("utf-8", "ignore"):
            if letter in SINGLE or letter.isprintable():
                yield SINGLE.get(letter, letter)
        data = escape + rest


def _sequence(data: bytes) -> bytes:
    """What belongs to the escape at the beginning: alone it is the key of that name."""
    if data[1:2] not in (b"[", b"O"):
        return data[:1]
    for number in range(2, len(data)):
        if 0x40 <= data[number] <= 0x7E:
            return data[: number + 1]
    return data


class Keyboard:
    """The terminal on stdin, which gives each key at once and shows none; Ctrl-C and Ctrl-Z are signals as ever."""

    def __init__(self) -> None:
        """Nothing is changed yet."""
        self._before: list[Any] | None = None

    def start(self) -> bool:
        """Begin, if there is a terminal and it is ours: a job in the background must not touch it."""
        try:
            if not os.isatty(0) or os.tcgetpgrp(0) != os.getpgrp():
                return False
            before = termios.tcgetattr(0)
            changed = list(before)
            changed[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(0, termios.TCSADRAIN, changed)
        except (OSError, termios.error):
            return False
        self._before = before
        return True

    def stop(self) -> None:
        """Leave the terminal as it was."""
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, before)
            except (OSError, termios.error):
                return  # the window was closed
