"""lockctl.umask: what the owner may do with what was just made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lockctl.umask import make_directory, open_to_owner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of the test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.parametrize(
    ("umask", "above", "below"),
    [(0o022, 0o755, 0o700), (0o277, 0o700, 0o700), (0o777, 0o700, 0o700)],
    indirect=["umask"],
)
@pytest.mark.parametrize("end", ["", "//"])
@pytest.mark.usefixtures("umask")
def test_a_directory_and_those_above_it_are_their_owners_to_use(
    tmp_path: Path, above: int, below: int, end: str
) -> None:
    place = tmp_path / "one" / "two" / "three"
    make_directory(f"{place}{end}", 0o700)
    make_directory(f"{place}{end}", 0o700)
    assert [path.stat().st_mode & 0o777 for path in (place.parents[1], place.parent, place)] == [above, above, below]


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o477, 0o600), (0o717, 0o660)], indirect=["umask"])
@pytest.mark.usefixtures("umask")
def test_a_file_keeps_what_the_umask_leaves_to_others(tmp_path: Path, mode: int) -> None:
    with open(tmp_path / "file", "w") as file:
        open_to_owner(file.fileno())
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_what_was_there_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    make_directory(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o500


@pytest.mark.parametrize("place", ["", "link/one"])
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        make_directory(place and f"{tmp_path}/{place}")
