"""lockctl.cli.output: what is shown, and what is not."""

from __future__ import annotations

import pytest

from lockctl.cli.output import without_secrets


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("prod", "prod"),
        ("file:///var/lock/a@b?prefix=x", "file:///var/lock/a@b?prefix=x"),
        ("redis://user:S3CR3T%40@h:1,h:2/0?prefix=x:&password_file=S3CR3T", "redis://user@h:1,h:2/0?prefix=x:"),
        ("postgresql://ops:S3CR3T@db/locks", "postgresql://ops@db/locks"),
        ("postgresql://ops@db/locks", "postgresql://ops@db/locks"),
        ("redis:/ops:S3CR3T@h/0", "redis://h/0"),
        ("redis:///:S3CR3T@h/0", "redis://h/0"),
        ("redis://:S3/CR3T@h/0", "redis://h/0"),
        ("redis//S3CR3T@h", "h"),
        ("consul://S3CR3T@h/", "consul://h/"),
        ("azblob://S3CR3T@c/locks?account=a", "azblob://c/locks?account=a"),
        ("redis+unix://:S3CR3T@/run/redis", "redis+unix:///run/redis"),
        ("redis+unix:///run/redis@1", "redis+unix:///run/redis@1"),
        ("consul://:S3CR3T@h/?token_command=echo+S3CR3T", "consul://h/"),
        ("redis://h/?p%61ssword_command=S3CR3T&ca=/ca", "redis://h/?ca=/ca"),
    ],
)
def test_a_backend_is_shown_as_it_was_written_without_its_secrets(written: str, shown: str) -> None:
    assert without_secrets(written) == shown
