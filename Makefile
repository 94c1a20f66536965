# Two commands are enough: `make demo` and `make test`. Both create the .venv they need; nothing is installed outside it,
# except the ns-3 driver, which is built once into the user's cache.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
ARGS ?=
# A module's tests stay together, because they share what is expensive to set up; -n 0 in ARGS runs all in one process.
XDIST := -n auto --dist loadscope
# A part of `make nightly`; all of them without it.
PART ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517

# Every pip below, the isolated builds of dependencies included, takes its versions from here.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

BUFFER := $(wildcard sim_bridge/buffer/*.*pp sim_bridge/buffer/*/*.*)
PACKETS := $(wildcard sim_bridge/packets/*.h sim_bridge/packets/*.cc sim_bridge/packets/*/*.*)
NETWORK := $(PACKETS) $(wildcard sim_bridge/native/*.h sim_bridge/native/*.c* sim_bridge/native/*/*.*)
EXTENSION := CMakeLists.txt $(wildcard sim_bridge/bindings/*.*) $(BUFFER) $(NETWORK) $(wildcard sim_bridge/circuits/*.hpp)
DRIVER := $(BUFFER) $(PACKETS) $(wildcard sim_bridge/ns3/*.*)
CPP := $(shell git ls-files "sim_bridge/*.cpp" "sim_bridge/*.hpp" "sim_bridge/*.h" "sim_bridge/*.cc")

.PHONY: help setup demo test quick nightly $(addprefix nightly-,1 2 3 4 5 6 7 8 9 10) lint format fingerprints ui docs wheel conformance sanitize fuzz torture \
	bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "  Options: PYTHON=python3.12 chooses the interpreter; ARGS='...' goes to the command, as in make demo ARGS='--help'."

setup: .venv/.dev .venv/.driver ## create .venv with everything that demo and test need

demo: .venv/.package $(if $(findstring ns3,$(ARGS)),.venv/.driver) ## train, prove and judge predictors; page in outputs/demo
	@$(BIN)/foretail demo $(ARGS)

test: .venv/.dev .venv/.driver ## the tests that every change runs, and lint beside them: ten minutes on two cores (ARGS goes to pytest)
	@mkdir -p build; $(MAKE) --no-print-directory lint > build/lint.log 2>&1 & lint=$$!; tests=0; \
		$(BIN)/python -m pytest $(XDIST) -m 'not nightly' --changed-studies $(ARGS) || tests=$$?; \
		wait $$lint || { cat build/lint.log; exit 1; }; exit $$tests

quick: .venv/.dev ## the short tests of the product, without ns-3: a minute and a half (ARGS goes to pytest)
	@$(BIN)/python -m pytest $(XDIST) -o testpaths=tests -m 'not ns3 and not slow and not nightly' \
		--hypothesis-profile=quick $(ARGS)

nightly: .venv/.dev .venv/.driver ## the long tests and tools, in ten parts of some ten minutes (PART=3 runs one of them)
	@for part in $(or $(PART),1 2 3 4 5 6 7 8 9 10); do echo "nightly, part $$part of 10"; \
		$(MAKE) --no-print-directory nightly-$$part || exit 1; done

nightly-1:
	@$(MAKE) --no-print-directory sanitize
nightly-2:
	@$(MAKE) --no-print-directory torture ARGS='--minutes 8 --seed 1'
nightly-3:
	@$(MAKE) --no-print-directory fuzz ARGS='--seconds 25'
nightly-4:
	@$(MAKE) --no-print-directory conformance ARGS='--ensembles 30'
# The tests marked nightly and every property with many examples, in six shares.
nightly-5 nightly-6 nightly-7 nightly-8 nightly-9 nightly-10: nightly-%:
	@$(BIN)/python -m pytest -n auto --dist worksteal -m 'nightly or hypothesis' --hypothesis-profile=nightly \
		--share=$$(($* - 4))/6 $(ARGS)

lint: .venv/.dev ## check style, types, words and the layers between the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(CPP)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tests.words
	@$(BIN)/python -m tests.lines

format: .venv/.dev ## rewrite the sources in the house style
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

fingerprints: .venv/.dev .venv/.driver ## accept that results changed: REASON='why', ARGS=configs for one file only
	@$(BIN)/python -m tests.fingerprints accept --reason "$${REASON-}" $(ARGS)

ui: .venv/.package ## show the tracked runs: MLflow on 127.0.0.1 port 5000 (ARGS='--port 5055' for another)
	@$(BIN)/foretail ui $(ARGS)

docs: .venv/.dev .venv/.driver ## build the documentation site into build/docs, warnings as errors; needs no network
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees -c docs . build/docs $(ARGS)
	@echo "build/docs/index.html"

wheel: .venv/.tools ## build a wheel into dist, for machines without a compiler: two minutes
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/foretail-*.whl

conformance: .venv/.dev .venv/.driver ## random ensembles of every framework through every target: an hour (ARGS='--ensembles 20')
	@$(BIN)/python -m tests.export.conformance $(ARGS)

sanitize: .venv/.dev .venv/.ns3 ## the C++ parts under AddressSanitizer and UBSan, in build/sanitize: four minutes, needs g++
	@$(BIN)/python -m tests.sanitize

fuzz: .venv/.dev ## every reader of files under a fuzzer, some seconds each, findings in build/fuzz (ARGS='--seconds 3600 --only P4')
	@$(PIP) atheris
	@$(BIN)/python -m tests.fuzz $(ARGS)

torture: .venv/.dev .venv/.driver ## kill, starve and damage every command, and run it again (ARGS='--minutes 30 --seed 2')
	@$(BIN)/python -m tests.torture $(ARGS)

bench: .venv/.dev .venv/.driver ## measure speed; ratios within one run
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## remove build products and caches; .venv and outputs stay
	@rm -rf build dist docs/tutorial docs/gallery docs/reference/generated .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

# --- the environment: one stamp per step, so that a second call does nothing ---

.venv/.created:
	@command -v "$(PYTHON)" >/dev/null || { echo "Foretail needs Python 3.11, 3.12 or 3.13, but there is no '$(PYTHON)': install one or name it, as in 'make setup PYTHON=python3.12'." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "Foretail needs Python 3.11, 3.12 or 3.13, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1): name another, as in 'make setup PYTHON=python3.12'." >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "'$(PYTHON)' cannot create virtual environments: install its venv package (python3-venv on Debian)." >&2; exit 2; }
	@"$(PYTHON)" -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' \
		|| { echo "'$(PYTHON)' has no C headers (Python.h), which the native extension needs: install its development package (python3-dev on Debian)." >&2; exit 2; }
	@for compiler in $${CXX:-c++ g++ clang++}; do \
		printf '#include <bit>\n#include <span>\nint main() { return !std::has_single_bit(2u); }\n' \
			| $$compiler -std=c++20 -fsyntax-only -x c++ - 2>/dev/null && exit 0; \
	done; echo "Foretail needs a C++20 compiler and found none: install g++ 10 or clang 12 or newer, or name one in CXX." >&2; exit 2
	@echo "creating .venv with $$("$(PYTHON)" -V)"
	@"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.tools: .venv/.created constraints.txt
	@# A Python of a distribution brings a pip whose resolver tries for minutes.
	@$(PIP) --upgrade pip
	@# setuptools and wheel: omegaconf's antlr4 runtime comes as source only
	@$(PIP) scikit-build-core nanobind nlohmann-json cmake ninja setuptools wheel
	@touch $@

.venv/.package: .venv/.tools pyproject.toml $(EXTENSION)
	@echo "installing foretail and building its native core (the first time takes a few minutes)"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

.venv/.dev: pyproject.toml studies/pyproject.toml constraints.txt | .venv/.package
	@echo "installing what the checks and tests need; PyTorch alone is 3 GB where pip finds no build for CPUs"
	@$(PIP) --no-build-isolation --editable '.[dev]' --editable ./studies
	@# axe-core, for the test of a report's page; the Playwright that it names would bring browsers.
	@$(PIP) --no-deps axe-playwright-python
	@# A guest of examples/; the packages that it names besides draw figures.
	@$(PIP) --no-deps catboost
	@touch $@

# Without its dependencies: cppyy, for ns-3's own Python bindings, takes minutes to build and is not used here.
.venv/.ns3: .venv/.tools
	@$(PIP) --no-deps ns3
	@touch $@

.venv/.driver: .venv/.package .venv/.ns3 $(DRIVER)
	@$(BIN)/python -m foretail.sim_bridge.ns3.driver build
	@touch $@
