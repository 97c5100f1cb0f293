# Two commands for a fresh machine: `make demo` and `make test`. Everything is made in this directory, except Debian
# packages of tools that tests need: as root they are installed, else named. CONTRIBUTING.md says where.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find lockctl -name '*.py') pyproject.toml

.PHONY: demo test compiled archive quick soak-tests lint format docs picture screens bench soak lostupdate simulate simulate-teeth faults scale constants coverage matrix lowest cloud-tests tools packages servers models clean

demo: $(VENV)/installed
	sh tests/demo.sh $(BIN)/lockctl

# all parts of the suite, the failed tests once more, and at the end what was slow and what was unstable; servers are
# downloaded beside the checks of the sources
test: $(VENV)/bin/pip
	$(MAKE) -j4 --no-print-directory lint compiled tools archive
	$(BIN)/python -m tests.suite

# what pytest makes of the tests, and Hypothesis of all characters, which each worker would make for itself otherwise
compiled: $(VENV)/dev
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	$(BIN)/python -c 'from hypothesis import given, strategies as st; given(st.text())(lambda text: None)()' || true

# what ZooKeeper loads at each of its many starts
archive: $(VENV)/dev servers
	$(BIN)/python -m tests.servers.zookeeper

# the units, and the contract of a backend in memory: no server, no long wait, under 20 seconds
quick: $(VENV)/dev
	$(BIN)/python -m tests.suite quick

# the whole suite that often, beside a program that takes a core: what is ever unstable
TIMES := 5
soak-tests: $(VENV)/dev tools
	$(BIN)/python -m tests.suite soak $(TIMES)

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/dev
	$(BIN)/python man/generate.py

# the terminal session of README.md, played anew: as root, for the names of two hosts
picture: $(VENV)/dev tools
	$(BIN)/python -m tests.session

# what `list`, `watch`, `inspect` and `history` draw on terminals of 60 to 200 columns, with 200 locks
screens: $(VENV)/dev
	$(BIN)/python -m tests.screens

# what a lock costs, beside other tools on the same servers; such as BENCH='--rounds 5 --only etcd --only start'
BENCH :=
bench: $(VENV)/dev tools
	$(BIN)/python -m tests.bench.bench --json dist/bench/bench.json --svg dist/bench/bench.svg $(BENCH)

# lists of 10,000 locks, queues of 1,000 waiters, 2,000 runs on one host; such as BENCH='--only etcd --only hand-off'
scale: $(VENV)/dev tools
	$(BIN)/python -m tests.bench.scale --json dist/bench/scale.json $(BENCH)

# what runs, renewals and waiters cost each server, and the tables of lockctl-scale(7); such as STORES='etcd nats'
STORES :=
constants: $(VENV)/dev tools
	$(BIN)/python -m tests.bench.scale.costs $(STORES)
	$(BIN)/python -m tests.bench.scale.model
	$(BIN)/python man/generate.py

# 200 contenders on each backend in turn, some of which are killed: ten minutes; such as SOAK='--only etcd --seconds 60'
SOAK :=
soak: $(VENV)/dev tools
	$(BIN)/python -m tests.soak $(SOAK)

# histories of whole runs under virtual time, with faults of network, clocks and processes, from a new seed on
SECONDS := 180
SEED :=
simulate: $(VENV)/dev
	$(BIN)/python -m tests.simulation --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# whether the simulator finds the faults of tests/simulation/faults, each in a copy of lockctl
simulate-teeth: $(VENV)/dev
	SECONDS=$(SECONDS) $(BIN)/python -m tests.simulation.teeth

# what becomes of a job and of the next one when something goes wrong, on every store: half an hour on two cores; such as
# FAULTS='--only etcd'
FAULTS := --repetitions 20 --keep --jobs 10
faults: $(VENV)/dev tools
	$(BIN)/python -m tests.faults.matrix $(FAULTS)

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

# what the driver of cells promises, in a store of yours: it makes and removes a few hundred small objects
CLOUDS = S3=s3://BUCKET/PREFIX GCS=gcs://BUCKET/PREFIX AZBLOB=azblob://CONTAINER/PREFIX DYNAMODB=dynamodb://TABLE/PREFIX \
	KUBERNETES=kubernetes://NAMESPACE/PREFIX
cloud-tests: $(VENV)/dev
	@for each in $(CLOUDS); do \
	    printenv "LOCKCTL_CLOUD_$${each%%=*}" >/dev/null \
	        || echo "skipped: LOCKCTL_CLOUD_$${each%%=*} is no URL of a place for tests: $${each#*=}"; \
	done
	@! printenv | grep -q '^LOCKCTL_CLOUD_' || $(BIN)/python -m pytest tests/contract/test_cells.py -k cloud

tools: servers models

packages:
	sh tests/tools.sh

servers: packages
	sh tests/servers.sh

models: $(if $(shell command -v npm),,packages)
	sh tests/npm.sh

$(VENV)/bin/pip:
	sh tests/venv.sh $(PYTHON) $(VENV)

# what a user gets: the package itself, with compiled bytecode
$(VENV)/installed: $(VENV)/bin/pip $(SOURCES)
	test -e $(VENV)/dev || $(BIN)/python -m pip install -q --compile --force-reinstall .
	$(BIN)/python -m compileall -q lockctl
	touch $@

# what a developer gets: the tree itself, and the tools that check it; pip would compile on one processor, and all of what
# tests use little of
$(VENV)/dev: $(VENV)/bin/pip $(SOURCES)
	$(BIN)/python -m pip install -q --no-compile -e . --group dev
	$(BIN)/python -m compileall -qq -j0 $(VENV)/lib -x '/(moto|pip|mypy)/' || true
	$(BIN)/python -m compileall -q lockctl
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .servers .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* dist
