"""One HTTP request to a server that a test has started."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping


def request(
    address: str,
    method: str,
    path: str,
    *,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
    timeout: float = 2.0,
) -> tuple[int, bytes]:
    """Status and body. With *context* by TLS. Raises ``OSError`` when no whole answer comes."""
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(address, timeout=timeout)
    else:
        connection = http.client.HTTPSConnection(address, timeout=timeout, context=context)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"not an HTTP answer: {error!r}") from error
    finally:
        connection.close()
