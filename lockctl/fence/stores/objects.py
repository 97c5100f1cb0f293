"""Marks of objects that are replaced as a whole: S3, and HTTP servers that honour If-Match.

The mark of the object KEY lies in an object beside it, ``KEY.lockctl-fence``, whose text is ``DOMAIN;TOKEN``. It is
read with its ETag, compared, and replaced only if it still has that ETag (``If-Match``; ``If-None-Match: *`` where
there is none yet): one atomic step, because whoever is slower is refused (412), reads again and decides again.

Why not in the metadata of the object itself: the ETag of S3 is a hash of the content alone. A mark in the metadata
could rise without a change of the ETag, and a slower writer with a lower token would not be refused. The content of
``KEY.lockctl-fence`` *is* the mark: the same ETag means the same mark, whatever happened in between.

The data is written with :meth:`ObjectStore.put`: its ETag is read, then the mark is advanced or looked at, then the
data is replaced if it still has that ETag, then the mark is looked at once more. A write that was acknowledged
therefore happened before any higher token came; and no older writer replaces it, because the ETag of such a writer was
read before the higher token came, and so before the data that was written under it.

What no condition finds out: on S3 equal contents have equal ETags. Who was paused between its look at the data and its
write replaces newer data with the very content that it had seen, and is told so (:class:`Overtaken`) too late.
"""

from __future__ import annotations

import os
import random
import time

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.mark import Mark, Stale, accept, parse_mark
from lockctl.names import printable
from lockctl.wire.deadline import Deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import ClassVar

    from lockctl.fence.stores.space import Seen, Space

SUFFIX = ".lockctl-fence"  # of the object with the mark
LARGEST = 4096  # bytes of a mark: a longer object is none
TICK = 0.012  # seconds: times of files are those of the kernel's last tick, up to 10 ms ago
LONGEST_PAUSE = 0.1  # seconds before the next try, when another was faster


