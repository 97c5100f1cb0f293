"""What would break locks in etcd, asked member by member through the JSON gateway, as locks use it."""

from __future__ import annotations

from contextlib import ExitStack

from lockctl.errors import BackendUnavailable, LockctlError
from lockctl.finding import FAIL, WARN, WHOLE_SECONDS, Check, Examination
from lockctl.names import printable
from lockctl.stores.etcd import address
from lockctl.stores.etcd.connection import Denied
from lockctl.stores.etcd.layout import as_bytes, coded
from lockctl.stores.etcd.lock import EtcdBackend
from lockctl.stores.etcd.protocol import Cluster
from lockctl.url import Url, take_params
from lockctl.wire.http import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.wire.deadline import Deadline
    from lockctl.wire.stream import Endpoint

    Ask = Callable[[str, dict[str, Any]], dict[str, Any]]

PATIENCE = 3.0  # seconds for one answer
QUOTA, SIZE = "etcd_server_quota_backend_bytes ", "etcd_mvcc_db_total_size_in_bytes "  # metrics
NAME = "lockctl-doctor"  # of the key that is never written
MIB = 1 << 20
FULL = 0.8  # part of the quota
STUCK = "a leader that was stuck in a write can end leases when it continues"
DIFFER = "a member that is killed can come back with other data than the others"
# versions with errors that break locks: the first one, the first without it
BROKEN = (
    ((), (3, 4), FAIL, "has no JSON gateway as lockctl needs it"),
    ((3, 4), (3, 4, 31), WARN, STUCK),
    ((3, 5), (3, 5, 3), FAIL, DIFFER),
    ((3, 5, 3), (3, 5, 13), WARN, STUCK),
)

MEMBERS = Check(
    "etcd.members",
    "Locks outlive the failure of a member only where a majority is left, and a client goes on only with members"
    " that its URL names.",
    "run 3 or 5 members, name all of them in the URL: etcdctl member list",
)
VERSION = Check("etcd.version", "This version has an error that breaks locks, or is too old for them.", "upgrade etcd")
ALARM = Check(
    "etcd.alarm",
    "A cluster without space refuses to write, and one with a corrupt member cannot be trusted.",
    "etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm; replace a member that is corrupt",
)
SPACE = Check(
    "etcd.space",
    "When the database reaches its quota, no lock can be acquired or renewed.",
    "etcdctl compact REVISION; etcdctl defrag, and set auto-compaction-retention, or raise quota-backend-bytes",
)
AUTH = Check(
    "etcd.auth",
    "Where there are no users, everybody who reaches a member can delete locks.",
    "etcdctl user add root; etcdctl auth enable, or ask for client certificates (client-cert-auth)",
)
RIGHTS = Check(
    "etcd.rights",
    "Without these rights a lock cannot be acquired.",
    "etcdctl role grant-permission ROLE readwrite {prefix} --prefix",
)
CHECKS = (MEMBERS, VERSION, ALARM, SPACE, AUTH, RIGHTS)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at all members of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    params = take_params(url, EtcdBackend.parameters)
    prefix = found.words["prefix"] = params["prefix"]
    key = coded(as_bytes(prefix + NAME))
    members = address.members(url, params)
    versions: dict[Endpoint, str] = {}
    missing: list[str] = []
    with ExitStack() as ends:

        def cluster(*of: Endpoint, user: str | None, password: str | None) -> Ask:
            made = Cluster(of, user, password)
            ends.callback(made.close)
            return lambda path, request: made.call(path, request, deadline.sooner(PATIENCE))

        for member in members:
            try:
                versions[member] = _version_of(member, cluster(member, user=url.user, password=url.password), deadline)
            except LockctlError as problem:
                missing.append(str(problem))
        if not versions:
            raise BackendUnavailable("; ".join(missing))
        ask = cluster(*members, user=url.user, password=url.password)
        found.measure(lambda: ask("/v3/kv/range", {"key": key})["date"], WHOLE_SECONDS)
        _judge_members(ask, len(members), missing, found)
        _judge_version(sorted(set(versions.values())), found)
        _judge_space(next(iter(versions)), ask, found, deadline)
        _judge_rights(ask, key, found)
        stranger = cluster(*members, user=None, password=None)
        _judge_access(stranger, key, found, shows_certificate=bool(params["cert"]))


