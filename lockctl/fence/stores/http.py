"""Marks of the documents of any HTTP server that honours If-Match and If-None-Match on PUT: WebDAV, artifact stores.

The server must compare and write in one step. lighttpd (``mod_webdav``, one worker) and stores that are made for it do;
Apache's ``mod_dav`` compares first and writes later, which nobody can find out from outside.
"""

from __future__ import annotations

import binascii
import time
from urllib.parse import quote

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.fence.http import HEADER, format_header
from lockctl.fence.stores.objects import ObjectStore
from lockctl.fence.stores.space import Head, Seen
from lockctl.names import printable
from lockctl.url import Url, endpoint, take_params
from lockctl.value import replace
from lockctl.wire import tls_settings
from lockctl.wire.deadline import password_now
from lockctl.wire.http import Client
from lockctl.wire.stream import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from lockctl.fence.mark import Mark
    from lockctl.wire.answer import Response
    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Fields

PORTS = {"http": 80, "https": 443}
LONGEST_ETAG = 1024  # characters
WEAK_LIMIT = 2.5  # seconds until an ETag should have become a strong one: Apache's are weak for the first second
WEAK_NAP = 0.2  # seconds between two looks
SIZES = 64  # see ``Space``: ETags are made of size and modification time, whose steps can be milliseconds


class HttpStore(ObjectStore):
    """``https://[USER:PASSWORD@]HOST/PATH``; ``:TOKEN@`` is a bearer token."""

    parameters: ClassVar[dict[str, str]] = dict(tls_settings.PARAMETERS)

    @classmethod
    def from_url(cls, url: Url) -> HttpStore:
        """The store that *url* means. Raises ``ConfigError``."""
        return cls(_Server(url, cls.parameters))


