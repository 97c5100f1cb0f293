"""Names of locks, and the cleaning of text that somebody else wrote."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

QUOTING = frozenset("'\"\\`$")  # after these a value may go on behind a blank
LONGEST = 200
LONGEST_DOMAIN = 300  # characters
LONGEST_DOMAIN_NAME = 64
LARGEST_PRIME = 4294967291  # below 2**32
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@+-")
MOST_SHOWN, LONGEST_SHOWN = 5, 50  # of names in a message, and characters of one


def check_name(name: str) -> str:
    """Give *name* back if it can name a lock; raises ``ValueError`` with one line that says why not."""
    if not name:
        raise ValueError("a lock name cannot be empty")
    if len(name) > LONGEST:
        raise ValueError(f"lock name {name[:20]!r}... has {len(name)} characters, at most {LONGEST} are allowed")
    if not ALLOWED.issuperset(name):
        char = next(char for char in name if char not in ALLOWED)
        raise ValueError(f"lock name {name!r} has {char!r}: only ASCII letters, digits and ._:@+- are allowed")
    if name[0] in ".-":
        raise ValueError(f"lock name {name!r} cannot start with {name[0]!r}")
    return name


def is_name(name: str) -> bool:
    """Whether *name* can name a lock."""
    try:
        return bool(check_name(name))
    except ValueError:
        return False


def derived_name(words: tuple[str, ...]) -> str:
    """The lock name of a command that was given none: base name and a short hash of all its words."""
    whole = b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)
    digest = f"{remainder(whole):08x}"
    first = _program(words[0]).rsplit("/", 1)[-1]
    base = "".join(char if char in ALLOWED else "_" for char in first)
    base = base.lstrip(".-")[: LONGEST - 9] or "command"
    return f"{base}-{digest}"


def _program(line: str) -> str:
    """The first word of a line for a shell that is no assignment; empty if it is not sure: a value may be a secret."""
    for word in line.split():
        name, equals, content = word.partition("=")
        if not equals or "/" in name:
            return word
        if not name.isidentifier() or not QUOTING.isdisjoint(content):
            break  # such as A+=B, or an assignment behind a bracket
    return ""


def remainder(data: bytes) -> int:
    """A number below 2**32 that tells texts apart, and torn writes from whole ones; no defence against malice.

    Any hash of the standard library takes longer to load than a lock to take; one division does here.
    """
    return int.from_bytes(b"\1" + data, "big") % LARGEST_PRIME


def domain_name(address: str) -> str:
    """The name that a store is given by the first client that finds none there, by which tokens of two stores differ.

    It follows from the *address* that this client has. So a store whose data was lost gets its name again: its tokens
    are above all before them, and the resources that have seen those go on.
    """
    from hashlib import sha256  # a store is named once in its life

    return sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def read_domain_name(data: bytes) -> str | None:
    """The name that a store was given, see :func:`domain_name`; ``None``: *data* is none."""
    name = data.decode("ascii", "replace")
    return name if name.isalnum() and name.isascii() and len(name) <= LONGEST_DOMAIN_NAME else None


def token_domain(text: str) -> str:
    """*text* as the domain of tokens, which every resource can keep: printable, and of at most 300 characters.

    Usual ones stay as they are. Of others there is the beginning, and a number that tells them apart.
    """
    if len(text) <= LONGEST_DOMAIN and text.isprintable():
        return text
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return f"{plain[: LONGEST_DOMAIN - 9]}-{remainder(text.encode('utf-8', 'surrogatepass')):08x}"


def printable(text: str) -> str:
    """*text* with every control, formatting or undecodable character replaced, safe for a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def some_of(names: Iterable[str]) -> str:
    """The first of some names that another program has told, each cut, as part of a message; empty without any."""
    known = list(names)
    shown = [printable(name)[:LONGEST_SHOWN] for name in known[:MOST_SHOWN]]
    return ", ".join(shown) + (" and others" if len(known) > MOST_SHOWN else "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about *word*, which is none of those that are known; empty if it is like none of them."""
    from difflib import get_close_matches  # only who makes a mistake waits for it

    close = get_close_matches(word, known, n=1, cutoff=0.65)
    return f": did you mean {close[0]!r}?" if close else ""


def json_string(text: str) -> str:
    """*text* as a JSON string in ASCII; what is not text (a lone surrogate) becomes a question mark."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    clean = text.encode("utf-8", "replace").decode()
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        import json

        return json.dumps(clean)
    quoted: str = encode_basestring_ascii(clean)
    return quoted


def command_line(words: tuple[str, ...] | list[str]) -> str:
    """A command as one printable line, quoted so that it can be read, not so that it can be run."""
    shown = []
    for word in words:
        clean = printable(word)
        plain = clean and not any(char in " '\"\\$`|&;<>()*?[]#~!{}" for char in clean)
        shown.append(clean if plain else "'" + clean.replace("'", "'\\''") + "'")
    return " ".join(shown)
