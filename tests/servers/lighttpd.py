"""lighttpd with WebDAV: a web server whose PUT compares ETags and replaces the file in one step."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.servers import programs, web
from tests.servers.process import Server
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence


class Lighttpd(Server):
    """One worker; the documents are the files in ``documents``."""

    programs: ClassVar[tuple[str, ...]] = ("lighttpd",)

    def __init__(
        self,
        directory: Path,
        *,
        login: tuple[str, str] | None = None,
        readonly: bool = False,
        disk: str = "",
        extra: Sequence[str] = (),
    ) -> None:
        """*login*: user and password that everybody needs. *extra* are lines of its configuration.

        *disk*: the documents are on a disk of their own of this size, which nobody else sees, such as ``64k``.
        """
        super().__init__(directory)
        self.documents = self.directory / "documents"
        self._disk = disk
        self._alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if disk and subprocess.run([*self._alone, "true"], capture_output=True, timeout=20, check=False).returncode:
            raise ProgramMissing("this user may not make namespaces here")
        # beside the program, also where Debian's packages are only unpacked
        self._modules = Path(programs.find("lighttpd")).parents[1] / "lib" / "lighttpd"
        if not (self._modules / "mod_webdav.so").exists():
            raise ProgramMissing("lighttpd-mod-webdav is not here: `make tools` unpacks it below .servers")
        self._login = login
        self._lines = [f'webdav.is-readonly = "{"enable" if readonly else "disable"}"', *extra]

    @property
    def url(self) -> str:
        """``http://`` and the address."""
        return f"http://{self.address}"

    def _configure(self) -> None:
        self.documents.mkdir(exist_ok=True)
        (self.directory / "uploads").mkdir()
        lines = [
            'server.modules = ("mod_auth", "mod_authn_file", "mod_webdav")',
            f'server.document-root = "{self.documents}"',
            f'server.upload-dirs = ("{self.directory / "uploads"}")',
            f'server.bind = "{self.host}"',
            f"server.port = {self.port}",
            'server.stat-cache-engine = "disable"',  # tests change files behind its back
            'webdav.activate = "enable"',
            'mimetype.assign = ("" => "application/octet-stream")',  # as Debian has it; no ETags without a type
            *self._lines,
        ]
        if self._login is not None:
            (self.directory / "users").write_text(":".join(self._login) + "\n")
            lines += ['auth.backend = "plain"', f'auth.backend.plain.userfile = "{self.directory / "users"}"']
            lines += ['auth.require = ("/" => ("method" => "basic", "realm" => "tests", "require" => "valid-user"))']
        (self.directory / "conf").write_text("\n".join([*lines, ""]))

    def _words(self) -> Sequence[str]:
        words = [programs.find("lighttpd"), "-D", "-m", str(self._modules), "-f", str(self.directory / "conf")]
        if self._disk:
            mount = f'mount -t tmpfs -o size={self._disk} none "$0" && exec "$@"'
            return [*self._alone, "sh", "-c", mount, str(self.documents), *words]
        return words

    def _answers(self) -> bool:
        return web.request(self.address, "GET", "/nothing")[0] in (401, 404)
