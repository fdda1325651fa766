# make run: the default workflow, from nothing to results/report.html.  make test: everything that is checked.
SHELL := /bin/sh
PYTHON ?= python3
CORES ?= $(shell nproc)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard spdnn/kernels/cpu/*) CMakeLists.txt pyproject.toml
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test setup lint clean help
help:
	@echo "make run     set up, run the default workflow, say where the report is (CORES=$(CORES))"
	@echo "make test    set up, then lint, check the workflow, run the tests"
	@echo "make setup   make $(VENV) with spdnn, snakemake and mpiexec"
	@echo "make clean   remove what was set up and built, not results"

run: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --cores $(CORES) $(ARGS)
	@echo "report: $(CURDIR)/results/report.html"

test: $(VENV)/.tested setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/run.sh $(ARGS)

setup: $(VENV)/.built

# A build is repeated only when a lock, the build files or the C++ sources changed.
$(VENV)/.built: $(VENV)/.locked $(SOURCES)
	@command -v $${CXX:-g++} >/dev/null || { echo "spdnn: no C++ compiler ($${CXX:-g++}); install g++ 10 or newer, or name one in CXX" >&2; exit 1; }
	@echo "building the kernels"
	@$(INSTALL) --no-deps --no-build-isolation --editable . || { echo "spdnn: the build failed; the compiler's message is above" >&2; exit 1; }
	@touch $@

$(VENV)/.locked: envs/run.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "spdnn: $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing); Python 3.11 or newer is needed (make PYTHON=python3.12 ...)" >&2; exit 1; }
	@echo "setting up $(VENV) from envs/run.txt"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes -r envs/run.txt
	@touch $@

$(VENV)/.tested: envs/test.txt $(VENV)/.locked
	@echo "adding the test tools from envs/test.txt"
	@$(INSTALL) --require-hashes -r envs/test.txt
	@touch $@

lint: $(VENV)/.tested setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/lint.sh

clean:
	rm -rf $(VENV) build .snakemake/metadata .pytest_cache .ruff_cache .hypothesis
