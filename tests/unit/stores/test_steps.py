"""Each store has taken the steps of "A store in ten steps" of CONTRIBUTING.md: whoever forgets one is told which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockctl import registry, toml
from lockctl.locks.cell import CellBackend
from tests.bench.scale import model
from tests.contract import cell_stores
from tests.distribution import SERVED as KEPT_TOGETHER
from tests.faults.backends import HTTP, PLACES, SERVED, TWINS
from tests.promises.harms import HARMS
from tests.servers.fixtures import MAKERS
from tests.stores.test_refusals import FORMS
from tests.unit.stores.test_urls import REFUSED

ROOT = Path(__file__).resolve().parents[3]
STORES = sorted({registry.load(scheme).capabilities.scheme for scheme in registry.SCHEMES})
EXTRAS = {"azblob": "azure"}  # where the extra has another name than the scheme
OWN_REFUSALS = {"consul", "etcd"}  # tested in the folders of these stores
EACH_TESTED = {"nats", "sqlite"}  # of those over cells: what is done with locks is tested on these
PROGRAMS = ("tests/servers.sh", "tests/npm.sh")


def package(store: str) -> Path:
    """The directory of a store."""
    return ROOT / registry.SCHEMES[store].partition(":")[0].rpartition(".")[0].replace(".", "/")


def page(name: str) -> str:
    """The text of a page of the manual."""
    return (ROOT / "man/text" / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("store", STORES)
def test_a_store_has_an_extra(store: str) -> None:
    file = ROOT / "pyproject.toml"
    extras = toml.parse(str(file), file.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    extra = EXTRAS.get(store, store)
    assert extra in extras, "step 8: an extra in pyproject.toml"
    assert re.search(rf"[\[,]{extra}[,\]]", extras["all"][0]), "step 8: the extra `all` has those of all stores"


@pytest.mark.parametrize("store", STORES)
def test_a_store_has_its_tests(store: str) -> None:
    assert store in PLACES, "step 9: an entry in PLACES, tests/faults/backends.py"
    assert (ROOT / f"tests/contract/test_{store}.py").exists(), "step 9: a harness in tests/contract"
    if (package(store) / "cell.py").exists():
        assert store in cell_stores.STORES, "step 9: a line in tests/contract/cell_stores.py"
    if any("lockctl.wire.http" in file.read_text(encoding="utf-8") for file in package(store).glob("*.py")):
        assert store in HTTP, "step 9: its scheme in HTTP, tests/faults/backends.py"
        assert store in FORMS or store in OWN_REFUSALS, "step 9: its refusals, tests/stores/test_refusals.py"
    if store != "file":  # whose URLs and marks have tests of their own
        assert any(url.startswith(f"{store}:") for url, _ in REFUSED), "step 9: tests/unit/stores/test_urls.py"
        harness = ROOT / f"tests/fence/test_{store}.py"
        assert store not in registry.MARKS or harness.exists(), "step 9: a FenceHarness in tests/fence"
    if issubclass(registry.load(store), CellBackend):
        assert store in TWINS or store in EACH_TESTED, "step 9: its scheme in TWINS, tests/faults/backends.py"
    if store in SERVED:
        assert store in HARMS, "step 9: an entry in HARMS, tests/promises/harms.py"
        assert store in KEPT_TOGETHER, "step 9: its scheme in SERVED, tests/distribution.py"


@pytest.mark.parametrize("store", SERVED)
def test_the_server_of_a_store_is_started_for_tests_and_its_programs_can_be_had(store: str) -> None:
    server = PLACES[store].servers
    assert server in MAKERS, "step 9: a line in MAKERS, tests/servers/fixtures.py"
    scripts = "".join((ROOT / name).read_text(encoding="utf-8") for name in PROGRAMS)
    for program in getattr(MAKERS[server], "programs", ())[:1]:  # the others come with it
        has = program == "node" or re.search(rf"\b{re.escape(program)}\b", scripts)  # that is there with npm
        assert has, f"step 9: {program} in tests/servers.sh"


@pytest.mark.parametrize("store", STORES)
def test_a_store_has_a_doctor_whose_findings_are_tested(store: str) -> None:
    assert getattr(registry.load_doctor(store), "CHECKS", ()), "step 10: a doctor.py with CHECKS and examine"
    tests = [file.read_text(encoding="utf-8") for file in (ROOT / "tests/doctor").glob("test_*.py")]
    assert any(f'"{store}.' in text for text in tests), "step 10: its findings, tests/doctor"


@pytest.mark.parametrize("store", STORES)
def test_a_store_is_in_the_manual(store: str) -> None:
    assert f"\n@promises {store}\n" in page("lockctl-backends.7"), "step 10: a section in lockctl-backends(7)"
    assert re.search(rf"^- .*`{store}`.*: ", page("lockctl-fencing.7"), re.MULTILINE), "step 10: its tokens"
    if store in registry.MARKS and store != "file":  # whose marks have a paragraph of their own
        assert f"`{store}:" in page("lockctl-fence.1"), "step 10: its marks in lockctl-fence(1)"


@pytest.mark.parametrize("store", STORES)
def test_a_store_has_its_scale(store: str) -> None:
    assert store in model.STORES, "step 10: STORES, tests/bench/scale/model.py"
    assert store in model.LIMITS, "step 10: LIMITS, tests/bench/scale/model.py"
    assert store in model.measured()["stores"], f"step 10: make constants STORES={store}"
