# Two commands for a fresh machine: `make demo` and `make test`. Everything is made below .venv and
# .servers, except Debian packages of tools that tests need: as root they are installed, else named.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find lockctl -name '*.py') pyproject.toml

.PHONY: demo test lint format docs bench lostupdate coverage matrix lowest tools clean

demo: $(VENV)/installed
	sh tests/demo.sh $(BIN)/lockctl

# most tests wait for leases to end: several beside each other, except those that measure or fork without a pause
ALONE := tests/bench tests/faults/test_overlap.py tests/faults/test_contention.py tests/faults/test_signal_storm.py \
	tests/fleet/test_no_slot_idle.py
test: lint tools
	$(BIN)/python -m pytest -n 4 --dist loadgroup $(ALONE:%=--ignore %)
	$(BIN)/python -m pytest $(ALONE)

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/dev
	$(BIN)/python man/generate.py

bench: $(VENV)/dev tools
	$(BIN)/python -m tests.bench.bench

# how many acknowledged updates a paused holder destroys, with and without a fence: six minutes
lostupdate: $(VENV)/dev tools
	$(BIN)/python -m tests.lostupdate

coverage: $(VENV)/dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests/unit tests/contract tests/surface tests/run
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

# the fast part of the tests on every Python that this machine has
matrix: lowest
	sh tests/matrix.sh

# the tests that use our dependencies, with the lowest versions that are allowed
lowest:
	sh tests/lowest.sh

tools:
	sh tests/tools.sh
	sh tests/servers.sh

$(VENV)/bin/pip:
	sh tests/venv.sh $(PYTHON) $(VENV)

# what a user gets: the package itself, with compiled bytecode
$(VENV)/installed: $(VENV)/bin/pip $(SOURCES)
	test -e $(VENV)/dev || $(BIN)/python -m pip install -q --compile --force-reinstall .
	$(BIN)/python -m compileall -q lockctl
	touch $@

# what a developer gets: the tree itself, and the tools that check it
$(VENV)/dev: $(VENV)/bin/pip $(SOURCES)
	$(BIN)/python -m pip install -q --compile -e . --group dev
	$(BIN)/python -m compileall -q lockctl
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .servers .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* dist
