"""The names of the tables that lockctl keeps, and what a refused statement on them says."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NO_TABLE, NO_COLUMN, FORBIDDEN = "42P01", "42703", "42501"


class Names:
    """The tables of one schema."""

    def __init__(self, schema: str | None) -> None:
        """Those in *schema*, or in the first of the connection's search_path that has one."""
        self.schema = None if schema is None else '"' + schema.replace('"', '""') + '"'
        self.table = self.named("lockctl_fence")
        self.quoted = self.table.replace("%", "%%")

    def named(self, word: str) -> str:
        """The table *word* of the same schema."""
        return word if self.schema is None else f"{self.schema}.{word}"


def text(data: Any) -> str | None:
    """A text as the driver gives it."""
    return None if data is None else bytes(data).decode("utf-8", "replace")
