"""What ``list``, ``watch``, ``history`` and ``inspect`` are asked for: where, which locks, in which order and form."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from lockctl.cli import exit_status
from lockctl.cli.messages import Talk
from lockctl.cli.options import AS_JSON
from lockctl.cli.output import json_array, print_data
from lockctl.cli.parameters import OneOf, SomeOf
from lockctl.cli.places import Place, every_place, place
from lockctl.cli.rows import place_of
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lockctl.errors import LockctlError
    from lockctl.model import LockInfo

FORMS = ("wide", "json", "yaml", "name")
STATES = ("held", "foreign", "free")
LAST = float("inf")  # in an order: what is not known
# key -> what it orders by; equal ones stay in the order of their names
SORTS: dict[str, Callable[[LockInfo], Any]] = {
    "name": lambda lock: lock.name,
    "state": lambda lock: STATES.index(lock.state),
    "holder": lambda lock: (not lock.holders, place_of(lock.holders[0]) if lock.holders else ""),
    "token": lambda lock: min((-(holder.token or 0) for holder in lock.holders), default=1),
    "age": lambda lock: min((holder.acquired_at or LAST for holder in lock.holders), default=LAST),
    "expires": lambda lock: min(
        (LAST if holder.expires_in is None else holder.expires_in for holder in lock.holders), default=LAST
    ),
    "waiters": lambda lock: -len(lock.waiters or ()),
}
# of YAML, as it is: letters first, so that it is neither a number nor a date; no colon, so that it is not a mapping
PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._+@-]*\Z")
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # that are values of another type


class Query(Value):
    """What the options say."""

    backend: str | None
    config: str | None
    all_backends: bool = False
    output: str = ""
    as_json: bool = False
    states: tuple[str, ...] = ()
    sort: str = "name"
    everything: bool = False

    @property
    def form(self) -> str:
        """One of ``FORMS``; empty: the usual one for people."""
        return "json" if self.as_json else self.output

    @property
    def for_people(self) -> bool:
        """Whether a person reads it: then the place is named on stderr."""
        return self.form in ("", "wide")

    def places(self, lock: str | None = None) -> list[Place]:
        """Where to look. Raises ``UsageError``, ``ConfigError``."""
        if self.all_backends:
            return every_place(self.backend, self.config)
        return [place(self.backend, self.config, lock)]

    def wants(self, lock: LockInfo) -> bool:
        """Whether to show a lock: by default one that somebody holds or waits for."""
        if self.states:
            return lock.state in self.states
        return self.everything or lock.state != "free" or bool(lock.waiters)

    def labelled(self, document: dict[str, Any], where: Place) -> dict[str, Any]:
        """A document that says where it is from, if there are several places."""
        return {**document, "profile": where.profile} if self.all_backends else document

    def print(self, documents: Iterable[tuple[Place, dict[str, Any]]]) -> None:
        """Documents in the form that is wanted, which is not one for people."""
        print_documents(self.form, [self.labelled(document, where) for where, document in documents])


def ordered(found: Sequence[tuple[Place, LockInfo]], sort: str) -> list[tuple[Place, LockInfo]]:
    """The same in an order of ``SORTS``; backends stay together where it does not say otherwise."""
    return sorted(found, key=lambda each: (SORTS[sort](each[1]), each[1].name, each[0].label))


OUTPUT = click.option(
    "-o", "--output", type=OneOf(FORMS), default="", metavar="|".join(FORMS), help="Print in this form."
)
ALL_BACKENDS = click.option(
    "--all-backends", is_flag=True, help="Look into every backend of the configuration, not only the one in use."
)


def state_option(states: tuple[str, ...], what: str) -> Callable[[Any], Any]:
    """``--state`` for one or several of these words."""
    return click.option("--state", "states", type=SomeOf(states), default="", metavar="STATE,...", help=what)


def sort_option(keys: Iterable[str], default: str) -> Callable[[Any], Any]:
    """``--sort`` by one of these."""
    words = tuple(keys)
    return click.option(
        "--sort",
        type=OneOf(words),
        default=default,
        metavar="KEY",
        show_default=True,
        help="Order: " + ", ".join(words),
    )


def with_query(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``-o``, ``--json`` and ``--all-backends``."""
    return OUTPUT(AS_JSON(ALL_BACKENDS(command)))


def print_documents(form: str, documents: Iterable[dict[str, Any]]) -> None:
    """Many documents in the form ``json``, ``yaml`` or ``name``."""
    if form == "json":
        print_data(json_array(json.dumps(document, indent=2) for document in documents))
    elif form == "yaml":
        print_data(to_yaml(list(documents)))
    else:
        print_data("\n".join(document["name"] for document in documents))


def say_failures(failed: Sequence[tuple[Place, LockctlError]]) -> int:
    """Tell which of several backends could not be asked; the status."""
    talk = Talk()
    for where, failure in failed:
        talk("error", f"{where.label}: {failure}")
    return exit_status.of_error(failed[0][1]) if failed else exit_status.OK


def to_yaml(document: object) -> str:
    """One document, a mapping or a sequence, with a newline at its end."""
    return "\n".join(_block(document)) + "\n"


def _block(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, content in value.items():
            yield from _entry(f"{_scalar(key)}:", content)
    elif isinstance(value, list) and value:
        for content in value:
            lines = list(_block(content))
            yield f"- {lines[0]}"
            yield from ("  " + line for line in lines[1:])
    else:
        yield _scalar(value)


def _entry(key: str, content: object) -> Iterator[str]:
    if isinstance(content, (dict, list)) and content:
        yield key
        yield from ("  " + line for line in _block(content))
    else:
        yield f"{key} {_scalar(content)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and PLAIN.match(value) and value.lower() not in WORDS:
        return value
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(char) for char in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if "\ud800" <= char <= "\udfff":  # a byte of a path that is no text: YAML can write no half of a character
        char = "\ufffd"
    return char if char.isprintable() else f"\\U{ord(char):08x}"
