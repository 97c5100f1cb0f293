"""The rights in lockctl-backends(7) are enough for all that locks do, and each of them is needed: those of SAS tokens."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from lockctl.errors import ConfigError
from tests.promises.rights import use_objects
from tests.servers.azurite import ACCOUNT, sas

if TYPE_CHECKING:
    from tests.servers.azurite import Azurite

PAGE = (Path(__file__).resolve().parents[3] / "man/text/lockctl-backends.7.txt").read_text(encoding="utf-8")
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"


def role() -> set[str]:
    """The data actions of the role in the manual."""
    (actions,) = re.findall(r'"DataActions": \[(.*)\]', PAGE)
    return set(re.findall(r'"([^"]+)"', actions))


def use(server: Azurite, rights: str) -> None:
    """Everything that writes, lists and deletes, with these rights."""
    login = quote(sas(rights, 60.0), safe="")
    place = f"locks/rights-{os.urandom(6).hex()}?account={ACCOUNT}&endpoint=http://{server.address}/{ACCOUNT}"
    use_objects(f"azblob://:{login}@{place}")


def test_the_rights_of_the_manual_are_enough_and_all_of_them_are_needed(azblob_server: Azurite) -> None:
    (rights,) = re.findall(r"generate-sas .*--permissions (\w+)", PAGE)
    assert len(rights) == 4
    use(azblob_server, rights)
    for each in rights:
        with pytest.raises(ConfigError, match=r"needed are the data actions .*, or a SAS token with rwdl") as told:
            use(azblob_server, rights.replace(each, ""))
        assert {BLOBS + action for action in re.findall(r"blobs/(\w+)", str(told.value))} == role()


def test_the_role_of_the_manual_has_the_rights_of_the_token() -> None:
    """Of a role, the right to read also lists (Microsoft's table of permissions for data operations)."""
    assert role() == {BLOBS + each for each in ("read", "write", "delete")}
