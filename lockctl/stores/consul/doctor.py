"""What would break locks in Consul, asked by py-consul."""

from __future__ import annotations

import json

from lockctl.durations import format_duration
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.finding import WHOLE_SECONDS, Check, Examination
from lockctl.names import printable
from lockctl.stores.consul.address import LONGEST_TTL, Settings, from_url
from lockctl.stores.consul.layout import quoted
from lockctl.stores.consul.lock import ConsulBackend
from lockctl.stores.consul.protocol import milliseconds
from lockctl.wire.answer import seconds
from lockctl.wire.deadline import Deadline, password_now
from lockctl.wire.http import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lockctl.url import Url
    from lockctl.wire.tls_settings import TlsSettings

    Ask = Callable[..., Any]

PATIENCE = 3.0  # seconds for one answer
NAME = "lockctl-doctor"  # of the key that is never written, and of the session that is ended at once

VISIBLE = Check(
    "consul.visible",
    "What the token may not read could not be checked.",
    'add to the policy of the token: agent_prefix "" {{ policy = "read" }} operator = "read"',
)
SERVERS = Check(
    "consul.servers",
    "Locks outlive the failure of a server only where there are three or more, and an even number gains nothing.",
    "run 3 or 5 servers (bootstrap_expect, retry_join)",
)
LEADER = Check(
    "consul.leader",
    "Without a leader no lock is granted or renewed: jobs are stopped before their leases end.",
    "start the servers that are down, a majority is needed (consul members); if they are lost for good, follow Consul's"
    " outage recovery (peers.json)",
)
AUTOPILOT = Check(
    "consul.autopilot",
    "When no server may fail any more, the next failure stops all locking.",
    "consul operator autopilot get-config; consul members; replace the servers that failed",
)
TTL = Check(
    "consul.ttl",
    "A session cannot be made with a ttl outside the bounds of the servers.",
    "choose a --ttl of at least 10s, or set session_ttl_min in the configuration of all servers",
)
DELAY = Check(
    "consul.lock_delay",
    "Consul may end a session long before its ttl; the delay keeps others out until the job has been stopped.",
    "leave lock_delay out of the URL",
)
ACL = Check(
    "consul.acl",
    "Without these rights a lock cannot be acquired.",
    'add to the policy of the token: key_prefix "{prefix}" {{ policy = "write" }}'
    ' session_prefix "" {{ policy = "write" }}',
)
OPEN = Check(
    "consul.open",
    "Where there are no ACLs, everybody who reaches an agent can delete locks.",
    'set acl {{ enabled = true default_policy = "deny" }} in the configuration of all agents',
)
CHECKS = (VISIBLE, LEADER, SERVERS, AUTOPILOT, TTL, DELAY, ACL, OPEN)


def examine(url: Url, found: Examination, deadline: Deadline) -> None:
    """Look at the agent of a URL. Raises ``BackendUnavailable``, ``ConfigError``."""
    settings = from_url(url, ConsulBackend.parameters)
    found.where = settings.endpoint.where
    found.words["prefix"] = settings.prefix
    if found.lacks("consul", "consul"):
        return
    import consul
    import requests

    _greet(settings, deadline.sooner(PATIENCE))
    client = _client(consul.Consul, settings, deadline)
    pairs = [(name, text) for name, text in url.params if name in ("dc", "ns", "partition")]

    def ask(method: str, path: str, *more: tuple[str, str], body: str = "") -> Any:
        options = {"data": body} if method == "put" else {}
        send = getattr(client.http, method)
        return send(lambda answer: answer, path, [*pairs, *more], headers=client.prepare_headers(), **options)

    try:
        leader = _answered(ask("get", "/v1/status/leader"), found)
        if leader.code != 200:
            raise ConfigError(f"{found.where}: {_said(leader)} (HTTP status {leader.code}): is this Consul?")
        found.measure(lambda: seconds(ask("get", "/v1/status/leader").headers.get("Date", "")), WHOLE_SECONDS)
        has_leader = leader.body.strip() not in ("", '""')
        found.judge(LEADER, "there is one" if has_leader else "there is none", fails=not has_leader)
        if not has_leader:
            return  # all else is asked of it
        _judge_servers(ask, found)
        _judge_settings(ask, settings, found)
        _judge_rights(ask, settings, found)
    except requests.Timeout:
        raise BackendUnavailable(f"{found.where}: no answer within {PATIENCE:g} s") from None
    except requests.RequestException:
        raise BackendUnavailable(f"{found.where}: the connection was lost, or is not one of HTTP/1.1") from None
    finally:
        client.http.close()


def _greet(settings: Settings, deadline: Deadline) -> None:
    """As locks do: the library says in words of the interpreter what went wrong."""
    client = Client(settings.endpoint)
    try:
        client.request("GET", "/v1/status/leader", deadline)
    finally:
        client.close()


