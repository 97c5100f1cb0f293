"""`lockctl` for locks that are held by detached daemons, and what those leave behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockctl.registry import open_backend
from lockctl.url import parse_url
from tests.jobs import LIMIT

if TYPE_CHECKING:
    import subprocess

    from lockctl.model import LockInfo
    from tests.jobs import Lockctl

KEYS = ["name", "backend", "owner", "token", "token_domain", "fencing", "ttl", "expires_at", "pid", "socket"]


class Acquirer:
    """`lockctl` with sockets in a directory of the test, on one backend; its daemons are ended afterwards."""

    def __init__(self, lockctl: Lockctl, url: str) -> None:
        self.lockctl = lockctl
        self.runtime = lockctl.directory / ".runtime"
        self.runtime.mkdir(exist_ok=True)
        self.env = {"XDG_RUNTIME_DIR": str(self.runtime), "LOCKCTL_BACKEND": url}
        self.files = 0

    def __call__(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.lockctl(*words, env={**self.env, **options.pop("env", {})}, **options)

    def acquire(self, *words: str, name: str = "deploy", span: str = "60s", **options: Any) -> str:
        """Take the lock; the path of the handle."""
        self.files += 1
        path = str(self.runtime / f"handle-{self.files}")
        done = self("acquire", name, "--for", span, "--handle", path, *words, **options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return path

    def look(self, name: str) -> LockInfo:
        """A lock as it is, seen by no program: ``inspect`` has tests of its own."""
        with contextlib.closing(open_backend(parse_url(self.env["LOCKCTL_BACKEND"]))) as observer:
            return observer.inspect(name, timeout=LIMIT)

    def state(self) -> str:
        """Held or free."""
        return self.look("deploy").state

    def free(self) -> bool:
        """Whether nobody has it."""
        return self.state() == "free"

    def remains(self) -> list[Path]:
        """What lies beside the sockets."""
        place = self.runtime / "lockctl"
        return sorted(place.iterdir()) if place.exists() else []

    def end(self) -> None:
        """End every daemon whose socket is there."""
        for pid in [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]:
            try:
                if str(self.runtime).encode() in Path(f"/proc/{pid}/environ").read_bytes() and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


def read(path: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(path).read_text())
    assert list(document) == KEYS
    return document


def word(done: subprocess.CompletedProcess[str]) -> tuple[int, str]:
    assert done.stdout == ""
    assert done.stderr.count("\n") <= 1
    return done.returncode, done.stderr.strip()
