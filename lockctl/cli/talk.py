"""Words for people on stderr."""

from __future__ import annotations

import os

from lockctl.names import printable

LEVELS = ("debug", "info", "warning", "error")


class Talk:
    """What stderr says. *quiet* keeps only errors, *verbose* adds what went well."""

    def __init__(self, *, as_json: bool = False, verbose: bool = False, quiet: bool = False) -> None:
        """Nothing is written yet."""
        self.lock: str | None = None
        self.configure(as_json=as_json, verbose=verbose, quiet=quiet)

    def configure(self, *, as_json: bool, verbose: bool, quiet: bool) -> None:
        """Go on in this manner."""
        self._as_json = as_json
        self._least = LEVELS.index("error" if quiet else "debug" if verbose else "warning")

    def __call__(self, level: str, text: str) -> None:
        """One line. A closed or full stderr is no reason to fail."""
        if LEVELS.index(level) < self._least:
            return
        clean = printable(text)
        if self._as_json:
            import json

            from lockctl.clock import utc, wall

            line = json.dumps({"ts": utc(wall()), "level": level, "lock": self.lock, "message": clean})
        else:
            line = f"lockctl: {self.lock}: {clean}" if self.lock else f"lockctl: {clean}"
        try:
            os.write(2, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            return
