"""lockctl.cli.mistakes: the sentences about wrong words."""

from __future__ import annotations

import pytest

from lockctl.cli import commands


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("runn -- true", "there is no command 'runn': did you mean 'run'? (try: lockctl --help)"),
        ("fence chekc", "there is no command 'chekc': did you mean 'check'? (try: lockctl fence --help)"),
        ("run --tlt 5 -- true", "there is no option --tlt: did you mean '--ttl'? (try: lockctl run --help)"),
        ("run -Z -- true", "there is no option -Z (try: lockctl run --help)"),
        ("acquire --json", "there is no option --json (try: lockctl acquire --help)"),
        ("--config x run", "--config stands after the command: lockctl COMMAND --config (try: lockctl --help)"),
        ("--jsno list", "there is no option --jsno (try: lockctl --help)"),
        ("list --state", "--state needs a value"),
        ("list --json=1", "--json takes no value"),
        ("inspect", "NAME is missing (try: lockctl inspect --help)"),
        ("acquire a", "--for is missing (try: lockctl acquire --help)"),
        ("inspect a b", "too many arguments: b (try: lockctl inspect --help)"),
        ("acquire a --for 5 --export csh", "--export: 'csh' is not 'sh' (try: lockctl acquire --help)"),
    ],
)
def test_what_click_finds_is_said_in_one_plain_sentence(
    capfd: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert commands.invoke(line.split()) == 64
    assert capfd.readouterr().err == f"lockctl: {said}\n"
