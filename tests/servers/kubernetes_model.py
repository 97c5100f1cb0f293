"""A model of a Kubernetes API server, as a program: Lease objects as the API documents them, and nothing behind them.

It compares and writes in one step and keeps objects in SQLite. Versions never come again; a list has ``limit`` and
``continue``, a watch begins after a version and answers 410 where that is too old; users have tokens or certificates
and verbs. A certificate is looked at again in each request of a connection: it may have ended. ``/-clock-/SECONDS``
puts its clock forward.
"""

from __future__ import annotations

import email.utils
import json
import select
import sqlite3
import ssl
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

GROUP = "coordination.k8s.io"
KEPT = 500  # changes of which a watch may still be told
MOST_NOTES = 256 * 1024  # bytes of the annotations of one object

CONFIG: dict[str, Any] = json.loads(sys.argv[1])
STORE = sqlite3.connect(CONFIG["file"], check_same_thread=False, isolation_level=None)
STORE.execute("pragma synchronous=full")
STORE.execute("create table if not exists objects (place text primary key, body text)")
STORE.execute("create table if not exists number (last integer)")
OBJECTS: dict[str, Any] = {place: json.loads(body) for place, body in STORE.execute("select * from objects")}
CHANGED = threading.Condition()
EVENTS: list[tuple[int, str, dict[str, Any]]] = []
STATE: dict[str, Any] = {"last": (STORE.execute("select max(last) from number").fetchone()[0] or 0) + 1, "ahead": 0.0}
STATE["oldest"] = STATE["last"]


class Problem(Exception):
    """An answer with a Status."""

    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message or reason,
            "reason": reason,
            "code": code,
        }


def change(kind: str, place: str, made: dict[str, Any]) -> dict[str, Any]:
    """Keep an object with the next version, or remove it, and tell those who watch."""
    STATE["last"] += 1
    made["metadata"]["resourceVersion"] = str(STATE["last"])
    STORE.execute("begin")
    STORE.execute("delete from number")
    STORE.execute("insert into number values (?)", (STATE["last"],))
    if kind == "DELETED":
        del OBJECTS[place]
        STORE.execute("delete from objects where place = ?", (place,))
    else:
        OBJECTS[place] = made
        STORE.execute("insert or replace into objects values (?, ?)", (place, json.dumps(made)))
    STORE.execute("commit")
    EVENTS.append((STATE["last"], kind, made))
    while len(EVENTS) > KEPT:
        STATE["oldest"] = EVENTS.pop(0)[0]
    CHANGED.notify_all()
    return made


def checked(made: dict[str, Any], namespace: str) -> dict[str, Any]:
    """An object as it may be written."""
    metadata, spec = made.setdefault("metadata", {}), made.setdefault("spec", {}) or {}
    if made.get("kind") != "Lease" or made.get("apiVersion") != f"{GROUP}/v1":
        raise Problem(400, "BadRequest", "not a Lease")
    name = metadata.get("name") or ""
    parts = name.split(".")
    legal = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if len(name) > 253 or any(not p or not legal.issuperset(p) or p[0] == "-" or p[-1] == "-" for p in parts):
        raise Problem(422, "Invalid", f"metadata.name: Invalid value: {name!r}")
    notes = metadata.get("annotations") or {}
    if sum(len(key.encode()) + len(text.encode()) for key, text in notes.items()) > MOST_NOTES:
        raise Problem(422, "Invalid", "metadata.annotations: Too long: must have at most 262144 bytes")
    if spec.get("leaseDurationSeconds") is not None and spec["leaseDurationSeconds"] <= 0:
        raise Problem(422, "Invalid", "spec.leaseDurationSeconds: must be greater than 0")
    if (spec.get("leaseTransitions") or 0) < 0:
        raise Problem(422, "Invalid", "spec.leaseTransitions: must be greater than or equal to 0")
    for field in ("acquireTime", "renewTime"):
        if spec.get(field) is not None:
            try:
                time.strptime(spec[field], "%Y-%m-%dT%H:%M:%S." + spec[field][20:])
            except ValueError:
                raise Problem(400, "BadRequest", f"{field}: not a MicroTime") from None
    metadata["namespace"] = namespace
    return made


