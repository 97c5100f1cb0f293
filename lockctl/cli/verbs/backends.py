"""``lockctl backends``: what each backend promises, from its capabilities as data."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from lockctl import registry
from lockctl.cli import exit_status
from lockctl.cli.group import verb
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON
from lockctl.cli.output import print_data
from lockctl.cli.query import OUTPUT, print_documents

if TYPE_CHECKING:
    from lockctl.model import Capabilities, Cost

WIDTH = 100  # columns of the sentences below the table, at most
INDENT = " " * 17


@verb(
    "backends",
    examples={
        "lockctl backends": "A table, and a few sentences for each backend.",
        "lockctl backends --json | jq -r '.[] | .backend + \": \" + .freed_when'": (
            "What frees the lock when its host is lost."
        ),
    },
)
@OUTPUT
@AS_JSON
def command(*, output: str, as_json: bool) -> int:
    """Compare what the backends promise.

    Fencing, order of waiters, what they survive, what frees a lock. `man 7 lockctl-backends` has their URLs.
    """
    found: dict[str, list[str]] = {}
    for scheme in registry.SCHEMES:
        found.setdefault(registry.load(scheme).capabilities.scheme, []).append(scheme)
    promises = {name: registry.load(schemes[0]).capabilities for name, schemes in found.items()}
    form = "json" if as_json else output
    if form == "name":
        print_data("\n".join(promises))
        return exit_status.OK
    if form not in ("", "wide"):
        print_documents(form, [_document(promised, found[name]) for name, promised in promises.items()])
        return exit_status.OK
    from lockctl.cli import screen

    rows = [screen.Row(_row(promised)) for promised in promises.values()]
    screen.print_table(screen.PROMISES, rows, wide=bool(form))
    missing = () if form else screen.left_out(screen.PROMISES, rows)
    shown = screen.terminal()
    width = WIDTH if shown is None else min(WIDTH, shown.width)
    lines = []
    for name, promised in promises.items():
        lines += ["", f"{name}  ({', '.join(scheme + ':' for scheme in found[name])})"]
        lines += [_sentence(*each, width) for each in _sentences(promised)]
    print_data("\n".join(lines))
    if missing:
        Talk(verbose=True)("info", f"no room for {', '.join(missing)}: -o wide shows all columns")
    return exit_status.OK


def _row(promised: Capabilities) -> tuple[str, ...]:
    order = "in order" if promised.fair else "any order"
    several = " ".join(word for word, there in (("slots", promised.slots), ("shared", promised.shared)) if there)
    vanished = "kernel frees" if promised.kernel_held else "lease ends" if promised.leased else "connection ends"
    return (
        promised.scheme,
        "many" if promised.many_hosts else "one",
        promised.fencing,
        order + ("" if promised.lists_waiters else ", unlisted"),
        several or "one",
        vanished,
        f"{promised.heartbeat:g} s" if promised.revocable else "-",
    )


def _sentences(promised: Capabilities) -> tuple[tuple[str, str], ...]:
    return (
        ("freed when", promised.freed_when),
        ("token", promised.token_from),
        ("survives", promised.survives),
        ("clocks", promised.clocks),
        ("periods", f"{promised.period_clock}; a hold is kept by a {promised.hold_by}"),
        *((("costs", costs),) if (costs := cost_of(promised)) else ()),
    )


def cost_of(promised: Capabilities) -> str:
    """What its requests cost, for people; empty where they cost nothing."""
    who = (("a holder", promised.holder_cost), ("a waiter", promised.waiter_cost))
    return "; ".join(
        f"{name} sends about {cost.requests} requests an hour, for {cost.dollars:.4f} USD" for name, cost in who if cost
    )


def _sentence(label: str, text: str, width: int) -> str:
    return textwrap.fill(f"  {label + ':':15}{text}", width, subsequent_indent=INDENT, break_long_words=False)


def _document(promised: Capabilities, schemes: list[str]) -> dict[str, object]:
    return {
        "backend": promised.scheme,
        "schemes": schemes,
        "many_hosts": promised.many_hosts,
        "fencing": promised.fencing,
        "fair": promised.fair,
        "lists_waiters": promised.lists_waiters,
        "revocable": promised.revocable,
        "noticed_within": promised.heartbeat,
        "leased": promised.leased,
        "kernel_held": promised.kernel_held,
        "clock_rate_error": promised.rate_error,
        "freed_when": promised.freed_when,
        "token_from": promised.token_from,
        "survives": promised.survives,
        "clocks": promised.clocks,
        "period_clock": promised.period_clock,
        "hold_by": promised.hold_by,
        "slots": promised.slots,
        "shared": promised.shared,
        "holder_cost": _cost(promised.holder_cost),
        "waiter_cost": _cost(promised.waiter_cost),
    }


def _cost(cost: Cost | None) -> dict[str, float] | None:
    if cost is None:
        return None
    return {"requests_per_hour": cost.requests, "usd_per_hour": cost.dollars}
