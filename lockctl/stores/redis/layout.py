"""Where a lock and what belongs to it live in Redis.

The lock itself is the plain key ``prefix`` + name, which any other program can be given. Its companions are
``{that key}:word``: the braces put them into the same slot of a cluster, and no lock's name can have any.
What is remembered of a lock is among them, so that nothing takes it for one.
"""

from __future__ import annotations

from lockctl.names import is_name

FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS = "fence", "queue", "live", "who", "revoke", "holders"
COMPANIONS = (FENCE, QUEUE, LIVE, WHO, REVOKE, HOLDERS)
RUNS, REFUSED, SUCCESS = "runs", "refused", "success"  # companions that no script for the lock itself needs
SHOWN_BY = (FENCE, QUEUE)  # companions that outlive the lock, by which a free lock is known
PREFIX = "lockctl:"  # unless the URL names another


def keys_of(prefix: str, name: str, owner: str = "") -> tuple[str, ...]:
    """The keys of a lock as the scripts want them; the last one belongs to *owner* alone."""
    key = prefix + name
    return (key, *[f"{{{key}}}:{word}" for word in COMPANIONS], f"{{{key}}}:gone:{owner}")


def remembered(prefix: str, name: str, word: str) -> str:
    """The key under which *word* of what is remembered of a lock stands."""
    return f"{{{prefix}{name}}}:{word}"


def wake_channel(key: str, owner: str) -> str:
    """Where a waiter is told that its turn has come."""
    return f"{{{key}}}:wake:{owner}"


def name_in(key: bytes, prefix: str, words: tuple[str, ...] = SHOWN_BY) -> str | None:
    """The name of the lock that a key of the database belongs to, if it is a lock or one of these companions."""
    text = key.decode("utf-8", "replace")
    if text.startswith("{"):
        text, brace, word = text[1:].rpartition("}:")
        if not brace or word not in words:
            return None
    if not text.startswith(prefix):
        return None
    name = text[len(prefix) :]
    return name if is_name(name) else None


def match_all(prefix: str) -> str:
    """A pattern for SCAN that matches every lock and companion (and maybe more)."""
    return "*" + "".join("\\" + char if char in "*?[]^-\\" else char for char in prefix) + "*"
