"""lockctl.cli.verbs.install_docs: where the files belong, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lockctl.cli.commands import cli
from lockctl.cli.verbs import install_docs
from lockctl.errors import ConfigError, UsageError


def test_fish_of_all_users_reads_another_directory_than_that_of_one() -> None:
    name = "fish/vendor_completions.d/lockctl.fish"
    assert install_docs.place(name, install_docs.SYSTEM) == "/etc/fish/completions/lockctl.fish"
    assert install_docs.place(name, "/somewhere") == name


@pytest.mark.parametrize(("named", "where"), [("/data", "/data"), ("", "~/.local/share"), ("data", "~/.local/share")])
def test_the_data_of_a_user_are_where_the_variable_says_if_it_is_a_whole_path(named: str, where: str) -> None:
    assert install_docs.user_share({"XDG_DATA_HOME": named}) == str(Path(where).expanduser())


def test_it_is_for_one_user_or_for_all() -> None:
    done = CliRunner().invoke(cli, ["install-docs", "--user", "--system"])
    assert isinstance(done.exception, UsageError)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "man").write_text("no directory")
    done = CliRunner(env={"XDG_DATA_HOME": str(tmp_path)}).invoke(cli, ["install-docs", "--user"])
    assert isinstance(done.exception, ConfigError)
    assert f"{tmp_path}/man/man1/lockctl-acquire.1: " in str(done.exception)


@pytest.mark.parametrize("there", [True, False])
def test_what_a_package_of_a_distribution_has_put_in_place_or_compressed_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    (tmp_path / "packaged").mkdir()
    page = tmp_path / "packaged/lockctl.1"
    page.write_text("page" * there)
    monkeypatch.setattr(install_docs, "PACKAGED", str(tmp_path / "packaged"))
    source = str(page) if there else str(tmp_path / "data/lockctl.1")
    monkeypatch.setattr(install_docs, "shipped", lambda: iter([(source, "man/man1/lockctl.1")]))
    done = CliRunner(env={"XDG_DATA_HOME": str(tmp_path / "home")}).invoke(cli, ["install-docs", "--user"])
    assert (done.exception, (tmp_path / "home").exists()) == (None, False)


def test_a_page_to_which_pipx_has_made_a_link_is_one_that_man_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, link = tmp_path / "venv/lockctl-run.1", tmp_path / "share/man/man1/lockctl-run.1"
    for each in (page, link):
        each.parent.mkdir(parents=True)
    page.touch()
    link.symlink_to(page)
    said: list[Path] = []
    monkeypatch.setattr(install_docs, "_asked", lambda *_: map(str, said))  # man prints where a link leads
    monkeypatch.setattr("shutil.which", lambda program: program == "man")
    assert len(list(install_docs.missing(str(tmp_path / "share")))) == 1
    said.append(page)
    assert list(install_docs.missing(str(tmp_path / "share"))) == []
