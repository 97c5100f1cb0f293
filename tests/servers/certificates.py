"""Certificates for tests of TLS, made by the ``openssl`` command in a few hundredths of a second each."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tests.servers import programs

if TYPE_CHECKING:
    from pathlib import Path

DAYS = 30  # a leftover is worth nothing soon
BOTH = "extendedKeyUsage=serverAuth,clientAuth"  # the gateway of etcd is a client with the certificate of the server
HERE = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost"


class Certificates:
    """A CA, what it signed, and a second CA that nobody trusts. All attributes are paths of PEM files."""

    def __init__(self, directory: Path) -> None:
        """Make all of them. Raises ``ProgramMissing``."""
        self._openssl = programs.find("openssl")
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        # not the configuration of the machine, which may add anything
        (directory / "openssl.cnf").write_text("[req]\ndistinguished_name=name\n[name]\n")
        self.ca, self._ca_key = self._make("ca", "/CN=lockctl tests", "basicConstraints=critical,CA:TRUE")
        # no CN: etcd takes that of a client for the name of its user, and its gateway is a client of this kind
        self.server_cert, self.server_key = self._make("server", "/O=lockctl", HERE, BOTH, signer="ca")
        self.wrong_cert, self.wrong_key = self._make(
            "wrong", "/O=lockctl", "subjectAltName=DNS:elsewhere.example", BOTH, signer="ca"
        )
        self.client_cert, self.client_key = self._make(
            "client", "/CN=lockctl", "extendedKeyUsage=clientAuth", signer="ca"
        )
        self.next_cert, self.next_key = self._make(
            "next", "/CN=lockctl", "extendedKeyUsage=clientAuth", signer="ca", days=2 * DAYS
        )
        self.locked_key = self._lock(self.client_key)
        self.nameless_cert, self.nameless_key = self._make(
            "nameless", "/O=lockctl", "extendedKeyUsage=clientAuth", signer="ca"
        )
        self.other_ca, self._other_key = self._make("other_ca", "/CN=strangers", "basicConstraints=critical,CA:TRUE")
        self.other_cert, self.other_key = self._make("other", "/O=strangers", HERE, BOTH, signer="other_ca")

    def _make(
        self, name: str, subject: str, *extensions: str, signer: str | None = None, days: int = DAYS
    ) -> tuple[str, str]:
        certificate, key = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        words = [
            self._openssl,
            "req",
            "-x509",
            "-config",
            str(self._directory / "openssl.cnf"),
            "-days",
            str(days),
            "-nodes",
        ]
        words += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject]
        words += ["-keyout", str(key), "-out", str(certificate)]
        for extension in extensions:
            words += ["-addext", extension]
        if signer is None:
            words += ["-addext", "keyUsage=critical,keyCertSign,cRLSign", "-addext", "subjectKeyIdentifier=hash"]
        else:
            words += ["-CA", str(self._directory / f"{signer}.pem"), "-CAkey", str(self._directory / f"{signer}.key")]
            words += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "authorityKeyIdentifier=keyid"]
        programs.run(words)
        return str(certificate), str(key)

    def _lock(self, key: str) -> str:
        """The same key, encrypted: who uses it must know a pass phrase."""
        locked = f"{key}.locked"
        programs.run([self._openssl, "pkey", "-in", key, "-aes256", "-passout", "pass:s3cret-horse", "-out", locked])
        return locked

    def context(self) -> ssl.SSLContext:
        """What a client needs that trusts the CA and shows the certificate without a name."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.nameless_cert, self.nameless_key)
        return context