class ObjectStore:
    """A ``Store`` of marks of objects in one bucket or on one server, which it can write under a token."""

    lockable: ClassVar[bool] = False
    parameters: ClassVar[dict[str, str]] = {}

    def __init__(self, space: Space) -> None:
        """Nothing is sent yet."""
        self._space = space
        self._matches = False  # whether it was seen that the server honours If-Match
        self._creates = False  # the same for If-None-Match, and that ETags change with the content

    def shown(self, resource: str) -> str:
        """The URL of the object, without credentials, for messages."""
        return self._space.shown(self._key(resource))

    def advance(self, resource: str, mark: Mark, *, timeout: float) -> Mark:
        return self._advance(self._key(resource), mark, Deadline(timeout))

    def current(self, resource: str, *, timeout: float) -> Mark | None:
        key = self._key(resource)
        return self._mark(key, self._space.read(key + SUFFIX, LARGEST, Deadline(timeout)))

    def reset(self, resource: str, mark: Mark | None, *, timeout: float) -> Mark | None:
        key, deadline = self._key(resource), Deadline(timeout)
        while True:
            seen = self._space.read(key + SUFFIX, LARGEST, deadline)
            if seen is None and mark is None:
                return None
            try:
                before = self._mark(key, seen)
            except ConfigError:
                before = None  # damaged: this is how it is repaired
            if mark is None:
                done = seen is None or self._space.remove(key + SUFFIX, seen.etag, deadline)
            else:
                done = self._record(key, mark, seen, deadline)
            if done:
                return before
            self._pause(key, deadline)

    def holding(self, resource: str, mark: Mark, *, timeout: float) -> AbstractContextManager[None]:
        """See ``Store``: raises ``ConfigError``, there is nothing to lock in such a store."""
        why = "the mark of an object cannot be held: use `lockctl fence write`, or fence.put()"
        raise ConfigError(f"{self.shown(resource)}: {why}")

    def put(self, resource: str, body: bytes, mark: Mark, *, timeout: float) -> None:
        """Replace the data of *resource*, or make it, under the token of *mark*.

        When this returns, the data was written before any higher token came, and no older writer can replace it; on
        S3 only if the content differs from those before, because equal contents have equal ETags.
        Raises ``Stale`` (nothing was written, or it was replaced since), ``Overtaken`` (a higher token came while it
        was written: who has it may have read the data before or after), ``ConfigError``, and ``BackendUnavailable``
        (not known).
        What else belongs to the object stays: its type, and on S3 its metadata; not its ACL and tags.
        """
        key, deadline = self._key(resource), Deadline(timeout)
        shown, refused = self._space.shown(key), False
        while True:
            before = self._space.head(key, deadline)
            # after the ETag was read: whoever has a higher token by now is found here, and the data that one with a
            # higher token writes from here on has another ETag
            try:
                self._advance(key, mark, deadline)
            except Stale as stale:
                # a refused write may have been the second try of one that was done, whose answer was lost
                seen = self._space.read(key, len(body) + 1, deadline) if refused else None
                if seen is None or seen.data != body:
                    raise
                raise Overtaken(shown, mark, stale.current) from None
            # that there is a mark says that the rest was proved here when it was made
            self._prove(key, deadline, creating=before is None)
            if self._space.write(key, body, before.etag if before else None, deadline, mark, before):
                break
            refused = True
            self._pause(key, deadline)
        now = self._mark(key, self._space.read(key + SUFFIX, LARGEST, deadline))
        try:
            accept(shown, now, mark)
        except Stale as stale:
            raise Overtaken(shown, mark, stale.current) from None

    def check_durable(self, *, timeout: float) -> None:
        """See ``Store``: there is nobody to ask."""
        del timeout

    def close(self) -> None:
        self._space.close()

    def _key(self, resource: str) -> str:
        """The path of a resource: that of its URL, or a name below the path of the store's URL."""
        key = resource if resource.startswith("/") else f"{self._space.root.rstrip('/')}/{resource}"
        parts = key.split("/")
        if not parts[-1] or not {".", ".."}.isdisjoint(parts):
            raise ConfigError(f"{self._space.shown(key)}: no object: the path must end with a name, without . and ..")
        return key

    def _advance(self, key: str, mark: Mark, deadline: Deadline) -> Mark:
        while True:
            seen = self._space.read(key + SUFFIX, LARGEST, deadline)
            current = self._mark(key, seen)
            if not accept(self._space.shown(key), current, mark) or self._record(key, mark, seen, deadline):
                return mark
            self._pause(key, deadline)

    def _record(self, key: str, mark: Mark, seen: Seen | None, deadline: Deadline) -> bool:
        self._prove(key, deadline, creating=seen is None)
        data = _text(mark, self._space.sizes)
        return self._space.write(key + SUFFIX, data, seen.etag if seen else None, deadline, mark)

    def _mark(self, key: str, seen: Seen | None) -> Mark | None:
        if seen is None:
            return None
        try:
            return parse_mark(seen.data.decode("utf-8").rstrip(" \n"))
        except ValueError:
            where = self._space.shown(key + SUFFIX)
            beginning = printable(seen.data[:40].decode("utf-8", "replace"))
            raise ConfigError(
                f"{where}: not a mark of lockctl, it begins with {beginning!r}:"
                " look whose it is, then use: lockctl fence reset"
            ) from None

    def _prove(self, key: str, deadline: Deadline, *, creating: bool) -> None:
        """See that the server does not ignore conditions, as some servers and proxies do silently; once per store.

        All of it happens on an object of its own, which is there for a moment, and only if it must be.
        """
        probe = f"{key}{SUFFIX}-probe-{os.urandom(8).hex()}"
        shown = self._space.shown(key)
        if not self._matches:
            if self._space.write(probe, b"1", f'"{os.urandom(16).hex()}"', deadline, None):
                self._tidy(probe, deadline)
                raise ConfigError(f"{shown}: the server, or a proxy before it, ignores If-Match: it cannot keep a mark")
            self._matches = True
        if not creating or self._creates:
            return
        try:
            if not self._write_surely(probe, b"1", None, deadline):
                raise ConfigError(f"{shown}: If-None-Match: * is refused for an object that is not there")
            if self._space.write(probe, b"2", None, deadline, None):
                raise ConfigError(
                    f"{shown}: the server, or a proxy before it, ignores If-None-Match: it cannot keep a mark"
                )
            first = self._space.head(probe, deadline)
            for content, pause in ((b"3", 0.0), (b"4", TICK)):
                time.sleep(min(pause, deadline.left()))
                if first is None or not self._write_surely(probe, content, first.etag, deadline):
                    raise ConfigError(f"{shown}: the server refuses If-Match with the ETag that it gave")
                second = self._space.head(probe, deadline)
                if second is not None and second.etag != first.etag:
                    break
            else:
                raise ConfigError(
                    f"{shown}: ETags stay the same when the content changes (an ETag must not be made of the size and"
                    " of whole seconds): it cannot keep a mark"
                )
        finally:
            self._tidy(probe, deadline)
        self._creates = True

    def _write_surely(self, probe: str, data: bytes, etag: str | None, deadline: Deadline) -> bool:
        """Write; a refusal may be that of a second try, when the answer to the first was lost."""
        if self._space.write(probe, data, etag, deadline, None):
            return True
        seen = self._space.read(probe, LARGEST, deadline)
        return seen is not None and seen.data == data

    def _tidy(self, probe: str, deadline: Deadline) -> None:
        try:
            self._space.remove(probe, "*", deadline)
        except (BackendUnavailable, ConfigError):
            pass  # a few bytes that nobody reads; what went wrong is told by who called

    def _pause(self, key: str, deadline: Deadline) -> None:
        """Another was faster: wait a moment that differs from writer to writer."""
        time.sleep(min(random.random() * LONGEST_PAUSE, deadline.left()))  # noqa: S311 - no secret
        deadline.check(self._space.shown(key))


class Overtaken(Stale):
    """The data was replaced, but a higher token had come by then: this write must not be relied upon.

    Its new holder may have read the data before it, and will then replace it; or after it.
    """

    def __init__(self, resource: str, offered: Mark, current: Mark) -> None:
        """*current* is the mark that was found after the write."""
        super().__init__(resource, offered, current)
        self.args = (
            f"{resource}: token {current.token} came while token {offered.token} wrote: do not rely on this write",
        )


def _text(mark: Mark, sizes: int) -> bytes:
    """The content of the object of a mark. Raises ``ConfigError`` for one that could not be read again."""
    text = str(mark)
    try:
        sound = parse_mark(text) == mark
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(f"{printable(text[:40])!r}: a mark is the printable domain of a counter, and a token from 1")
    return (text + " " * (mark.token % sizes) + "\n").encode()
