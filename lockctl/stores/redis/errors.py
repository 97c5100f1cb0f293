"""What the errors that Redis answers with mean for a lock."""

from __future__ import annotations

from lockctl.errors import BackendUnavailable, ConfigError, LockctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.wire.resp import ReplyError

ADVICE = {  # what a person must change; the rest may pass by itself
    "NOAUTH": "the server wants a password: write it into the URL, or name its file with password_file=",
    "WRONGPASS": "the server does not accept the user name or the password",
    "NOPERM": "the user may not do what a lock needs",
    "DENIED": "the server runs in protected mode and takes no connections from other hosts without a password",
    "MOVED": "this is a node of a Redis cluster, which is not served: name a single primary",
    "CROSSSLOT": "this is a node of a Redis cluster, which is not served: name a single primary",
    "WRONGTYPE": "a companion key of the lock holds what is not lockctl's: delete it, or use another prefix",
}
FULL = "max number of clients"
RAISE_LIMIT = "it has as many clients as it may have: raise maxclients there, and ulimit -n of its process"
RENAMED = "a command that a lock needs is not there (rename-command in redis.conf): lockctl doctor says which"
NAME = frozenset("abcdefghijklmnopqrstuvwxyz|-_.")  # what the name of a command is made of
PASSING = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "NOREPLICAS", "OOM", "MISCONF", "TRYAGAIN")


def code_of(error: ReplyError) -> str:
    """The code of an error; before Redis 7, that of an error inside a script stands somewhere in its text."""
    if error.code != "ERR":
        return error.code
    if error.text.startswith("Protocol error: unauthenticated"):
        return "NOAUTH"  # the server reads nothing as long as a script's call before a login
    if "user executing the script can't" in error.text or error.text.startswith("ACL failure in script"):
        return "NOPERM"  # how Redis 7.0 says it inside a script, and how newer ones do
    for word in error.text.split():
        plain = word.lstrip("-")
        if plain in ADVICE or plain in PASSING:
            return plain
    return error.code


def _missing(text: str) -> str:
    """Which right is missing, by the text of a refusal, and what grants it."""
    command = text.partition("run the '")[2].partition("'")[0]
    if command and NAME.issuperset(command):
        return f"it may not run {command}: ACL SETUSER its-name +{command}"
    if "channel" in text:
        return "it may not use the channel: ACL SETUSER its-name &{PREFIX*, with the prefix of the URL (lockctl:)"
    if "key" in text:
        return (
            "it may not use a key: ACL SETUSER its-name ~PREFIX* ~{PREFIX*, with the prefix of the URL (lockctl:,"
            " of marks lockctl-fence:)"
        )
    # Redis 7.0 does not name a command that a script may not run
    return (
        "it may not run a command of a script: ACL SETUSER its-name +@all -@admin -@dangerous, or what"
        " lockctl-backends(7) has for locks and lockctl-fence(1) for marks"
    )


def refusal(where: str, error: ReplyError) -> LockctlError:
    """The error to raise for an answer to anything but AUTH."""
    code = code_of(error)
    if code in ADVICE:
        if code == "NOPERM":
            return ConfigError(f"{where}: {ADVICE[code]} (NOPERM): {_missing(error.text)}")
        return ConfigError(f"{where}: {ADVICE[code]} ({code})")
    if error.code == "ERR" and error.text.startswith(("unknown command", "DB index", "invalid DB", "SELECT is not")):
        return ConfigError(f"{where}: {error.text}")
    if "Unknown Redis command called from" in error.text:
        return ConfigError(f"{where}: {RENAMED}")
    if code == "READONLY":
        return BackendUnavailable(f"{where}: a replica, which cannot be written to (READONLY): name the primary")
    if FULL in error.text:
        return BackendUnavailable(f"{where}: {RAISE_LIMIT}")
    text = error.text.partition(" script: ")[0]  # which line of ours it was is of no use to anybody
    return BackendUnavailable(f"{where}: {error.code} {text}")


def refused_authentication(where: str, error: ReplyError) -> LockctlError:
    """The error to raise for an answer to AUTH; its text may repeat the password, so it is not shown."""
    if error.code in PASSING:
        return BackendUnavailable(f"{where}: {error.code}")
    if error.code == "ERR" and "without any password configured" in error.text:
        return ConfigError(f"{where}: the server has no password, and the URL or $LOCKCTL_PASSWORD has one")
    if FULL in error.text:
        return BackendUnavailable(f"{where}: {RAISE_LIMIT}")
    return ConfigError(f"{where}: {ADVICE['WRONGPASS']} ({error.code})")
