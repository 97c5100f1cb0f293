"""An S3 server of another make than moto: SeaweedFS, which keeps objects on the disk. The wheel has its program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import moto
from tests.servers.process import Server, free_port
from tests.servers.programs import ProgramMissing

if TYPE_CHECKING:
    from collections.abc import Sequence


PARTS = ("master.port", "volume.port", "filer.port")
PORTS = (*PARTS, "s3.port.grpc", *(f"{part}.grpc" for part in PARTS))


class SeaweedFs(Server):
    """Master, volume, filer and S3 in one process, with a bucket for locks."""

    programs = ()
    bucket, key, secret = "locks", "test", "s3cret"

    def __init__(self, directory: Path) -> None:
        """Its parts talk on ports of their own."""
        self._program = Path(sys.executable).parent / "weed"
        if not self._program.exists():
            raise ProgramMissing("weed is not here: install the group dev")
        super().__init__(directory)
        self._others = {name: free_port() for name in PORTS}

    def _configure(self) -> None:
        login = {"accessKey": self.key, "secretKey": self.secret}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        users = {"identities": [{"name": "lockctl", "credentials": [login], "actions": actions}]}
        (self.directory / "users.json").write_text(json.dumps(users))
        (self.directory / "data").mkdir()

    def _words(self) -> Sequence[str]:
        ports = [f"-{part}={port}" for part, port in self._others.items()] + [f"-s3.port={self.port}"]
        small = ["-master.volumeSizeLimitMB=64", "-volume.max=8", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        places = [f"-dir={self.directory / 'data'}", f"-s3.config={self.directory / 'users.json'}"]
        return [str(self._program), "server", "-ip=127.0.0.1", "-filer", "-s3", *ports, *small, *places]

    def client(self) -> Any:
        """A client of botocore for it."""
        return moto.client_of(f"http://{self.address}", "s3", self.key, self.secret)

    def _answers(self) -> bool:
        """It answers before it can keep anything."""
        client = self.client()
        try:
            if self.bucket not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=self.bucket)
            client.put_object(Bucket=self.bucket, Key="ready", Body=b"")
            client.delete_object(Bucket=self.bucket, Key="ready")
        except (ClientError, BotoCoreError) as not_yet:
            raise RuntimeError(str(not_yet)) from None
        finally:
            client.close()
        return True
