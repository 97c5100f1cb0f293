"""An S3 server: moto's, which keeps objects in memory and honours If-Match and If-None-Match on PUT."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from tests.servers import web
from tests.servers.process import Server
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.servers.certificates import Certificates

# S3 compares and writes in one step. moto does it in two, so it is given one request at a time.
PROGRAM = """
import email.utils, gc, io, sys, threading, time
from moto import backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

services = list(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: services  # it would look at 180 folders for each request
WSGIRequestHandler.protocol_version = "HTTP/1.1"  # connections are kept, as by S3
WSGIRequestHandler.log_request = lambda *_: None

moto, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()
ahead = {}  # bucket -> seconds

def one_at_a_time(environ, start_response):
    bucket, *rest = environ["PATH_INFO"].strip("/").split("/")
    if bucket == "-clock-":
        ahead[rest[0]] = ahead.get(rest[0], 0.0) + float(rest[1])
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def dated(status, headers, *more):
        date = email.utils.formatdate(time.time() + ahead.get(bucket, 0.0), usegmt=True)
        return start_response(status, [each for each in headers if each[0].lower() != "date"] + [("Date", date)], *more)

    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    with turn:
        return list(moto(environ, dated))

gc.freeze()  # what was imported is no garbage
run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True, ssl_context=tuple(sys.argv[2:]) or None)
"""


class Moto(Server):
    """S3 for tests, path-style: ``http://ADDRESS/BUCKET/KEY``."""

    programs = ()

    def __init__(self, directory: Path, *, verified_after: int | None = None, tls: Certificates | None = None) -> None:
        """*verified_after* this many requests, credentials and permissions are checked; else everybody may do all.

        With *tls* the port speaks TLS only.
        """
        if importlib.util.find_spec("moto") is None:
            raise ProgramMissing("moto is not here: install the group dev")
        super().__init__(directory)
        self._verified_after = verified_after
        self._tls = tls

    @property
    def url(self) -> str:
        """``http://`` or ``https://``, and the address."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    def _configure(self) -> None:
        """It reads no files."""

    def _words(self) -> Sequence[str]:
        files = [self._tls.server_cert, self._tls.server_key] if self._tls else []
        return [sys.executable, "-c", PROGRAM, str(self.port), *map(str, files)]

    def _variables(self) -> dict[str, str]:
        # the question whether it answers is no request to AWS, and not counted
        return {} if self._verified_after is None else {"INITIAL_NO_AUTH_ACTION_COUNT": str(self._verified_after)}

    def _answers(self) -> bool:
        context = self._tls.context() if self._tls else None
        return web.request(self.address, "GET", "/moto-api/data.json", timeout=20.0, context=context)[0] == 200

    def pass_time(self, bucket: str, seconds: float) -> None:
        """Put the clock forward that ends leases in a bucket."""
        web.request(self.address, "POST", f"/-clock-/{bucket}/{seconds}", timeout=20.0)

    def client(self, service: str = "s3", key: str = "test", secret: str = "test") -> Any:
        """A client of botocore for it, with these credentials."""
        return client_of(self.url, service, key, secret, self._tls)


class S3(Moto):
    """The same with a bucket for locks."""

    bucket = "locks"

    def delete(self, name: str) -> None:
        """Delete an object by hand."""
        client = self.client()
        client.delete_object(Bucket=self.bucket, Key=name)
        client.close()

    def _initialise(self) -> None:
        client = self.client()
        client.create_bucket(Bucket=self.bucket)
        client.close()


def client_of(url: str, service: str, key: str, secret: str, tls: Certificates | None = None) -> Any:
    """A client of botocore for a server."""
    from botocore.config import Config

    return _session().create_client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        verify=str(tls.ca) if tls else None,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


@functools.cache
def _session() -> Any:
    """One for all clients: it reads the description of the service, which takes half a second."""
    import botocore.session

    return botocore.session.Session()
