"""A place for locks of its own in the server of all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.postgresql.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lockctl.stores.postgresql.lock import PostgresqlBackend
    from tests.servers.postgres import Postgres


@pytest.fixture
def place(postgres_server: Postgres) -> Iterator[Place]:
    made = Place(postgres_server)
    yield made
    made.close()


@pytest.fixture
def schema(place: Place) -> str:
    """Of the user's own: the tables of two tests are different ones."""
    return place.schema


@pytest.fixture
def open_client(place: Place) -> Callable[..., PostgresqlBackend]:
    """A call that makes a client: parameters of its URL, and through which address it goes."""
    return place.client
