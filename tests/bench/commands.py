"""The programs that are run under the locks that are measured."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("stamp.c")
WITHOUT_COMPILER = """#!/bin/sh
[ $# -lt 2 ] || while read -r _; do :; done <"$2"
exec date +%s.%N >"$1"
"""


class Commands(NamedTuple):
    """Paths: a program that ends at once, and one that behaves as ``stamp.c`` says."""

    nothing: str
    stamp: str
    kind: str  # for the report


def made(directory: Path) -> Commands:
    """Compile the program; where that cannot be done, ``true`` and a script of the shell take its place."""
    program = directory / "stamp"
    compiler = shutil.which("cc")
    for linked in ("-static", "-O2"):
        words = [compiler or "cc", "-O2", linked, "-o", str(program), str(SOURCE)]
        if compiler and subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0:
            return Commands(str(program), str(program), f"a C program, {linked}")
    program.write_text(WITHOUT_COMPILER)
    program.chmod(0o700)
    return Commands(shutil.which("true") or "true", str(program), "true, and date in a script of sh")