def matches(found: dict[str, Any], query: dict[str, str]) -> bool:
    """Whether a label selector of one term, and a field selector of a name, find an object."""
    labels = found["metadata"].get("labels") or {}
    field, term = query.get("fieldSelector", ""), query.get("labelSelector", "")
    if field and found["metadata"]["name"] != field.removeprefix("metadata.name="):
        return False
    if term.startswith("!"):
        return term[1:] not in labels
    name, equals, wanted = term.partition("=")
    return not term or (labels.get(name) == wanted if equals else name in labels)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return email.utils.formatdate((timestamp or time.time()) + STATE["ahead"], usegmt=True)

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        query = {name: texts[-1] for name, texts in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            content = json.loads(body) if body else {}
            if parts.path.startswith("/-clock-/"):
                STATE["ahead"] += float(parts.path.rpartition("/")[2])
                self.say(200, {})
                return
            self.route(parts.path.strip("/").split("/"), query, content)
        except Problem as problem:
            self.say(problem.code, problem.body)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any  # noqa: N815 - the names of http.server

    def say(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def user(self) -> str:
        """Who asks. Raises ``Problem``."""
        word, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if word == "Bearer":
            if token not in CONFIG["tokens"]:
                raise Problem(401, "Unauthorized")
            return str(CONFIG["tokens"][token])
        shown: Any = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        if shown:
            if ssl.cert_time_to_seconds(shown["notAfter"]) < time.time() + STATE["ahead"]:
                raise Problem(401, "Unauthorized")
            return "certificate"
        if not CONFIG["anonymous"]:
            raise Problem(401, "Unauthorized")
        return "anonymous"

    def may(self, user: str, verb: str) -> bool:
        verbs = CONFIG["verbs"].get(user, "*")
        return verbs == "*" or verb in verbs

    def route(self, words: list[str], query: dict[str, str], content: dict[str, Any]) -> None:
        user = self.user()
        if words[:2] == ["apis", GROUP] and len(words) in (6, 7) and words[2] == "v1" and words[3] == "namespaces":
            self.leases(user, words[4], words[6] if len(words) == 7 else "", query, content)
        elif words == ["version"]:
            self.say(200, {"major": "1", "minor": "32", "gitVersion": "v1.32.0-model"})
        elif words[:2] == ["apis", "authorization.k8s.io"]:
            asked = content["spec"]["resourceAttributes"]
            self.say(201, {**content, "status": {"allowed": self.may(user, asked["verb"])}})
        elif words == ["api"]:
            self.say(200, {"kind": "APIVersions", "versions": ["v1"]})
        elif words == ["api", "v1"]:
            self.say(200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": []})
        elif words == ["apis"]:
            version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
            group = {"name": GROUP, "versions": [version], "preferredVersion": version}
            self.say(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
        elif words == ["apis", GROUP, "v1"]:
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            lease = {"name": "leases", "singularName": "lease", "namespaced": True, "kind": "Lease", "verbs": verbs}
            known = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1"}
            self.say(200, {**known, "resources": [lease]})
        else:
            raise Problem(404, "NotFound", f"the server could not find {self.path}")

    def leases(self, user: str, space: str, name: str, query: dict[str, str], content: dict[str, Any]) -> None:
        verbs = {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "PATCH": "patch"}
        verb = verbs.get(self.command, "delete")
        if query.get("watch") in ("1", "true"):
            verb = "watch"
        if not self.may(user, verb):
            said = f'leases.{GROUP} is forbidden: User "{user}" cannot {verb} resource "leases"'
            raise Problem(403, "Forbidden", said)
        if space not in CONFIG["namespaces"] and verb == "create":
            raise Problem(404, "NotFound", f'namespaces "{space}" not found')
        if verb == "watch":
            self.watch(space, query)
            return
        with CHANGED:
            status, answer = 200, self.list(space, query) if verb == "list" else {}
            place = f"{space}/{name or (content.get('metadata') or {}).get('name')}"
            found = OBJECTS.get(place)
            if verb == "create":
                if found is not None:
                    raise Problem(409, "AlreadyExists", f'leases.{GROUP} "{place}" already exists')
                made = checked(content, space)
                made["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z")
                status, answer = 201, change("ADDED", place, made)
            elif verb != "list":
                if found is None:
                    raise Problem(404, "NotFound", f'leases.{GROUP} "{name}" not found')
                answer = found if verb == "get" else self.write(verb, place, found, content)
        self.say(status, answer)

    def write(self, verb: str, place: str, found: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
        known = found["metadata"]
        if verb == "patch":
            content = merged(found, content)
        given = (content.get("preconditions") if verb == "delete" else content.get("metadata")) or {}
        for field in ("uid", "resourceVersion"):
            if given.get(field) and given[field] != known[field]:
                raise Problem(409, "Conflict", "the object has been modified; please apply your changes")
        if verb == "delete":
            change("DELETED", place, json.loads(json.dumps(found)))
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        made = checked(content, place.partition("/")[0])
        made["metadata"].update(uid=known["uid"], creationTimestamp=known["creationTimestamp"])
        return change("MODIFIED", place, made)

    def list(self, space: str, query: dict[str, str]) -> dict[str, Any]:
        places = sorted(place for place in OBJECTS if place.startswith(f"{space}/"))
        # of the moment, unlike the whole of a real list, which is of its beginning
        places = [place for place in places if place > query.get("continue", "") and matches(OBJECTS[place], query)]
        limit = int(query.get("limit") or 0) or len(places) or 1
        metadata = {"resourceVersion": str(STATE["last"])}
        if len(places) > limit:
            metadata["continue"] = places[limit - 1]
        items = [OBJECTS[place] for place in places[:limit]]
        return {"kind": "LeaseList", "apiVersion": f"{GROUP}/v1", "metadata": metadata, "items": items}

    def watch(self, space: str, query: dict[str, str]) -> None:
        since = int(query.get("resourceVersion") or 0)
        with CHANGED:
            if not since:
                since = STATE["last"]
            if since < STATE["oldest"]:
                raise Problem(410, "Expired", "too old resource version")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while not self.is_left():
            with CHANGED:
                if STATE["last"] <= since:
                    CHANGED.wait(1.0)
                news = [each for each in EVENTS if each[0] > since]
                since = STATE["last"]
            for _, kind, found in news:
                if found["metadata"]["namespace"] == space and matches(found, query):
                    line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.close_connection = True

    def is_left(self) -> bool:
        """Whether a client that watches is gone: it sends nothing but the end. Each change would wake its thread."""
        return bool(select.select([self.connection], [], [], 0)[0])


def merged(before: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396)."""
    made = dict(before)
    for name, content in patch.items():
        if content is None:
            made.pop(name, None)
        elif isinstance(content, dict):
            made[name] = merged(made.get(name) or {}, content)
        else:
            made[name] = content
    return made


class Listener(ThreadingHTTPServer):
    """TLS is spoken in the thread of the connection."""

    daemon_threads = True
    request_queue_size = 128

    def finish_request(self, request: Any, client_address: Any) -> None:
        if CONFIG["cert"]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CONFIG["cert"], CONFIG["key"])
            context.load_verify_locations(CONFIG["ca"])
            context.verify_mode = ssl.CERT_OPTIONAL
            request = context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is none."""


Listener(("127.0.0.1", CONFIG["port"]), Handler).serve_forever()
