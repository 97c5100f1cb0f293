"""The README as a package index shows it, and the URLs of the project: a hook of hatchling.

Links of README.md lead to files of the repository, which an index does not have. If ``REPOSITORY_URL`` names the
repository when the package is built, they lead there; otherwise their text is left, and no picture.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:)([^)]+)\)")


def readme(text: str, repository: str, version: str) -> str:
    """*text* with absolute links to the tag of *version* in *repository*, or without links if that is empty."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if repository:
            return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"
        return "" if picture else words

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(link, text))


def urls(repository: str, version: str) -> dict[str, str]:
    """What an index shows beside the text."""
    if not repository:
        return {}
    tree = f"{repository}/blob/v{version}"
    return {
        "Repository": repository,
        "Documentation": f"{tree}/README.md",
        "Changelog": f"{tree}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class Hook(MetadataHookInterface):
    """Gives what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields; the version is there already."""
        repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        version = str(metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, repository, version)}
        metadata["urls"] = urls(repository, version)
