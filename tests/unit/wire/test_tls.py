"""lockctl.wire.tls: what is wrong with a file is said in words that help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lockctl.errors import ConfigError
from lockctl.wire.tls import context
from lockctl.wire.tls_settings import TlsSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.certificates import Certificates


def told(cert: str, key: str | None) -> str:
    with pytest.raises(ConfigError) as refused:
        context(TlsSettings(cert=cert, key=key))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_client_certificate_without_its_key_says_what_is_missing(certificates: Certificates, tmp_path: Path) -> None:
    cert, key = certificates.client_cert, certificates.client_key
    (tmp_path / "empty").touch()
    for pair in (
        (cert, None),
        (cert, cert),
        (key, key),
        (cert, str(tmp_path / "empty")),
        (str(tmp_path / "empty"), key),
    ):
        said = told(*pair)
        assert said.startswith(f"client certificate {pair[0]}"), pair
        assert "there must be a certificate and its private key" in said, pair


def test_an_encrypted_key_is_said_to_be_encrypted(certificates: Certificates) -> None:
    assert "the private key is encrypted" in told(certificates.client_cert, certificates.locked_key)


def test_the_key_of_another_certificate_is_said_to_be_one(certificates: Certificates) -> None:
    assert told(certificates.client_cert, certificates.other_key).endswith("key values mismatch")
