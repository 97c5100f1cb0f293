"""A cron daemon of our own, in a mount namespace where neither the machine's crontabs nor its mail exist."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from tests.jobs import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# $1: a directory with `crontab`, a crontab of root, and `mail`, an empty file. Everything that is mounted is private.
NAMESPACE = r"""
set -eu
mount -t tmpfs -o mode=755 crontabs /var/spool/cron
install -d -o root -g crontab -m 1730 /var/spool/cron/crontabs
install -o root -g crontab -m 600 "$1/crontab" /var/spool/cron/crontabs/root
mount -t tmpfs -o mode=755 run /run
if test -d /etc/cron.d; then mount -t tmpfs -o mode=755 entries /etc/cron.d; fi
if test -e /etc/crontab; then mount --bind /dev/null /etc/crontab; fi
cp "$(command -v cron)" "$1/cron"
mount -t tmpfs -o mode=755 sbin /usr/sbin
printf '#!/bin/sh\ncat >>"%s"\n' "$1/mail" >/usr/sbin/sendmail
chmod 755 /usr/sbin/sendmail
exec "$1/cron" -f
"""
START = 3.0  # seconds that the daemon needs at most to read its crontabs


class Cron:
    """Debian's cron with one crontab of root; ended with everything it started."""

    def __init__(self, unshare: str, directory: Path, entries: Sequence[str]) -> None:
        self.directory = directory
        self.mail = directory / "mail"
        self.mail.touch()
        (directory / "crontab").write_text("".join(f"{entry}\n" for entry in entries))
        if time.time() % 60 > 60 - START:
            time.sleep(60 - time.time() % 60)  # an entry that cron reads too late would run a minute later
        # a pid namespace of its own: the kernel ends with the daemon whatever it has started
        namespace = ("--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
        with (directory / "errors").open("w") as errors:
            self.process = subprocess.Popen(
                [unshare, *namespace, "sh", "-c", NAMESPACE, "sh", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def await_minute(self) -> None:
        """Return when the next minute has begun."""
        end = (time.time() // 60 + 1) * 60
        eventually(lambda: time.time() > end or self.process.poll() is not None, 62, pause=0.1)
        assert self.process.poll() is None, (self.directory / "errors").read_text()

    def end(self) -> None:
        """Kill the daemon and, with it, its namespaces."""
        self.process.kill()
        self.process.wait(LIMIT)
