# `make run` shows the console at work; `make test` proves it. Each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# every command of the console is a process: compiling it anew each time doubles what it takes
unexport PYTHONDONTWRITEBYTECODE

# four workers more than processors: one holds the terminals and one the engines, and all wait a lot
WORKERS ?= $(shell expr $$(nproc) + 4)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# an older pip makes a command that loads `re`, which takes as long as printing help does
NEW_PIP := $(INSTALL) 'pip>=25.2'
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.PHONY: run test test-all check golden coverage bench mutants chaos yard \
  lines rehearsals lock clean

run: $(VENV)/.run
	@$(BIN)/omni-console demo

# linters, types, every unit and in-process test, and one real run of each kind
test: $(VENV)/.dev check
	$(PYTEST) -m "not full"

# what takes minutes: real kills at every fault point, soaks, rehearsals, pressure, monkeys
test-all: test
	$(PYTEST) -m full

# writes anew the words and pictures that tests compare with: read the difference before you commit it
golden: $(VENV)/.dev
	$(BIN)/python -m pytest --snapshot-update $$(find tests -name test_words.py) \
	  tests/ui/test_snapshots.py
	$(BIN)/python -m tests.ui.pictures
	$(BIN)/python -m tests.preflight.compiled

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# apart from `test`: measuring every process that a test starts costs an eighth of the time
coverage: $(VENV)/.dev
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

bench: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks

# changes the program in 200 places, one at a time: which changes does no test notice? MINUTES bounds
# it, and a later call goes on where it ended; TIER=all tries the tests of test-all too, ENGINE=1
# those that need Docker
MINUTES ?= 60
TIER ?= test
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants --minutes $(MINUTES) --tier $(TIER) $(if $(ENGINE),--engine)

# random kills of everything that a run consists of, then a rollback or a resume, checked from outside.
# SEED repeats a series; WORLD: plain, full-disk, read-only, few-files, clock, stop, shm (needs root)
TRIALS ?= 1000
JOBS ?= 2
WORLD ?= plain
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos --trials $(TRIALS) --minutes $(MINUTES) --jobs $(JOBS) \
	  --world $(WORLD) $(if $(SEED),--seed $(SEED))

# real memory pressure, minutes of it: engines stopped, cores burning, swap on; needs root
yard: $(VENV)/.dev
	$(BIN)/python -m pytest tests/guard/real/heavy.py tests/guard/real/member.py

# the fleet's ssh lines, cut at random bytes while runs start, verbs are given and a host is rolled back
lines: $(VENV)/.dev
	$(BIN)/python -m pytest tests/fleet/lines.py

# the shipped playbooks with every fault, two to six minutes each, in the testbed's engine. ONLY:
# words that choose, like ONLY="operation-lazarus" or ONLY="slow grey", or both; "decisions" are those
# that lead each trial to GO, to HOLD and to NO-GO
rehearsals: $(VENV)/.dev
	$(BIN)/python -m tests.rehearsal $(ONLY)

clean:
	rm -rf $(VENV) build dist *.egg-info bench-results

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "omni-console needs Python 3.11 or newer: make PYTHON=python3.12 run"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "python venv is missing: apt-get install python3-venv"; rm -rf $(VENV); exit 2; }
	@touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing omni-console and its demo engine …"
	@$(NEW_PIP)
	@$(INSTALL) -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@$(NEW_PIP)
	@$(INSTALL) -c constraints.txt -e '.[demo,dev]'
	@touch $(VENV)/.run $@

# takes the newest releases that pyproject.toml allows, and writes down which they are: run `make
# test` before you commit the difference
lock: $(VENV)/.python
	$(INSTALL) --upgrade --upgrade-strategy eager -e '.[demo,dev]'
	$(BIN)/python -m pip freeze --exclude-editable >constraints.txt