def _client(kind: Any, settings: Settings, deadline: Deadline) -> Any:
    place, tls = settings.endpoint, settings.endpoint.tls
    client = kind(place.host, place.port, scheme="https" if tls else "http", verify=not (tls and tls.insecure))
    client.token = password_now(settings.token, deadline)  # a variable would count more than what it is given
    client.http.connections_timeout = PATIENCE
    client.http.session.trust_env = False  # neither proxies nor ~/.netrc
    if tls is not None:
        client.http.session.mount("https://", _adapter(tls))
    return client


def _adapter(tls: TlsSettings) -> Any:
    """The TLS of all backends: requests trusts its own list of authorities, and verifies no other name."""
    from requests.adapters import HTTPAdapter

    from lockctl.wire.tls import context

    named: dict[str, Any] = (
        {} if tls.tls_name is None else {"server_hostname": tls.tls_name, "assert_hostname": tls.tls_name}
    )

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **options: Any) -> None:
            super().init_poolmanager(*args, **{**options, **named, "ssl_context": context(tls)})

        def cert_verify(self, *_: Any) -> None:
            """All is in the context."""

    return Adapter()


def _judge_servers(ask: Ask, found: Examination) -> None:
    peers = _answered(ask("get", "/v1/status/peers"), found)
    count = len(_list(peers))
    seen = f"{count} server{'s' if count != 1 else ''}"
    found.judge(SERVERS, seen, warns=count < 3 or count % 2 == 0)
    health = ask("get", "/v1/operator/autopilot/health")
    content = _object(health)
    if "Healthy" not in content:
        found.judge(VISIBLE, f"the health of the servers: {_said(health)}", warns=True)
        return
    tolerance = content.get("FailureTolerance")
    seen = f"{'healthy' if content['Healthy'] else 'not healthy'}, {tolerance} may fail"
    found.judge(AUTOPILOT, seen, warns=not content["Healthy"] or tolerance == 0)


def _judge_settings(ask: Ask, settings: Settings, found: Examination) -> None:
    ttl, delay = settings.terms(found.ttl)
    about = ask("get", "/v1/agent/self")
    least = _object(about).get("DebugConfig", {}).get("SessionTTLMin")
    if least is None:
        found.judge(VISIBLE, f"the settings of the agent: {_said(about)}", warns=True)
    bounds = f"a lease of {format_duration(ttl)}"
    if ttl < found.ttl:
        bounds += f", although {format_duration(found.ttl)} was asked for: no lock delay is long enough for more than"
        bounds += f" {format_duration(LONGEST_TTL)}"
    body = {"Name": NAME, "TTL": f"{milliseconds(ttl)}ms", "Behavior": "delete", "NodeChecks": [], "Checks": []}
    made = _answered(ask("put", "/v1/session/create", body=json.dumps(body)), found)
    session = _object(made).get("ID")
    if session:
        ask("put", f"/v1/session/destroy/{quoted(str(session))}")
    if session or "TTL" in made.body:
        bounds += "" if least is None else f"; the agent's session_ttl_min is {least}"
        bounds += "" if session else f": {_said(made)}"
        found.judge(TTL, bounds, fails=not session, warns=ttl < found.ttl)
    else:
        found.judge(ACL, f"no session: {_said(made)}", fails=True)
    found.judge(DELAY, format_duration(delay), warns=delay < ttl)


def _judge_rights(ask: Ask, settings: Settings, found: Examination) -> None:
    # on a condition that no key meets: nothing is written
    write = _answered(ask("put", f"/v1/kv/{settings.prefix}{NAME}", ("cas", "9223372036854775807")), found)
    allowed = write.code == 200
    found.judge(ACL, "the keys may be written" if allowed else _said(write), fails=not allowed)
    disabled = "disabled" in ask("get", "/v1/acl/token/self").body
    found.judge(OPEN, "no ACLs" if disabled else "ACLs are in force", warns=disabled)


def _answered(answer: Any, found: Examination) -> Any:
    """The same answer, if it is about what was asked. Raises ``BackendUnavailable`` for that of an outage."""
    is_refusal = any(word in answer.body for word in ("Permission denied", "ACL", "TTL"))  # also with status 500
    if (answer.code >= 500 and not is_refusal) or answer.code == 429:
        said = _said(answer) or "no reason given"
        raise BackendUnavailable(f"{found.where}: {said} (HTTP status {answer.code})")
    return answer


def _said(answer: Any) -> str:
    return printable(" ".join(str(answer.body).split())[:200])


def _object(answer: Any) -> dict[str, Any]:
    content = _content(answer)
    return content if isinstance(content, dict) else {}


def _list(answer: Any) -> list[Any]:
    content = _content(answer)
    return content if isinstance(content, list) else []


def _content(answer: Any) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return None