def _version_of(member: Endpoint, ask: Ask, deadline: Deadline) -> str:
    """The version of one member. Raises ``BackendUnavailable``, ``ConfigError``."""
    try:
        return printable(str(ask("/v3/maintenance/status", {}).get("version", "")))
    except Denied:  # newer ones tell their status to root alone, and this to everybody
        client = Client(member)
        try:
            answer = client.request("GET", "/version", deadline.sooner(PATIENCE)).json()
        finally:
            client.close()
    return printable(str(answer.get("etcdserver", ""))) if isinstance(answer, dict) else ""


def _judge_members(ask: Ask, named: int, missing: list[str], found: Examination) -> None:
    answer = ask("/v3/cluster/member/list", {})
    count = len([each for each in answer.get("members", ()) if not each.get("isLearner")])
    plural = "" if count == 1 else "s"
    seen = "; ".join([f"{count} member{plural}, {named} in the URL, of which {named - len(missing)} answer", *missing])
    found.judge(MEMBERS, seen, warns=count < 3 or count % 2 == 0 or named < count or bool(missing))


def _judge_version(versions: list[str], found: Examination) -> None:
    problems = [(text, *problem) for text in versions if (problem := problem_of(text)) is not None]
    seen = "; ".join([", ".join(versions), *(f"{text}: {what}" for text, _, what in problems)])
    found.judge(VERSION, seen, fails=any(level == FAIL for _, level, _ in problems), warns=bool(problems))


def problem_of(version: str) -> tuple[str, str] | None:
    """How bad the known errors of a version are for locks, and what happens; ``None``: there are none."""
    parts = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
    return next(((level, what) for first, mended, level, what in BROKEN if first <= parts < mended), None)


def _judge_space(member: Endpoint, ask: Ask, found: Examination, deadline: Deadline) -> None:
    client = Client(member)
    try:
        answer = client.request("POST", "/v3/maintenance/alarm", deadline.sooner(PATIENCE), body=b'{"action": "GET"}')
        # of 3.4 the answer has no header of etcd's; newer ones want a login where there are users
        content = answer.json() if answer.status == 200 else ask("/v3/maintenance/alarm", {"action": "GET"})
        metrics = client.request("GET", "/metrics", deadline.sooner(PATIENCE)).body.decode("utf-8", "replace")
        raised = sorted({str(each.get("alarm")) for each in content.get("alarms", ())})
        used, quota = _metric(metrics, SIZE), _metric(metrics, QUOTA)
    except (LockctlError, AttributeError, ValueError) as problem:
        found.judge(ALARM, f"not known: {printable(str(problem))}", warns=True)
        return
    finally:
        client.close()
    found.judge(ALARM, ", ".join(raised) or "none", fails=bool(raised))
    seen = f"{used / MIB:.1f} MiB of {quota / MIB:.0f} MiB" if quota else "not told among the metrics"
    found.judge(SPACE, seen, warns=0 < quota * FULL < used)


def _metric(metrics: str, name: str) -> float:
    """What a member counts by this name; 0: it does not tell. Raises ``ValueError``."""
    return next((float(line[len(name) :]) for line in metrics.splitlines() if line.startswith(name)), 0.0)


def _judge_rights(ask: Ask, key: str, found: Examination) -> None:
    # rights are looked at for all that a transaction may do; this one does nothing
    never = [{"key": key, "target": "VERSION", "result": "EQUAL", "version": "9223372036854775807"}]
    try:
        ask("/v3/kv/txn", {"compare": never, "success": [{"request_put": {"key": key, "value": ""}}]})
    except LockctlError as problem:
        found.judge(RIGHTS, str(problem), fails=True)
    else:
        found.judge(RIGHTS, "the keys may be written")


def _judge_access(ask: Ask, key: str, found: Examination, *, shows_certificate: bool) -> None:
    try:
        ask("/v3/kv/range", {"key": key})
        is_open = not shows_certificate
    except LockctlError:
        is_open = False
    found.judge(AUTH, "no users" if is_open else "users or certificates", warns=is_open)
