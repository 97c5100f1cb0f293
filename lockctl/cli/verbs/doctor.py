"""``lockctl doctor``: what would break the promise of lockctl on this host and in its backend, each with its remedy."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap

import click

from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON, with_settings
from lockctl.cli.output import on_styled_screen, print_data
from lockctl.cli.places import url_and_settings
from lockctl.cli.run import schedule_of
from lockctl.doctor import backend as backends
from lockctl.doctor import host
from lockctl.finding import FAIL, LEVELS, OK, WARN, Finding
from lockctl.names import printable

NARROWEST = 60
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
LABEL = 25  # columns of level and id together


@with_settings("backend", "config", "ttl")
@verb(
    "doctor",
    examples={
        "lockctl doctor": "This host, and the backend of the configuration.",
        "lockctl doctor -b redis://cache1:6379/0 --ttl 10s --json": "Another backend, for a monitoring program.",
    },
)
@AS_JSON
def command(*, as_json: bool, backend: str | None, config: str | None, ttl: str | None) -> int:
    """Check this host and the backend.

    For what would break a lock, each with the reason and the command that mends it. Changes nothing.
    """
    url, settings = url_and_settings({"backend": backend, "ttl": ttl}, config)
    schedule = schedule_of(settings["ttl"], settings["kill_after"], url)
    findings = [*host.examine(os.environ, sys.argv[0]), *backends.examine(url, schedule)]
    print_data(_document(findings) if as_json else _text(findings))
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    Talk(verbose=True)("info", ", ".join(f"{count} {level}" for level, count in counts.items()))
    return exit_status.FAILS if counts[FAIL] else exit_status.OK


def _document(findings: list[Finding]) -> str:
    return json.dumps(
        {
            "level": max((finding.level for finding in findings), key=LEVELS.index),
            "findings": [
                {
                    "id": finding.id,
                    "level": finding.level,
                    "where": finding.where,
                    "seen": finding.seen,
                    "why": finding.why,
                    "remedy": finding.remedy or None,
                }
                for finding in findings
            ],
        },
        indent=2,
    )


def _text(findings: list[Finding]) -> str:
    # in a pipe each text is whole, so that a command can be searched for and copied
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = max(NARROWEST, shutil.get_terminal_size().columns) if on_terminal else sys.maxsize
    styled = on_styled_screen()
    lines: list[str] = []
    for number, finding in enumerate(findings):
        if not number or findings[number - 1].where != finding.where:
            lines += ["", printable(finding.where)] if lines else [printable(finding.where)]
        lines += _lines(finding, width, styled=styled)
    return "\n".join(lines)


def _lines(finding: Finding, width: int, *, styled: bool) -> list[str]:
    level = finding.level.ljust(4)
    shown = click.style(level, fg=COLOURS[finding.level], bold=finding.level != OK) if styled else level
    first, *rest = _wrapped(f"  {level}  {finding.id.ljust(LABEL)}", finding.seen, width)
    lines = [first.replace(level, shown, 1), *rest]
    if finding.level != OK:
        lines += _wrapped("        why:  ", finding.why, width)
        lines += _wrapped("        mend: ", finding.remedy, width)
    return lines


def _wrapped(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [label.rstrip()]
