# make run: the whole challenge, from nothing to results/report.html.  make test: what a change can break, each once.
SHELL := /bin/sh
# Modules and shells export these for purposes of their own (CUDA=/usr/local/cuda): only make's command line sets them.
# PYTHON and CXX name programs, so the environment may set them too.
$(foreach name,ARGS CORES CUDA FUZZ_SECONDS MODULE_SECONDS,$(if $(filter environment,$(origin $(name))),$(eval undefine $(name))))
PYTHON ?= python3
CORES ?= $(shell $(PYTHON) -I spdnn/core/resources.py 2>/dev/null || nproc)
FUZZ_SECONDS ?= 600
MODULE_SECONDS ?= $(FUZZ_SECONDS)
VENV := .venv
BIN := $(VENV)/bin
TORCH := .venv-torch
SOURCES := $(wildcard spdnn/kernels/cpu/*) CMakeLists.txt pyproject.toml
# A recipe that names MAKE itself would run under --dry-run.
THIS_MAKE := $(MAKE)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# CMake would take c++ first, which may be another than the g++ that is asked for here.
export CXX

# One sentence for each thing that only the user can mend.
define needed
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "spdnn: Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo missing) (name another: make PYTHON=python3.12)" >&2; exit 1; }
@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null || { echo "spdnn: the headers of $(PYTHON) are needed; Python.h is missing (install python3-dev on Debian and Ubuntu, python3-devel on Fedora)" >&2; exit 1; }
@set -- $${CXX:-g++}; command -v "$$1" >/dev/null || { echo "spdnn: a C++ compiler is needed; $$1 is missing (install g++, or name another GCC: make CXX=g++-12)" >&2; exit 1; }
@others="__clang__ __INTEL_COMPILER __NVCOMPILER"; case "$$(echo __GNUC__ $$others | $${CXX:-g++} -E -P -x c++ - 2>/dev/null)" in 1[1-9]" $$others" | [2-9][0-9]" $$others") ;; *) echo "spdnn: GCC 11 or newer is needed for the kernels; $${CXX:-g++} is $$($${CXX:-g++} --version 2>&1 | head -n 1) (name another: make CXX=g++-12)" >&2; exit 1 ;; esac
endef
# A virtual environment in the folder that is given; one without pip, which a failed set-up leaves, is made anew.
define environment
@$(1)/bin/python -m pip --version >/dev/null 2>&1 || { rm -rf $(1); $(PYTHON) -m venv $(1) >/dev/null; } || { rm -rf $(1); echo "spdnn: $(PYTHON) makes no virtual environment with pip (install python3-venv on Debian and Ubuntu)" >&2; exit 1; }
endef

.PHONY: docs wheel run test test-full test-pythons test-torch faults fuzz gpu-check gpu-records sanitize screenshot setup lint clean help
help:
	@echo "make run     set up, run the twelve networks of the challenge, say where the report is (CORES=$(CORES))"
	@echo "make test    set up, then lint, check the workflow, run the tests: each behaviour once"
	@echo "make test-full   make test, and then the rest: every architecture, engine, number of ranks, Slurm, Python"
	@echo "make test-pythons  the tests of imports, commands, readers and models on every other Python of this machine (3.11 to 3.13)"
	@echo "make test-torch  the tests of spdnn.torch, in $(TORCH), which holds PyTorch (some gigabytes)"
	@echo "make docs    the documentation site in build/site, from docs/; ends red where a link leads nowhere"
	@echo "make wheel   a wheel of this machine's processor and Python in build/wheel, with the tag that auditwheel gives it"
	@echo "make faults  seeded faults of tests/faults/table: each must be found by its test (ARGS='ranks': some of them)"
	@echo "make fuzz    fuzz every reader for FUZZ_SECONDS=$(FUZZ_SECONDS), then compile modules of torch that are drawn for"
	@echo "             MODULE_SECONDS=$(MODULE_SECONDS), in $(TORCH) (ARGS=modules: these alone; ARGS=npz: that reader alone)"
	@echo "make gpu-check   on a machine with an NVIDIA GPU: every kernel verified (tests/gpu/check.py)"
	@echo "make gpu-records   there: every record of it that is missing, verified, and their page (benchmarks/gpu_records.py)"
	@echo "make sanitize    the C++ kernels under sanitizers (memory, undefined behaviour, threads)"
	@echo "make screenshot  take the pictures of results/report.html for the documentation (needs the browser chromium)"
	@echo "make setup   make $(VENV) with spdnn, snakemake and mpiexec; CUDA=auto, 12 or 13: with CuPy for a GPU too"
	@echo "make clean   remove what was set up and built, not results"

run: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --cores $(CORES) $(ARGS)

test: lint
	@PATH="$(CURDIR)/$(BIN):$$PATH" python tests/run.py $(ARGS)

test-full: test
	@PATH="$(CURDIR)/$(BIN):$$PATH" python tests/run.py -m full $(ARGS)
	@MAKE="$(THIS_MAKE)" VENV="$(VENV)" sh tests/pythons.sh all

test-pythons: setup
	@MAKE="$(THIS_MAKE)" VENV="$(VENV)" sh tests/pythons.sh $(ARGS)

# Offline as a folder: build/site/index.html leads to the first page.
docs: $(VENV)/.documenting setup
	@rm -rf build/site
	@PYTHONPATH=$(VENV)/docs $(BIN)/python -m sphinx -b html -c docs -d build/doctrees -j 2 -W --keep-going -q $(ARGS) . build/site
	@cp docs/redirect.html build/site/index.html
	@cp docs/report*.png build/site/docs  # the README's picture is HTML, whose files Sphinx does not copy
	@$(BIN)/python docs/check.py build/site
	@echo "site: $(CURDIR)/build/site/index.html"

wheel: $(VENV)/.wheeling setup
	@rm -rf build/wheel
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel/plain .
	@PATH="$(CURDIR)/$(VENV)/wheel/bin:$$PATH" PYTHONPATH=$(VENV)/wheel $(BIN)/python -m auditwheel repair -w build/wheel build/wheel/plain/*.whl
	@ls build/wheel/*.whl

# PyTorch's wheel takes gigabytes with what it requires: it has a lock, an environment and a suite of its own.
test-torch: $(TORCH)/.built
	@PATH="$(CURDIR)/$(TORCH)/bin:$$PATH" $(TORCH)/bin/python tests/run.py tests/with_torch $(ARGS)

$(TORCH)/.locked: envs/torch.txt
	$(needed)
	@echo "setting up $(TORCH) from envs/torch.txt"
	$(call environment,$(TORCH))
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r envs/torch.txt
	@touch $@

$(TORCH)/.built: $(TORCH)/.locked $(SOURCES)
	@echo "building the kernels for $(TORCH)"
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		-C build-dir=build/torch --editable . || { echo "spdnn: the build failed; the compiler's message is above" >&2; exit 1; }
	@touch $@

# ARGS=--write: with the table of all of them in docs/explanation/trust.md.
faults: $(VENV)/.tested setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" python tests/faults/run.py $(ARGS)

# Every reader of files, records, the configuration and the command line, with inputs that Atheris makes up; then modules
# of torch that seeds draw. ARGS names some of the readers, or the modules.
MODULES := $(if $(ARGS),$(filter modules,$(ARGS)),modules)
READERS := $(if $(ARGS),$(filter-out modules,$(ARGS)),all)
fuzz: $(if $(READERS),$(VENV)/.fuzzing setup) $(if $(MODULES),$(TORCH)/.built)
	@status=0; \
	$(if $(READERS),$(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) $(filter-out modules,$(ARGS)) || status=1;) \
	$(if $(MODULES),$(TORCH)/bin/python tests/with_torch/fuzz_modules.py --seconds $(MODULE_SECONDS) || status=1;) \
	exit $$status

# With VENV= nothing is set up: PYTHON runs it as it is.
gpu-check: PROGRAM := tests/gpu/check.py
gpu-records: PROGRAM := benchmarks/gpu_records.py
gpu-check gpu-records:
	@MAKE="$(THIS_MAKE)" PYTHON="$(PYTHON)" VENV="$(VENV)" sh tests/gpu/run.sh $(PROGRAM) $(ARGS)

# By hand: half an hour on 2 cores. ARGS=memory or ARGS=threads: one of the two.
sanitize: $(VENV)/.tested setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/sanitize/run.sh $(ARGS)

# The pictures in docs/how-to/read-the-report.md, of the page that `make run` wrote.
screenshot: $(VENV)/.tested setup
	@$(BIN)/python tests/report/screenshot.py results/report.html docs/report.png

setup: $(VENV)/.built
	@$(if $(CUDA),sh envs/cuda.sh "$(BIN)" "$(CUDA)")

# A build is repeated only when a lock, the build files or the C++ sources changed.
$(VENV)/.built: $(VENV)/.locked $(SOURCES)
	$(needed)
	@echo "building the kernels"
	@$(INSTALL) --no-deps --no-build-isolation --editable . || { echo "spdnn: the build failed; the compiler's message is above" >&2; exit 1; }
	@touch $@

$(VENV)/.locked: envs/run.txt
	$(needed)
	@echo "setting up $(VENV) from envs/run.txt"
	$(call environment,$(VENV))
	@$(INSTALL) --require-hashes -r envs/run.txt
	@touch $@

# NVRTC 13 has a folder of its own: its cuda-bindings cannot live beside those of 12.9.
$(VENV)/.tested: envs/test.txt envs/nvrtc13.txt $(VENV)/.locked
	@echo "adding the test tools from envs/test.txt and envs/nvrtc13.txt"
	@$(INSTALL) --no-compile --require-hashes -r envs/test.txt
	@rm -rf $(VENV)/nvrtc13
	@$(INSTALL) --no-compile --require-hashes --target $(VENV)/nvrtc13 -r envs/nvrtc13.txt
	@touch $@

$(VENV)/.wheeling: envs/wheel.txt $(VENV)/.locked
	@echo "adding auditwheel from envs/wheel.txt"
	@rm -rf $(VENV)/wheel
	@$(INSTALL) --no-compile --require-hashes --target $(VENV)/wheel -r envs/wheel.txt
	@touch $@

# Sphinx has a folder of its own, so that what it brings is beside nothing that runs.
$(VENV)/.documenting: envs/docs.txt $(VENV)/.locked
	@echo "adding Sphinx from envs/docs.txt"
	@rm -rf $(VENV)/docs
	@$(INSTALL) --no-compile --require-hashes --target $(VENV)/docs -r envs/docs.txt
	@touch $@

$(VENV)/.fuzzing: envs/fuzz.txt $(VENV)/.tested
	@echo "adding Atheris from envs/fuzz.txt"
	@$(INSTALL) --no-deps --require-hashes --only-binary :all: -r envs/fuzz.txt || { echo "spdnn: Atheris has no package for this Python and machine (it has them for CPython 3.11 on x86-64 Linux)" >&2; exit 1; }
	@touch $@

lint: $(VENV)/.tested setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/lint.sh

clean:
	rm -rf $(VENV) $(VENV)-3.* $(TORCH) build .snakemake/metadata .pytest_cache .ruff_cache .hypothesis
