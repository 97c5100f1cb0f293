"""A server of Azure Blob Storage: Azurite, which `make tools` gets with npm; blobs in memory.

It compares ETags in one step with each write and each deletion, as Azure does. It checks keys, SAS tokens and their
rights, but of other logins nothing but the form. It keeps no versions and no deleted blobs, has no limit of requests,
and refuses a wrong signature with another word than Azure.
"""

from __future__ import annotations

import contextlib
import hmac
import html
import time
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote

from lockctl.errors import BackendUnavailable, ConfigError
from lockctl.stores.azblob import address
from lockctl.stores.azblob.access import VERSION
from lockctl.stores.azblob.cell import RIGHTS
from lockctl.stores.azblob.protocol import Container
from lockctl.url import parse_url
from lockctl.wire.deadline import Deadline
from tests.servers import programs
from tests.servers.process import Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lockctl.wire.answer import Response
    from tests.servers.certificates import Certificates

ACCOUNT = "lockctl"
KEY = b64encode(b"s3cret of the account").decode()
PLACE = programs.UNPACKED.parent / "azurite/node_modules/azurite/dist/src/blob/main.js"
LIMIT = 10.0  # seconds for one request


class Azurite(Server):
    """Azure Blob Storage for tests, with a container for locks."""

    programs = ("node",)
    container = "locks"

    def __init__(self, directory: Path, *, tls: Certificates | None = None) -> None:
        """With *tls* the port speaks TLS only, and logins of any form are let in, too."""
        if not PLACE.exists():
            raise programs.ProgramMissing("azurite is not here: `make tools` gets it")
        super().__init__(directory)
        self._tls = tls

    def make(self, container: str) -> None:
        """Make a container."""
        assert self.request("PUT", container, query=(("restype", "container"),))

    def delete(self, name: str) -> None:
        """Delete a blob of the locks by hand."""
        assert self.request("DELETE", self.container, name)

    def lease(self, name: str) -> None:
        """Have a lease of Azure's on a blob of the locks, for ever."""
        headers = {"x-ms-lease-action": "acquire", "x-ms-lease-duration": "-1"}
        assert self.request("PUT", self.container, name, query=(("comp", "lease"),), headers=headers)

    def blobs(self, container: str = container) -> list[str]:
        """The names of all blobs."""
        answer = self.request("GET", container, query=(("comp", "list"), ("restype", "container")))
        assert answer is not None
        return [html.unescape(each.partition("</Name>")[0]) for each in answer.body.decode().split("<Name>")[1:]]

    def request(
        self,
        method: str,
        container: str,
        name: str = "",
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Response | None:
        """What the server answers to its owner; ``None``: there is no such blob."""
        with contextlib.closing(self._container(container)) as asked:
            answer = asked.ask(method, name, Deadline(LIMIT), query=query, body=body, headers=headers)
        return None if answer is None or answer.status == 404 else answer

    def _container(self, name: str) -> Container:
        scheme = "https" if self._tls else "http"
        text = f"azblob://:{quote(KEY)}@{name}?account={ACCOUNT}&endpoint={scheme}://{self.address}/{ACCOUNT}"
        text += f"&ca={self._tls.ca}" if self._tls else ""
        return Container(address.from_url(parse_url(text), address.PARAMETERS), RIGHTS)

    def _configure(self) -> None:
        """It reads no files."""

    def _words(self) -> Sequence[str]:
        words = [programs.find("node"), str(PLACE), "--blobHost", self.host, "--blobPort", str(self.port)]
        words += ["--inMemoryPersistence", "--silent", "--disableTelemetry"]
        if self._tls:
            words += ["--oauth", "basic", "--cert", str(self._tls.server_cert), "--key", str(self._tls.server_key)]
        return words

    def _variables(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}

    def _answers(self) -> bool:
        try:
            self.make(self.container)
        except BackendUnavailable as not_yet:
            raise RuntimeError(str(not_yet)) from None
        except ConfigError as refused:
            if "ContainerAlreadyExists" not in str(refused):
                raise
        return True


def sas(rights: str, seconds: float, container: str = "locks") -> str:
    """A SAS token for a container, of the account's key: *rights* such as ``rwdl``, for so many seconds from now."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    lines = [rights, "", end, f"/blob/{ACCOUNT}/{container}", "", "", "", VERSION, "c", *[""] * 7]
    signature = b64encode(hmac.digest(b64decode(KEY), "\n".join(lines).encode(), "sha256")).decode()
    words = {"sp": rights, "se": end, "sv": VERSION, "sr": "c", "sig": signature}
    return "&".join(f"{name}={quote(text, safe='')}" for name, text in words.items())


def place(at: str, prefix: str, more: str = "") -> str:
    """The URL of locks behind an address, with the key of the account."""
    return f"azblob://:{quote(KEY, safe='')}@locks/{prefix}?account={ACCOUNT}&endpoint=http://{at}/{ACCOUNT}{more}"
