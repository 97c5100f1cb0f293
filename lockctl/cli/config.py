"""``lockctl config show|check|path``: the effective settings, and where each value came from."""

from __future__ import annotations

import json
import os

from lockctl import config, registry
from lockctl.cli import exit_status
from lockctl.cli.look import checked
from lockctl.cli.messages import Talk
from lockctl.cli.output import print_data, table
from lockctl.cli.run import check_pairs, schedule_of
from lockctl.config_file import at, readable_secrets
from lockctl.errors import ConfigError
from lockctl.names import printable
from lockctl.settings import BY_NAME, shown
from lockctl.url import parse_url, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lockctl.config_file import ConfigFile


def show(lock: str | None, config_file: str | None, backend: str | None, *, as_json: bool) -> int:
    """Print every setting; a backend is shown without user, password and parameters."""
    file = config.read_config(config.config_path(config_file, os.environ))
    given: dict[str, str | bool] = {} if backend is None else {"backend": backend}
    settings = config.resolve(given, os.environ, file, None if lock is None else checked(lock))
    rows = []
    for name, setting in settings.items():
        if not BY_NAME[name].in_config:
            continue
        content = shown(BY_NAME[name], setting.content)
        if name == "backend":
            content = str(config.backend_url(setting, os.environ, file))
        elif name == "fence" and "@" in content:
            content = without_secrets(content)
        elif name == "fence" and "://" in content:
            content = str(parse_url(content))
        rows.append((name, printable(content), printable(setting.source)))
    if as_json:
        print_data(json.dumps({name: {"value": content, "source": source} for name, content, source in rows}, indent=2))
    else:
        print_data(
            table([("SETTING", "VALUE", "SOURCE"), *((name, content or "-", source) for name, content, source in rows)])
        )
    return exit_status.OK


def check(config_file: str | None, backend: str | None, *, as_json: bool) -> int:
    """Read and check everything, also every backend's URL; raises ``ConfigError`` for the first mistake.

    Prints nothing then, and else the path; *as_json* is as in :func:`path`.
    """
    path = config.config_path(config_file, os.environ)
    file = config.read_config(path)
    given: dict[str, str | bool] = {} if backend is None else {"backend": backend}
    patterns = [] if file is None else list(file.tables.get("locks", {}))
    for lock in (None, *patterns):  # a pattern stands for the locks that match it
        settings = config.resolve(given, os.environ, file, lock)
        url = config.backend_url(settings["backend"], os.environ, file)
        registry.open_backend(url).close()
        check_pairs(settings)
        schedule_of(settings["ttl"], settings["kill_after"], url)
    if file is not None:
        _check_profiles(file)
        for warning in readable_secrets(file):
            Talk()("warning", warning)
    said = f"{printable(path)}: ok" if path else "no configuration file: built-in settings count"
    print_data(_path_document(path) if as_json else said)
    return exit_status.OK


def _check_profiles(file: ConfigFile) -> None:
    for name in file.tables.get("backends", {}):
        url = config.profile_url(file, name)
        try:
            registry.open_backend(url).close()
        except ConfigError as wrong:
            said = str(wrong)
            key = next(
                (key for key in file.tables["backends"][name] if said.startswith((f"{key} ", f"{key}: "))), "url"
            )
            raise at(file, ("backends", name), key, said.removeprefix(key).removeprefix(":").lstrip()) from None


def path(config_file: str | None, *, as_json: bool) -> int:
    """Print the path of the file that counts; with *as_json* ``null`` if there is none."""
    found = config.config_path(config_file, os.environ)
    if as_json:
        print_data(_path_document(found))
    elif found:
        print_data(printable(found))
    return exit_status.OK


def _path_document(path: str | None) -> str:
    return json.dumps({"path": None if path is None else printable(path)}, indent=2)
