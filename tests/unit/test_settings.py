"""lockctl.settings and lockctl.settings_values: one table, and one reader for flags, variables and files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockctl.cli.daemon.daemonize import FIXED
from lockctl.cli.verbs.acquire import HOLDING, SAYING
from lockctl.names import printable
from lockctl.settings import BY_NAME, CHOICE, FLAG, SETTINGS, Setting
from lockctl.settings_values import check, shown
from lockctl.supervise.signals import NAMES


def test_no_two_settings_share_a_name_or_a_flag() -> None:
    flags = [flag for setting in SETTINGS for flag in setting.flags]
    assert len(set(flags)) == len(flags)
    assert len(BY_NAME) == len(SETTINGS)


def test_each_setting_is_an_option_of_acquire_or_fixed_there_or_counts_from_the_configuration() -> None:
    """Else a new one in a configuration would change what the daemon does, and nobody had thought of it."""
    of_its_own, from_configuration = ("lock", "report", "shell"), ("fence", "metrics_dir", "redact")
    known = [*HOLDING, *SAYING, *FIXED, *of_its_own, *from_configuration]
    assert sorted(known) == sorted(BY_NAME)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_described_and_its_default_is_right(setting: Setting) -> None:
    assert setting.help.endswith(".")
    assert setting.flags[-1] == "--" + setting.name.replace("_", "-")
    assert setting.variable == "LOCKCTL_" + setting.name.upper()
    assert bool(setting.metavar) is setting.takes_value
    assert bool(setting.choices) is (setting.kind == CHOICE)
    if setting.default:
        content = check(setting, setting.default)
        assert check(setting, shown(setting, content)) == content


@given(st.sampled_from(SETTINGS), st.text(st.characters(codec=None)))
def test_any_text_is_a_value_that_can_be_written_again_or_is_refused_in_one_line(setting: Setting, text: str) -> None:
    try:
        content = check(setting, text)
    except ValueError as wrong:
        said = str(wrong)
        assert said
        assert "\n" not in printable(said)
    else:
        again = check(setting, shown(setting, content))
        assert again == (pytest.approx(content, abs=0.0006) if isinstance(content, float) else content)


@pytest.mark.parametrize(
    ("name", "text", "content"),
    [
        ("ttl", "1h30m", 5400.0),
        ("wait", "forever", float("inf")),
        ("conflict_exit_code", "0", 0),
        ("conflict_exit_code", "255", 255),
        ("signal", "SIGINT", NAMES["INT"]),
        ("signal", "9", 9),
        ("leftover", "wait", "wait"),
        ("skip_ok", "Yes", True),
        ("skip_ok", "off", False),
        ("lock", "nightly", "nightly"),
        ("report", "/tmp/a b", "/tmp/a b"),
    ],
)
def test_these_values_are_read_like_this(name: str, text: str, content: object) -> None:
    assert check(BY_NAME[name], text) == content


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ttl", "banana"),
        ("ttl", ""),
        ("ttl", "forever"),
        ("wait", "never"),
        ("conflict_exit_code", "256"),
        ("conflict_exit_code", "-1"),
        ("conflict_exit_code", "600"),
        ("conflict_exit_code", "\N{ARABIC-INDIC DIGIT SEVEN}"),
        ("conflict_exit_code", "7.0"),
        ("conflict_exit_code", ""),
        ("conflict_exit_code", "one"),
        ("conflict_exit_code", "0x10"),
        ("conflict_exit_code", "\N{SUPERSCRIPT TWO}"),
        ("conflict_exit_code", "9" * 5000),
        ("signal", "SIGBANANA"),
        ("signal", "0"),
        ("signal", ""),
        ("signal", "65"),
        ("leftover", "KILL"),
        ("guarantee", ""),
        ("skip_ok", "maybe"),
        ("lock", "a/b"),
        ("backend", ""),
        ("report", "a\0b"),
    ],
)
def test_these_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check(BY_NAME[name], text)


def test_a_yes_or_no_is_shown_as_the_file_has_it_and_nothing_as_nothing() -> None:
    flags = [setting for setting in SETTINGS if setting.kind == FLAG]
    assert flags
    assert [shown(flags[0], content) for content in (True, False, None)] == ["true", "false", ""]
    assert shown(BY_NAME["ttl"], 90.0) == "1m30s"
    assert shown(BY_NAME["signal"], NAMES["TERM"]) == "TERM"
