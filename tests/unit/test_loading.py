"""lockctl.loading: modules come as Python itself would load them, only faster."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

import lockctl

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(lockctl.__file__).parent
QUICK = """
import sys
from lockctl import loading
sys.meta_path.insert(0, loading.Finder("sample"))
"""
FACTS = """
import importlib, json, sys
if sys.argv[1] != "usual":
    from lockctl import loading
    loading.install()
    assert type(sys.meta_path[0]).__name__ == "Finder"
facts = {}
for name in sys.argv[2:]:
    if sys.argv[1] == "listed":
        loading.load(name.removeprefix("lockctl."))
    module = importlib.import_module(name)
    spec = module.__spec__
    facts[name] = [module.__file__, module.__cached__, module.__package__, getattr(module, "__path__", None)]
    facts[name] += [spec.origin, spec.parent, spec.has_location, spec.submodule_search_locations]
    facts[name] += [sorted(vars(module))]
    assert (type(spec.loader).__name__ == "Loader") == (sys.argv[1] != "usual"), spec
print(json.dumps(facts))
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A package with a module and a package in it, compiled, whose module says ``first``."""
    for name, text in (("__init__.py", ""), ("word.py", "WORD = 'first'\n"), ("inner/__init__.py", "WORD = 'inner'\n")):
        path = tmp_path / "sample" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    compileall.compile_dir(tmp_path, quiet=2)
    return tmp_path / "sample"


def run(
    text: str,
    *words: str,
    folder: Path,
    arguments: tuple[str, ...] = (),
    expected: int = 0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What Python, called with options *words*, prints for the program *text*, with *folder* on its path."""
    environment = {name: content for name, content in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.update(PYTHONPATH=os.pathsep.join([str(folder), str(ROOT.parent)]), **variables)
    options = [sys.executable, *words, "-c", text, *arguments]
    done = subprocess.run(options, check=False, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


def said(sample: Path, module: str = "word", **variables: str) -> str:
    return run(
        f"{QUICK}from sample.{module} import WORD\nprint(WORD)", folder=sample.parent, variables=variables
    ).strip()


def test_a_module_of_lockctl_is_the_same_however_it_was_loaded() -> None:
    names = [
        "lockctl." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted([*ROOT.glob("*.py"), *ROOT.glob("lease/*.py"), *ROOT.glob("stores/file/*.py")])
        if path.name not in ("__main__.py", "script.py", "loading.py")
        and path.parent / path.name != ROOT / "__init__.py"
    ]
    assert "lockctl.lease" in names
    assert "lockctl.stores.file.address" in names
    usual, *other = (run(FACTS, folder=ROOT.parent, arguments=(how, *names)) for how in ("usual", "quick", "listed"))
    assert other == [usual, usual]


def test_a_module_and_a_package_are_loaded_from_their_compiled_files(sample: Path) -> None:
    assert said(sample) == "first"
    assert said(sample, "inner") == "inner"
    trace = run(f"{QUICK}import sample.word\nprint(sample.word.__spec__)", folder=sample.parent)
    assert "loading.Loader" in trace


def test_a_changed_source_is_seen(sample: Path) -> None:
    (sample / "word.py").write_text("WORD = 'second word'\n")
    assert said(sample) == "second word"
    (sample / "word.py").write_text("WORD = 'third  word'\n")
    os.utime(sample / "word.py", (1, 1))  # the same size, another time
    assert said(sample) == "third  word"
    (sample / "word.py").write_text("WORD = 'fourth word'\n")
    os.utime(sample / "word.py", (2**33, 2**33))  # a time of more than 32 bits
    assert said(sample) == "fourth word"
    assert said(sample) == "fourth word"


def test_what_is_not_compiled_is_compiled_and_kept(sample: Path) -> None:
    compiled = next((sample / "__pycache__").glob("word.*"))
    compiled.unlink()
    assert said(sample, PYTHONDONTWRITEBYTECODE="1") == "first"
    assert not compiled.exists()
    assert said(sample) == "first"
    assert compiled.exists()


@pytest.mark.parametrize("damage", [b"", b"\0" * 16, b"not compiled by this Python"])
def test_a_compiled_file_of_another_kind_is_not_believed(sample: Path, damage: bytes) -> None:
    compiled = next((sample / "__pycache__").glob("word.*"))
    compiled.write_bytes(damage)
    assert said(sample) == "first"
    assert compiled.read_bytes() != damage


def test_a_file_that_goes_by_a_hash_is_read_as_its_kind_says(sample: Path) -> None:
    for mode, word in (("checked-hash", "later"), ("unchecked-hash", "first")):
        (sample / "word.py").write_text("WORD = 'first'\n")
        options = [sys.executable, "-m", "compileall", "-q", "-f", "--invalidation-mode", mode, str(sample)]
        subprocess.run(options, check=True, timeout=30)
        (sample / "word.py").write_text("WORD = 'later'\n")
        assert said(sample) == word


def test_a_module_without_source_does_not_exist(sample: Path) -> None:
    (sample / "word.py").unlink()
    assert "No module named 'sample.word'" in run(f"{QUICK}import sample.word", folder=sample.parent, expected=1)
    assert "No module named 'sample.none'" in run(f"{QUICK}import sample.none", folder=sample.parent, expected=1)


def test_a_mistake_in_a_module_is_shown_with_its_line(sample: Path) -> None:
    (sample / "word.py").write_text("WORD = 1\nWORD = 1 / 0\n")
    for _ in range(2):  # not compiled, and compiled
        report = run(f"{QUICK}import sample.word", folder=sample.parent, expected=1)
        assert 'word.py", line 2' in report
        assert "WORD = 1 / 0" in report


def test_a_mistake_in_a_listed_module_is_shown_with_its_line_and_the_module_is_not_kept(sample: Path) -> None:
    (sample / "word.py").write_text("WORD = 1\nWORD = 1 / 0\n")
    listed = "import sample\ntry:\n    sys.meta_path[0].load('word')\nfinally:\n    print('sample.word' in sys.modules)"
    report = run(QUICK + listed, folder=sample.parent, expected=1)
    assert report.startswith("False")
    assert 'word.py", line 2' in report


def test_a_mistake_is_shown_with_its_line_although_the_package_has_moved_since_it_was_compiled(sample: Path) -> None:
    (sample / "word.py").write_text("WORD = 1\nWORD = 1 / 0\n")
    run(f"{QUICK}import sample.word", folder=sample.parent, expected=1)
    moved = sample.parent / "elsewhere" / "sample"
    moved.parent.mkdir()
    sample.rename(moved)  # as `pip install --target` does
    report = run(f"{QUICK}import sample.word", folder=moved.parent, expected=1)
    assert f'{moved}/word.py", line 2' in report
    assert "WORD = 1 / 0" in report


@pytest.mark.parametrize(("word", "variables"), [("-O", {}), ("-OO", {}), ("-B", {"PYTHONPYCACHEPREFIX": "/nowhere"})])
def test_where_compiled_files_have_other_names_or_places_python_finds_them(
    word: str, variables: dict[str, str], tmp_path: Path
) -> None:
    text = "import sys; from lockctl import loading; loading.install(); import lockctl.model; print(sys.meta_path[0])"
    assert "loading.Finder" not in run(text, word, folder=tmp_path, variables=variables)


def test_other_packages_are_left_to_python(sample: Path) -> None:
    text = f"{QUICK}import json, sample, xml.dom; print(json.__spec__, sample.__spec__, xml.dom.__spec__)"
    assert "loading" not in run(text, folder=sample.parent)
