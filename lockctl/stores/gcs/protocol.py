"""Requests to Google Cloud Storage for the objects of one bucket, each with one deadline, and what a refusal means.

google-auth finds and renews the credentials. The requests are our own: those of Google's library are tried again by it,
and have no deadline for all of it.

The uploads are multipart: emulators look at conditions there alone. Google writes one object about once a second, and
refuses what comes sooner (429): such a write was not done, and is tried again after a moment as if another had been
faster.
"""

from __future__ import annotations

import calendar
import os
import warnings

from lockctl import clock, json_text
from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.locks.driver import jittered, sleep
from lockctl.names import printable
from lockctl.url import Url, absolute, take_params
from lockctl.wire.answer import Malformed, Response
from lockctl.wire.http import Clients, quoted, server_of
from lockctl.wire.token import Token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lockctl.wire.deadline import Deadline
    from lockctl.wire.http import Fields

PARAMETERS = {"endpoint": "https://storage.googleapis.com", "credentials": "", "anonymous": "no", "ca": ""}
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
USUAL_TOKEN = 3600.0  # seconds
TOO_OFTEN = 429
BETWEEN_WRITES = 1.0  # seconds between two writes of one object, in the long run
NO_BUCKET = "The specified bucket"  # does not exist
NO_OBJECT = "No such object"  # BUCKET/NAME; other words are those of a proxy
NOT_FOUND = "Not Found"  # an emulator's words, and those of proxies


