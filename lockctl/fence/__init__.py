"""The resource's side of a lock: a mark that only rises, and a refusal for every token below it.

A lock alone cannot stop a holder that was paused between "the lock is mine" and "I write". The resource can: it
remembers the highest fencing token that it has seen, and refuses lower ones. For that the new holder must show its
token *before its first read* (:func:`advance`), and every writer again with its write (:func:`check`); compare and
record are one atomic, durable step in the store of the mark. See ``lockctl-fencing(7)``.

::

    from lockctl import fence

    mine = fence.own_mark(os.environ)               # from $LOCKCTL_TOKEN and $LOCKCTL_TOKEN_DOMAIN
    fence.advance("/srv/stock.json", mine)          # before the first read
    with fence.holding("/srv/stock.json", mine):    # checked, and nobody can advance the mark until the block ends
        ...

Importing this needs no client library; a store loads its own when it is opened.
"""

from __future__ import annotations

from lockctl.fence.holder import advance, check, current, holding, own_mark, put, reset
from lockctl.fence.location import Location, locate
from lockctl.fence.mark import LARGEST, Mark, Stale, parse_mark, parse_token
from lockctl.fence.store import Store

__all__ = [
    "LARGEST",
    "Location",
    "Mark",
    "Stale",
    "Store",
    "advance",
    "check",
    "current",
    "holding",
    "locate",
    "own_mark",
    "parse_mark",
    "parse_token",
    "put",
    "reset",
]
