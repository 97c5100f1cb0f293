"""lockctl.loading: modules come as Python itself would load them, only faster."""

from __future__ import annotations

import compileall
import os
import shutil
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
WORDS = "word inner"  # modules of the sample
BEGIN = """
import sys
from sample import loading
loading.START, loading.GUARD = "", "other"
loading.begin()
"""
LOAD = f"{BEGIN}loading.load({WORDS!r})\nprint(sys.modules['sample.word'].WORD, sys.modules['sample.inner'].WORD)\n"
FACTS = """
import importlib, json, sys
from lockctl import loading
if sys.argv[1] != "usual":
    loading.begin()
facts = {}
names = sys.argv[2:]
loading.load(" ".join(name.removeprefix("lockctl.") for name in names))
for name in names:
    assert sys.argv[1] == "usual" or name in sys.modules, name
    importlib.import_module(name)
for name in names:
    module = sys.modules[name]
    spec = module.__spec__
    facts[name] = [module.__file__, module.__package__, getattr(module, "__path__", None), spec.cached, spec.origin]
    facts[name] += [spec.parent, spec.has_location, spec.submodule_search_locations, type(spec.loader).__name__]
    facts[name] += [sorted(set(vars(module)) - {"__cached__", "annotations"})]  # what `from __future__` leaves behind
if sys.argv[1] == "first":
    loading.keep()
print(json.dumps(facts))
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A package with the loader and some modules, compiled, whose module says ``first``."""
    package = tmp_path / "sample"
    (package / "inner").mkdir(parents=True)
    for name in ("loading.py", "slim.py"):
        shutil.copy(ROOT / name, package)
    for name, text in (
        ("__init__.py", ""),
        ("word.py", '"""A word."""\n\nWORD = "first"\n'),
        ("inner/__init__.py", "WORD = 'inner'\n"),
        ("other.py", ""),
    ):
        (package / name).write_text(text)
    compileall.compile_dir(tmp_path, quiet=2)
    return package


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
    environment.update(PYTHONPATH=str(folder), **variables)
    options = [sys.executable, *words, "-c", text, *arguments]
    done = subprocess.run(options, check=False, env=environment, cwd="/", capture_output=True, text=True, timeout=30)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


def said(sample: Path, *words: str, **variables: str) -> str:
    """What the modules of the sample say when they are loaded as a list; what is missing is written then."""
    return run(LOAD + "loading.keep()\n", *words, folder=sample.parent, variables=variables).strip()


def kept(sample: Path) -> list[Path]:
    """The files of lists."""
    return [*sample.glob("__pycache__/run-*")]


def is_kept(sample: Path) -> bool:
    return any(file.name.startswith("run-inner.") for file in kept(sample))


def test_a_module_of_lockctl_is_the_same_however_it_was_loaded(tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "lockctl")
    names = [
        "lockctl." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted([*ROOT.glob("lease/*.py"), *ROOT.glob("stores/file/*.py")])
    ]
    assert "lockctl.lease" in names
    assert "lockctl.stores.file.address" in names
    names.insert(0, "lockctl.stores")
    usual, *other = (
        run(FACTS, folder=tmp_path, arguments=(how, *names)) for how in ("usual", "first", "from the files", "again")
    )
    assert other == [usual, usual, usual]


def test_the_files_are_written_at_the_end_of_the_first_run_and_used_by_the_next(sample: Path) -> None:
    assert said(sample) == "first inner"
    assert len(kept(sample)) == 2
    shown = "print(repr(sys.modules['sample.word'].__doc__))"
    (sample / "__pycache__" / f"word.{sys.implementation.cache_tag}.pyc").write_bytes(b"")
    assert run(LOAD + shown, folder=sample.parent) == "first inner\nNone\n"
    assert "A word." in run(
        f"import sample.word as word\n{shown}".replace("sys.modules['sample.word']", "word"), folder=sample.parent
    )


def test_a_list_of_modules_that_are_there_loads_nothing(sample: Path) -> None:
    again = f"sys.modules['sample.word'].WORD = 'mine'\nloading.load({WORDS!r})\nprint(sys.modules['sample.word'].WORD)"
    assert run(LOAD + again, folder=sample.parent) == "first inner\nmine\n"


def test_a_changed_source_is_seen(sample: Path) -> None:
    for _ in range(2):  # without the file of the list, and with it
        (sample / "word.py").write_text("WORD = 'first'\n")
        assert said(sample) == "first inner"
        (sample / "word.py").write_text("WORD = 'second word'\n")
        assert said(sample) == "second word inner"
        (sample / "word.py").write_text("WORD = 'third  word'\n")
        os.utime(sample / "word.py", (1, 1))  # the same size, another time
        assert said(sample) == "third  word inner"
        (sample / "word.py").write_text("WORD = 'fourth word'\n")
        os.utime(sample / "word.py", (2**33, 2**33))  # a time of more than 32 bits
        assert said(sample) == "fourth word inner"
        assert said(sample) == "fourth word inner"