class Bucket:
    """One bucket. Connects when it is first asked; safe for several threads."""

    def __init__(self, url: Url, parameters: dict[str, str], needed: str) -> None:
        """*needed*: the permissions without which nothing works. Nothing is sent yet; raises ``ConfigError``."""
        params = take_params(url, parameters)
        if len(url.hosts) != 1 or not url.hosts[0].translate(_PLAIN).isalnum() or url.user or url.password:
            raise ConfigError("gcs: a URL is gcs://BUCKET/PREFIX, without a user: credentials=FILE names a key")
        if params["anonymous"] not in ("yes", "no"):
            raise ConfigError("gcs: anonymous is yes or no")
        if params["anonymous"] == "yes" and params["credentials"]:
            raise ConfigError("gcs: anonymous=yes contradicts credentials")
        self.name = url.hosts[0]
        self.where = f"gcs://{printable(self.name)}"
        self.objects = f"/storage/v1/b/{self.name}/o"  # the path of all objects
        self._clients = Clients(server_of("gcs", params["endpoint"], params["ca"], self.where))
        self._needed = needed
        self._file = absolute(params["credentials"]) if params["credentials"] else None
        self._anonymous = params["anonymous"] == "yes"
        self._emulated = params["endpoint"] != PARAMETERS["endpoint"]
        self._credentials: Any = None
        self._token = Token(self._renewed, self.where)

    def load(self) -> None:
        """Load what takes long, before the time of a lease is counted. Raises ``ConfigError``."""
        if self._anonymous:
            return
        from lockctl.extras import Needed

        with Needed("this store", "gcs"):
            import google.auth.transport.requests  # noqa: F401 - all that is needed for a token
        # who a person is, and which file is read, is for them to decide
        warnings.filterwarnings("ignore", module=r"google\.auth")

    def ask(
        self, method: str, target: str, deadline: Deadline, *, body: bytes = b"", headers: Fields = ()
    ) -> Response | None:
        """The answer to a request; with 404 there is no such object, with 429 an object is written too often.

        ``None``: a condition is not met. Raises ``BackendUnavailable``, ``ConfigError``, ``RequestInterrupted``.
        """
        for attempt in (1, 2):
            fields = (*self._login(deadline), *headers)
            answer = self._clients.request(method, target, deadline, body=body, headers=fields)
            if answer.status != 401 or self._anonymous or attempt == 2:
                break
            self._credentials = None  # a person or a program may have renewed them
            self._token.forget()
        if answer.status == 412:
            return None
        if answer.status < 300 or answer.status == TOO_OFTEN:
            return answer
        if answer.status == 404 and self._knows_no_object(answer):
            return answer
        raise self._refused(answer)

    def read(self, name: str, deadline: Deadline) -> Response:
        """The content of an object; with 404 there is none. Raises as :meth:`ask` does."""
        return self.usable(self.ask("GET", f"{self.objects}/{quoted(name)}?alt=media", deadline))

    def write(self, name: str, generation: object, body: bytes, deadline: Deadline, what: dict[str, Any]) -> str | None:
        """Write an object that has this generation, or with ``None`` is not there; the new one, ``None``: not so.

        *what* belongs to it, as Google's documents have it.
        """
        target = f"/upload{self.objects}?uploadType=multipart&ifGenerationMatch={generation or 0}&fields=generation"
        boundary = f"lockctl-{os.urandom(16).hex()}"
        mark = f"--{boundary}".encode()
        start = json_text.render({"name": name, **what}).encode()
        parts = (b"application/json", start), (what.get("contentType", "application/octet-stream").encode(), body)
        whole = b"".join(b"%s\r\nContent-Type: %s\r\n\r\n%s\r\n" % (mark, kind, part) for kind, part in parts)
        headers = (("Content-Type", f"multipart/related; boundary={boundary}"),)
        answer = self._change("POST", target, deadline, whole + mark + b"--\r\n", headers)
        return None if answer is None else self.generation(self.document(answer).get("generation"))

    def delete(self, target: str, deadline: Deadline) -> bool:
        """Delete an object; ``False``: a condition is not met. Raises as :meth:`ask` does."""
        answer = self._change("DELETE", target, deadline)
        return answer is not None and bool(self.usable(answer))

    def _change(
        self, method: str, target: str, deadline: Deadline, body: bytes = b"", headers: Fields = ()
    ) -> Response | None:
        """As :meth:`ask`, and again while the object is written too often; that is the answer if no other comes."""
        answer = None
        while True:
            try:
                answer = self.ask(method, target, deadline, body=body, headers=headers)
            except BackendUnavailable:
                if answer is None:
                    raise
                return answer
            pause = jittered(BETWEEN_WRITES)
            if answer is None or answer.status != TOO_OFTEN or deadline.left() < pause:
                return answer
            sleep(pause, deadline.interrupt, self.where)

    def usable(self, answer: Response | None) -> Response:
        """An answer that says something. Raises ``BackendUnavailable``."""
        if answer is None or answer.status == TOO_OFTEN:
            raise BackendUnavailable(f"{self.where}: too many requests ({TOO_OFTEN}): it is busy")
        return answer

    def document(self, answer: Response | None) -> dict[str, Any]:
        """What an answer says that is no object's content. Raises ``BackendUnavailable``, ``ConfigError``."""
        usable = self.usable(answer)
        if usable.status == 404:
            raise ConfigError(f"{self.where}: there is no such bucket, or this is not Google Cloud Storage")
        found = json_text.an_object(usable.body)
        if found is None:
            raise BackendUnavailable(f"{self.where}: that is not Google's answer: {usable.excerpt()}")
        return found

    def generation(self, text: object) -> str:
        """The generation that an answer told. Raises ``BackendUnavailable``: something on the way may say 200, too."""
        if not isinstance(text, str) or not text.isdecimal():
            raise BackendUnavailable(f"{self.where}: the answer has no generation: that is not Google's answer")
        return text

    def close(self) -> None:
        """Close the connections; the next request opens one."""
        self._clients.close()

    def _login(self, deadline: Deadline) -> Fields:
        return () if self._anonymous else (("Authorization", f"Bearer {self._token.now(deadline)}"),)

    def _renewed(self) -> tuple[str, float]:
        import google.auth
        from google.auth import exceptions as told
        from google.auth.transport.requests import Request

        none = f"{self.where}: no credentials" + (f" in {printable(self._file)}" if self._file is not None else "")
        try:
            found = self._credentials
            if found is None and self._file is not None:
                os.close(
                    os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                )  # Google's words name no cause
                found, _ = google.auth.load_credentials_from_file(self._file, scopes=[SCOPE])  # type: ignore[no-untyped-call]
            elif found is None:
                found, _ = google.auth.default(scopes=[SCOPE])
            found.refresh(Request())
        except told.TransportError as failure:
            raise BackendUnavailable(f"{self.where}: no token can be had now ({type(failure).__name__})") from None
        except told.RefreshError as failure:
            if getattr(failure, "retryable", False):
                raise BackendUnavailable(f"{self.where}: no token can be had now") from None
            self._credentials = None  # as in :meth:`ask`
            raise ConfigError(f"{self.where}: the credentials are not, or no longer, valid: log in again") from None
        except told.GoogleAuthError as failure:
            kind = type(failure).__name__
            raise ConfigError(
                f"{none} ({kind}): `gcloud auth application-default login`, or credentials=FILE"
            ) from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as failure:  # a file of another program
            why = getattr(failure, "strerror", None) or f"what is there is none ({type(failure).__name__})"
            raise ConfigError(f"{none}: {why}") from None
        self._credentials = found
        return found.token, calendar.timegm(found.expiry.utctimetuple()) if found.expiry else clock.wall() + USUAL_TOKEN

    def _knows_no_object(self, answer: Response) -> bool:
        """Whether a 404 is the store's own, and no proxy's."""
        said = _said(answer)
        by_store = self._emulated or answer.body.startswith(b"{")
        return said.startswith(NO_OBJECT) or (by_store and said.startswith(NOT_FOUND))

    def _refused(self, answer: Response) -> BackendUnavailable | ConfigError:
        status = answer.status
        said = f"{self.where}: {_said(answer)} ({status})"
        if status >= 500 or status == 408:
            return BackendUnavailable(f"{said}: it is busy or out of order")
        if status == 401:
            return ConfigError(f"{said}: the credentials are not, or no longer, valid")
        if status == 404 and not _said(answer).startswith(NO_BUCKET):
            return BackendUnavailable(f"{said}: that is not Google's answer")
        if status == 404:
            return ConfigError(f"{said}: there is no {self.where}")
        if status == 403:
            return ConfigError(f"{said}: needed are {self._needed}")
        if 300 <= status < 400:
            return ConfigError(f"{said}: the bucket is elsewhere: is endpoint= right?")
        return ConfigError(said)


def _said(answer: Response) -> str:
    """The message of a refusal on one printable line."""
    try:
        return printable(str(answer.json()["error"]["message"]))[:120]
    except (Malformed, LookupError, TypeError):
        return answer.excerpt()[:120]


_PLAIN = {ord("-"): "a", ord("."): "a", ord("_"): "a"}