class _Server:
    """One HTTP server as a ``Space`` of objects."""

    sizes = SIZES

    def __init__(self, url: Url, parameters: dict[str, str]) -> None:
        params = take_params(url, parameters)
        if len(url.hosts) != 1:
            raise ConfigError(f"{url.scheme}: one host, such as {url.scheme}://host/path")
        tls = tls_settings.of_scheme(url.scheme, params, secured=url.scheme == "https")
        host, port = endpoint(url.hosts[0], PORTS[url.scheme])
        self.root = url.path
        self._site = f"{url.scheme}://{printable(url.hosts[0])}"
        self._client = Client(Endpoint(self._site, host, port, tls=tls))
        self._log_in(url)

    def shown(self, key: str) -> str:
        return self._site + printable(key)

    def read(self, key: str, limit: int, deadline: Deadline) -> Seen | None:
        found = self._look("GET", key, deadline)
        return None if found is None else Seen(found[0].body[:limit], found[1])

    def head(self, key: str, deadline: Deadline) -> Head | None:
        found = self._look("HEAD", key, deadline)
        if found is None:
            return None
        kept = {name: found[0].headers[name] for name in ("content-type",) if name in found[0].headers}
        return Head(found[1], kept)

    def write(
        self, key: str, data: bytes, etag: str | None, deadline: Deadline, mark: Mark | None, like: Head | None = None
    ) -> bool:
        headers = [("If-None-Match", "*") if etag is None else ("If-Match", etag)]
        if mark is not None:
            headers.append((HEADER, format_header(mark)))
        if like is not None and "content-type" in like.kept:
            headers.append(("Content-Type", like.kept["content-type"]))
        answer = self._ask("PUT", key, deadline, tuple(headers), data)
        if answer.status in (200, 201, 204):
            return True
        if answer.status == 412 or (answer.status == 404 and etag is not None):
            return False
        raise self._refused(answer, key, "PUT")

    def remove(self, key: str, etag: str, deadline: Deadline) -> bool:
        answer = self._ask("DELETE", key, deadline, (("If-Match", etag),))
        if answer.status in (200, 204, 404, 410):
            return True
        if answer.status == 412:
            return False
        raise self._refused(answer, key, "DELETE")

    def close(self) -> None:
        self._client.close()

    def _ask(self, method: str, key: str, deadline: Deadline, headers: Fields, body: bytes = b"") -> Response:
        """The answer to a request; if it is that who we are is not known, with the password of now."""
        while True:
            answer = self._client.request(method, _target(key), deadline, body=body, headers=headers)
            password = password_now(self._url.password, deadline) if answer.status == 401 else self._url.password
            if password == self._url.password:
                return answer
            self._log_in(replace(self._url, password=password))

    def _log_in(self, url: Url) -> None:
        """Say from now on who we are by this URL. Raises ``ConfigError``."""
        login = _login(url)
        self._url = url
        self._secrets = [text for text in (url.password, login.partition(" ")[2]) if text]
        self._client.headers = (("Authorization", login),) if login else ()

    def _look(self, method: str, key: str, deadline: Deadline) -> tuple[Response, str] | None:
        """An object and its strong ETag: a weak one cannot be compared with (RFC 9110, 13.1.1)."""
        weak = deadline.sooner(WEAK_LIMIT)
        while True:
            # of the origin, not of a cache on the way
            answer = self._ask(method, key, deadline, (("Cache-Control", "no-cache"),))
            if answer.status in (404, 410):
                return None
            if answer.status != 200:
                raise self._refused(answer, key, method)
            etag = answer.headers.get("etag", "")
            if len(etag) > 1 and etag.isascii() and etag.isprintable() and len(etag) <= LONGEST_ETAG:
                if etag[0] == '"' == etag[-1]:
                    return answer, etag
                if etag.startswith('W/"') and weak.left() > 0:
                    time.sleep(min(WEAK_NAP, weak.left()))
                    continue
            kind = "only weak ETags" if etag.startswith("W/") else "no ETags"
            raise ConfigError(f"{self.shown(key)}: the server has {kind}: it cannot keep a mark")

    def _refused(self, answer: Response, key: str, method: str) -> BackendUnavailable | ConfigError:
        """The error for an answer that does not say what was asked."""
        status, where = answer.status, f"{self.shown(key)}: {method}"
        if status in (401, 407):
            return ConfigError(f"{where}: status {status}: who we are is not known there, or not said in the URL")
        if status == 403:
            return ConfigError(f"{where}: status 403: no permission; needed are GET, HEAD, PUT and DELETE")
        if 300 <= status < 400:
            to = answer.headers.get("location", "").partition("?")[0] or "another place"
            return ConfigError(f"{where}: moved to {printable(to[:200])}: use the URL of the document itself")
        if status in (405, 501):
            return ConfigError(f"{where}: status {status}: the server does not do that here")
        if status == 409:
            return ConfigError(f"{where}: status 409: is the directory there?{self._said(answer)}")
        if status == 507:
            return ConfigError(f"{where}: status 507: the disk of the server is full, or a quota is used up")
        if status >= 500 or status in (408, 423, 425, 429) or 200 <= status < 300:
            return BackendUnavailable(f"{where}: status {status}{self._said(answer)}")
        return ConfigError(f"{where}: status {status}{self._said(answer)}")

    def _said(self, answer: Response) -> str:
        said = "" if answer.body.lstrip()[:1] in (b"", b"<") else answer.excerpt()[:120]
        for secret in self._secrets:
            said = said.replace(secret, "***")
        return f": {said}" if said else ""


def _login(url: Url) -> str:
    """The Authorization of a URL; empty: none. Raises ``ConfigError``."""
    if url.user:
        if ":" in url.user:
            raise ConfigError(f"{url.scheme}: a user name cannot have a colon")
        pair = f"{url.user}:{url.password or ''}".encode("utf-8", "surrogateescape")
        return "Basic " + binascii.b2a_base64(pair, newline=False).decode()
    if not url.password:
        return ""
    if not url.password.isascii() or not url.password.isprintable() or " " in url.password:
        raise ConfigError(f"{url.scheme}: the token has characters that no bearer token has")
    return f"Bearer {url.password}"


def _target(key: str) -> str:
    return quote(key, safe="/-._~!$&'()*+,;=:@")