def test_a_list_with_other_modules_is_not_taken_from_the_file_of_another(sample: Path) -> None:
    assert said(sample) == "first inner"
    shorter = f"{BEGIN}loading.load('inner')\nprint('sample.word' in sys.modules)\n"
    assert run(shorter, folder=sample.parent) == "False\n"


@pytest.mark.parametrize("damage", [b"", b"\0" * 16, b"not compiled by this Python", "half"])
def test_a_file_of_another_kind_is_not_believed(sample: Path, damage: bytes | str) -> None:
    said(sample)
    compiled = next((sample / "__pycache__").glob("word.*"))
    for file in (compiled, *kept(sample)):
        content = file.read_bytes()
        file.write_bytes(damage if isinstance(damage, bytes) else content[: len(content) // 2])
    assert said(sample) == "first inner"
    assert is_kept(sample)
    compiled.unlink()
    assert said(sample) == "first inner"
    assert not compiled.exists()  # nobody has looked


@pytest.mark.parametrize("module", ["names", "cli/exit_status", "cli/verbs/list", "cli/screen", "cli/run"])
def test_a_compiled_file_that_a_full_disk_has_cut_short_is_removed(tmp_path: Path, module: str) -> None:
    code = tmp_path / "code"
    shutil.copytree(ROOT, code / "lockctl")
    compileall.compile_dir(code / "lockctl", quiet=2)
    path = code / "lockctl" / f"{module}.py"
    compiled = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
    whole = compiled.read_bytes()
    compiled.write_bytes(whole[:1024])
    program = "import sys; from lockctl.__main__ import main; sys.argv[1:] = {!r}; main()"
    place = {"LOCKCTL_BACKEND": f"file://{tmp_path}/locks", "XDG_RUNTIME_DIR": str(tmp_path)}
    job, look = ["run", "-l", "a", "--", "true"], ["list", "--all"]
    hold = ["acquire", "a", "--for", "1s", "--bind-pid", str(os.getpid()), "--handle", str(tmp_path / "handle")]
    assert run(program.format(job), folder=code, variables=place) == ""  # it has what it needs from elsewhere
    verb = hold if module == "cli/run" else look
    said = run(program.format(verb), folder=code, variables=place, expected=70).strip()
    assert said == f"lockctl: '{compiled}' is incomplete, as a full disk leaves it, and was removed: run this again"
    run(program.format(verb), folder=code, variables=place)
    assert len(compiled.read_bytes()) >= len(whole)


@pytest.mark.parametrize("reason", ["a variable", "no permission", "no directory"])
def test_where_nothing_may_be_written_nothing_is(sample: Path, reason: str) -> None:
    variables = {"PYTHONDONTWRITEBYTECODE": "1"} if reason == "a variable" else {}
    cache = sample / "__pycache__"
    if reason == "no permission":
        cache.rename(sample / "kept")
        cache.symlink_to("/proc/self")  # not even for root
    elif reason == "no directory":
        shutil.rmtree(cache)
        cache.write_text("")
    assert said(sample, **variables) == "first inner"
    assert not is_kept(sample)


def test_a_run_ends_as_it_does_for_want_of_memory_to_write_them(sample: Path) -> None:
    without_memory = "def dumps(_): raise MemoryError\nloading.dumps = dumps\n"
    assert run(f"{LOAD}{without_memory}loading.keep()\n", folder=sample.parent) == "first inner\n"
    assert not is_kept(sample)


def test_a_file_that_goes_by_a_hash_is_read_as_its_kind_says(sample: Path) -> None:
    for mode, word in (("checked-hash", "later"), ("unchecked-hash", "first")):
        (sample / "word.py").write_text("WORD = 'first'\n")
        options = [sys.executable, "-m", "compileall", "-q", "-f", "--invalidation-mode", mode, str(sample)]
        subprocess.run(options, check=True, timeout=30)
        (sample / "word.py").write_text("WORD = 'later'\n")
        assert said(sample, PYTHONDONTWRITEBYTECODE="1") == f"{word} inner"


def test_a_module_without_source_does_not_exist(sample: Path) -> None:
    said(sample)
    (sample / "word.py").unlink()
    assert "word" in run(LOAD, folder=sample.parent, expected=1)


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_mistake_is_shown_with_its_line_and_the_module_is_not_kept(sample: Path, runs: int) -> None:
    (sample / "word.py").write_text("WORD = 1\nWORD = 1 / 0\n")
    text = LOAD.replace("loading.load", "try:\n    loading.load", 1).replace(
        "\nprint", "\nfinally:\n    loading.keep()\n    print('sample.word' in sys.modules)\nprint", 1
    )
    for _ in range(runs):
        report = run(text, folder=sample.parent, expected=1)
        assert report.startswith("False")
        assert 'word.py", line 2' in report
        assert "WORD = 1 / 0" in report


def test_a_mistake_is_shown_with_its_line_although_the_package_has_moved_since_it_was_compiled(sample: Path) -> None:
    (sample / "word.py").write_text("WORD = 1\nif len(sys.argv) > 1: WORD = 1 / 0\n".replace("if", "import sys\nif"))
    assert said(sample) == "1 inner"
    moved = sample.parent / "elsewhere" / "sample"
    moved.parent.mkdir()
    sample.rename(moved)  # as `pip install --target` does
    report = run(LOAD, folder=moved.parent, arguments=("x",), expected=1)
    assert f'{moved}/word.py", line 3' in report


@pytest.mark.parametrize(("word", "variables"), [("-O", {}), ("-OO", {}), ("-B", {"PYTHONPYCACHEPREFIX": "/nowhere"})])
def test_where_compiled_files_have_other_names_or_places_python_finds_them(
    sample: Path, word: str, variables: dict[str, str]
) -> None:
    text = f"{BEGIN}loading.load({WORDS!r})\nprint('sample.word' in sys.modules)\nloading.keep()\n"
    assert run(text, word, folder=sample.parent, variables=variables) == "False\n"
    assert not is_kept(sample)


def test_in_an_archive_python_finds_them(sample: Path) -> None:
    archive = shutil.make_archive(str(sample.parent / "archive"), "zip", sample.parent, "sample")
    text = f"{BEGIN}loading.load({WORDS!r})\nprint('sample.word' in sys.modules)\n"
    assert run(text, folder=Path(archive)) == "False\n"


def test_without_sources_python_finds_them(sample: Path) -> None:
    compileall.compile_dir(sample, quiet=2, legacy=True)
    for source in sample.rglob("*.py"):
        source.unlink()
    shutil.rmtree(sample / "__pycache__")
    text = f"{BEGIN}loading.load({WORDS!r})\nprint('sample.word' in sys.modules, loading.__file__)\n"
    assert run(text, folder=sample.parent) == f"False {sample}/loading.pyc\n"


def test_what_is_there_is_not_looked_for_when_the_program_is_gone(sample: Path) -> None:
    gone = f"import shutil; shutil.rmtree({str(sample)!r})\nloading.load({WORDS!r})\nprint('loaded')\n"
    assert run(LOAD + gone, folder=sample.parent) == "first inner\nloaded\n"


def test_a_kept_module_has_what_it_does_and_nothing_that_only_people_and_type_checkers_read(sample: Path) -> None:
    (sample / "word.py").write_text(
        '"""A word."""\nfrom __future__ import annotations\n'
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import nowhere\nelse:\n    WORD = 'else'\n"
        "if not TYPE_CHECKING:\n    WORD += ' not'\n"
        "class Word:\n    field: nowhere.Field\n    def method(self, *rest: x, of: y = 1, **more: z) -> nowhere.Field:\n"
        "        'Said.'\n        def inner(a: b) -> c: return a\n        return inner\n"
    )
    show = (
        "word = sys.modules['sample.word'].Word\n"
        "found = word.method, word().method()\n"
        "print(word.__annotations__, *[each.__annotations__ for each in found], found[0].__kwdefaults__, word.__doc__)\n"
        "loading.keep()\n"
    )
    first, *later = (run(LOAD + show, folder=sample.parent).splitlines() for _ in range(3))
    assert first[0] == "else not inner"
    assert "'rest': 'x'" in first[1]
    assert later == [["else not inner", "{'field': 'nowhere.Field'} {} {} {'of': 1} None"]] * 2


def test_a_module_in_c_is_the_same_however_it_was_loaded(sample: Path) -> None:
    shown = """
import {}
for name in {!r}:
    module = sys.modules[name]
    spec = module.__spec__
    facts = [spec.name, spec.origin, spec.parent, spec.has_location, spec.cached, spec.loader.__class__.__name__]
    print(name, *facts, module.__package__, getattr(module, "__file__", ""), sorted(vars(module)))
"""
    names = ["fcntl", "select", "_socket"]
    usual = run("import sys" + shown.format(", ".join(names), names), folder=sample.parent)
    ours = f"{BEGIN}loading.load_in_c('nowhere {' '.join(names)}')\nassert 'fcntl' in sys.modules"
    assert run(ours + shown.format("sys", names), folder=sample.parent) == usual
