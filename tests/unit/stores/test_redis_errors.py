"""What servers of all versions say when a user lacks a right that a script needs, as they have said it."""

from __future__ import annotations

import pytest

from lockctl.errors import ConfigError
from lockctl.stores.redis.errors import refusal
from lockctl.wire.resp import ReplyError

SCRIPT = "Error running script (call to f_2e02): @user_script:1: @user_script: 1: "
CANNOT = "The user executing the script can't"
REFUSALS = {
    "6.2, a command": (f"{SCRIPT}{CANNOT} run this command or subcommand", "a command of a script"),
    "6.2, a key": (f"{SCRIPT}{CANNOT} access at least one of the keys mentioned in the command arguments", "a key"),
    "6.2, a channel": (f"{SCRIPT}{CANNOT} publish to the channel mentioned in the command", "the channel"),
    "8.0, a command": (
        "ACL failure in script: User narrow has no permissions to run the 'set' command script: 2e02, on @user_script:1.",
        "it may not run set: ",
    ),
    "8.0, a key": ("ACL failure in script: No permissions to access a key script: 7c46, on @user_script:1.", "a key"),
    "8.0, a channel": (
        "ACL failure in script: No permissions to access a channel script: a58b, on @user_script:1.",
        "the channel",
    ),
    "Valkey 9.1, a command": (
        "ACL failure in script: User narrow has no permissions to run the 'set' command script: on @user_script:1.",
        "it may not run set: ",
    ),
}


@pytest.mark.parametrize(("text", "missing"), REFUSALS.values(), ids=REFUSALS)
def test_a_missing_right_is_a_wrong_configuration_and_is_named(text: str, missing: str) -> None:
    refused = refusal("here", ReplyError("ERR", text))
    assert isinstance(refused, ConfigError)
    assert "NOPERM" in str(refused)
    assert missing in str(refused)
