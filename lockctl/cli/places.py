"""Where a command looks: the backends that its words, variables and configuration mean, and what people call them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

from lockctl import config, registry
from lockctl.errors import LockctlError, UsageError
from lockctl.names import printable
from lockctl.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lockctl.backend import Backend
    from lockctl.model import LockInfo
    from lockctl.url import Url

    Settings = dict[str, config.Effective]
T = TypeVar("T")


class Place(Value):
    """One backend to look at."""

    url: Url
    profile: str | None = None  # its name in the configuration
    hint: str = ""  # where else the locks may be that a person looks for

    def __str__(self) -> str:
        """For people; no secret is in it."""
        return printable(str(self.url) if self.profile is None else f"{self.profile} ({self.url})")

    @property
    def label(self) -> str:
        """Its name where several are shown."""
        return printable(str(self.url) if self.profile is None else self.profile)

    def open(self) -> Backend:
        """Open it. Raises ``ConfigError``."""
        return registry.open_backend(self.url)


def url_and_settings(
    options: dict[str, str | None], config_file: str | None, lock: str | None = None
) -> tuple[Url, Settings]:
    """The URL of the backend that the options, variables and configuration mean, and all settings."""
    given: dict[str, str | bool] = {name: text for name, text in options.items() if text is not None}
    file = config.read_config(config.config_path(config_file, os.environ))
    settings = config.resolve(given, os.environ, file, lock)
    return config.backend_url(settings["backend"], os.environ, file), settings


def place(word: str | None, config_file: str | None, lock: str | None = None) -> Place:
    """The one that the options, variables and configuration mean. Raises ``UsageError``, ``ConfigError``."""
    url, settings = url_and_settings({"backend": word}, config_file, lock)
    written = settings["backend"].content
    return Place(url, None if written is None or ":" in written else written, _hint(built_in=written is None))


def _hint(*, built_in: bool) -> str:
    """What to tell a user who looks into a directory of their own, while root has one."""
    system = config.SYSTEM_DIRECTORY
    if not built_in or os.geteuid() == 0 or not os.path.isdir(system):
        return ""
    return f"root's locks are elsewhere, in {system}: see them with -b file://{system}"


def every_place(word: str | None, config_file: str | None) -> list[Place]:
    """The one that counts, and every profile of the configuration. Raises as :func:`place` does."""
    if word is not None:
        raise UsageError("--all-backends and --backend exclude each other")
    # the password of $LOCKCTL_PASSWORD is for the one that counts, and not shown to any other server
    places = [place(None, config_file)]
    file = config.read_config(config.config_path(config_file, os.environ))
    if file is None:
        return places
    from lockctl.profiles import profile_url

    for name in file.tables.get("backends", {}):
        url = profile_url(file, name)
        if name != places[0].profile:
            places.append(Place(url, name))
    return places


def ask_each(
    places: Sequence[Place], ask: Callable[[Place], T]
) -> tuple[list[tuple[Place, T]], list[tuple[Place, LockctlError]]]:
    """What each of them answers, and those that failed. One alone raises instead; several are asked at once."""
    if len(places) == 1:
        return [(places[0], ask(places[0]))], []
    answers: dict[Place, T] = {}
    failures: dict[Place, BaseException] = {}

    def serve(asked: Place) -> None:
        try:
            answers[asked] = ask(asked)
        except BaseException as failure:  # noqa: BLE001 - raised again below, unless it is an answer
            failures[asked] = failure

    threads = [threading.Thread(target=serve, args=(asked,), daemon=True) for asked in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = []
    for asked, failure in failures.items():
        if not isinstance(failure, LockctlError):
            raise failure
        failed.append((asked, failure))
    return [(asked, answers[asked]) for asked in places if asked in answers], failed


def is_known(backend: Backend, lock: LockInfo, *, timeout: float) -> bool:
    """Whether anything was ever done under the name of this lock, as far as the backend remembers."""
    if lock.state != "free" or lock.waiters or lock.last_run is not None:
        return True
    try:
        listed = any(backend.list(lock.name, timeout=timeout))
        return listed or any(backend.unused(lock.name, older_than=0.0, timeout=timeout))
    except LockctlError:
        return True  # a mistake is not claimed that may be none


def not_known(name: str, places: Sequence[Place]) -> str:
    """What to say of a name that nobody ever used there: most likely the name or the place is a mistake."""
    hints = "".join(f"; {where.hint}" for where in places if where.hint)
    return f"{name} is not known in {', '.join(map(str, places))}: nothing ever used this name there{hints}"
