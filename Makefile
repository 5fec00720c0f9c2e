# make demo | test | test-all | lint | docs | bench | bench-gate | bench-client | bench-spark | fuzz | simulate | model | mutants | torture | soak | pacemaker | fresh
#      docker | venv | build | clean
# make install | uninstall | stage | package | deb     DESTDIR= PREFIX=/usr EXTRAS=client
# The first run sets everything up by itself.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
CORE := $(wildcard $(addprefix qpidd_py/core/*.,pyx pxd h))
INSTALLED := $(VENV)/.stamp-installed
BUILT := $(VENV)/.stamp-built
TESTS_AT_ONCE ?= $(shell echo $$(($$(nproc) + 2)))
FUZZ_SECONDS ?= 60
SEEDS ?= 0:10000
MODE ?=
ONLY ?=
MINUTES ?= 10
BROKERS ?= 3
SEED ?=
FAILOVERS ?= 100
STYLE ?= threaded
DESTDIR ?=
PREFIX ?= /usr
EXTRAS ?= client
# What the installed programs run with; not a person's own Python, which other users cannot read.
INSTALL_PYTHON ?= /usr/bin/python3
INSTALL := DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" PYTHON="$(INSTALL_PYTHON)" EXTRAS="$(EXTRAS)" bash packaging/install.sh
MAKEFLAGS += --no-print-directory

.PHONY: demo test test-all lint unit bench bench-gate bench-client bench-spark fuzz fuzz-guided fuzz-sanitized simulate model mutants torture soak pacemaker fresh docker venv build clean install uninstall stage package deb completion docs man
.DEFAULT_GOAL := test

venv: $(INSTALLED)
build: $(BUILT)

demo: $(BUILT)
	@$(PY) -m demo $(DEMO_OPTIONS)

# The checks of lint run at the same time as the tests and print when these have ended: one core would be idle for a minute.
test: $(BUILT)
	@bash tools/side_by_side.sh "$(MAKE) unit" "nice $(MAKE) lint"

# Each worker, and each of thousands of processes, would compile all modules again.
unit test test-all: export PYTHONDONTWRITEBYTECODE :=

# What `slow` marks is left out.  Much of the rest waits for brokers: two more at a time than there are processors.
unit: $(BUILT)
	@bash tools/need_system_packages.sh $(PYTHON) tests
	@$(PY) -m tests.support.bounds
	@$(PY) -m tests.support.compiled
	$(PY) -m pytest -q -n $(TESTS_AT_ONCE) --dist loadfile -m "not slow" $(PYTEST_OPTIONS)

# Every test, with the long trials.
test-all: export ALL_TESTS := 1
test-all: lint $(BUILT)
	@bash tools/need_system_packages.sh $(PYTHON) tests
	@$(PY) -m pip install --quiet --disable-pip-version-check 'moto[s3]>=5.0' 'flask-cors>=4.0'
	@$(PY) -m tests.support.bounds
	@$(PY) -m tests.support.compiled
	$(PY) -m pytest -q -n $(TESTS_AT_ONCE) --dist loadfile $(PYTEST_OPTIONS)

lint: $(BUILT) docs
	$(VENV)/bin/ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

# The documentation in build/site, for a browser without a network. Strict: a broken link fails (not with --quiet, which
# hides the warnings that are counted).
docs: $(BUILT)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: $(BUILT)
	@$(PY) -m benchmarks $(BENCH_OPTIONS)

# Instructions (or processor time) and allocations of a message in the core, next to those of another commit: by default
# those of the last one that was accepted.  Fails above 2 %.
BASE ?= $(shell cat benchmarks/accepted)
bench-gate: $(BUILT)
	@$(PY) -m benchmarks.gate $(BASE) $(BENCH_OPTIONS)

# client_lib next to bare pika, and what its user sees of a fail-over.
bench-client: $(BUILT)
	@$(PY) -m benchmarks.client $(BENCH_OPTIONS)

# The analysis of incidents over 11 million made-up events whose truth is known, on Spark and on DuckDB.
bench-spark: $(BUILT)
	@$(PY) -m $(if $(FLEET),benchmarks.spark_year --clusters $(FLEET),benchmarks.spark) $(BENCH_OPTIONS)

# Fail-overs under many senders and receivers of client_lib; STYLE is threaded, asyncio, pika or transacted.
soak: $(BUILT)
	@$(PY) -m tests.faults.soak --failovers $(FAILOVERS) --style $(STYLE) $(if $(SEED),--seed $(SEED))

# Schedules of faults and clients against pure code; MODE is quorum, manager, registry or availability, default all.
simulate: $(BUILT)
	@$(PY) -m tests.simulator --seeds $(SEEDS) --mode "$(MODE)" --jobs $$(nproc) --keep-going \
	  $(if $(REPORT),--report "$(REPORT)") $(SIMULATE_OPTIONS)

# Every schedule within bounds of the rules of promotion and confirming (tests/model), one core; MODEL_OPTIONS="--space NAME".
model: $(BUILT)
	@$(PY) -m tests.model $(MODEL_OPTIONS)

# Small mistakes in the code, one at a time, which the tests have to notice; ONLY is ha/promotion/claims.py, ha/promotion/claims.py:grant or core.
mutants: $(BUILT)
	@nice $(PY) -m tests.mutants $(ONLY) --jobs $$(nproc) --json build/mutants/result.json $(MUTANTS_OPTIONS)

# Random faults on real brokers in network namespaces (root); MODE is quorum (default), manager, registry or availability;
# POWER_CUTS=1: with journals, on disks that forget what was not synced.
torture: $(BUILT)
	@$(PY) -m torture --minutes $(MINUTES) --brokers $(BROKERS) $(if $(MODE),--mode $(MODE)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(POWER_CUTS),--power-cuts) $(TORTURE_OPTIONS)

# All of the tests under a real Pacemaker, with those that `make test` leaves out (root).
pacemaker: $(BUILT)
	@bash tools/need_system_packages.sh $(PYTHON) tests
	$(PY) -m pytest -q tests/pacemaker $(PYTEST_OPTIONS)

# The last commit on a new Debian in a chroot: does `make` bring what the tests need?  (root, debootstrap; 20 minutes)
fresh:
	@bash tools/in_a_chroot.sh $(PYTEST_OPTIONS)

# The image, and its test with three containers: wants a Docker engine (DOCKER_HOST), see packaging/docker/README.md.
docker: $(BUILT)
	$(PY) -m pytest -q -rs tests/docker $(PYTEST_OPTIONS)

# The files of the installation are listed in packaging/README.md.
install:
	@$(INSTALL) install

uninstall:
	@$(INSTALL) uninstall

# The installed tree in build/stage, and as a tarball in dist/ that is unpacked at / of machines of the same kind.
stage:
	@DESTDIR="$(CURDIR)/build/stage" PREFIX="$(PREFIX)" PYTHON="$(INSTALL_PYTHON)" EXTRAS="$(EXTRAS)" \
	  bash packaging/install.sh install

package:
	@$(INSTALL) package

# dist/*.deb: broker, agents for Pacemaker, client, reports (dpkg-dev, debhelper).
deb:
	@PYTHON="$(INSTALL_PYTHON)" EXTRAS="$(EXTRAS)" bash packaging/deb.sh

# Shell completion, from the programs' own parsers; a test compares.
completion: $(BUILT)
	$(PY) -m tools.completion packaging/completion

# Manual pages, from the same parsers; a test compares.
man: $(BUILT)
	$(PY) -m tools.docs packaging/man

# Hostile input for every door and file (tests/fuzz), for FUZZ_SECONDS together; FUZZ_OPTIONS="--only management --seed 5".
# Then again for files and frames, guided by coverage, where there is Atheris for this machine.
fuzz: $(BUILT)
	@$(PY) -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_OPTIONS)
	$(if $(FUZZ_OPTIONS),,@$(MAKE) fuzz-guided)

fuzz-guided: $(BUILT)
	@$(PY) -c "import atheris" 2>/dev/null || $(PY) -m pip install --quiet --disable-pip-version-check atheris || true
	@$(PY) -m tests.fuzz.guided --seconds $(FUZZ_SECONDS)

# The core once more with AddressSanitizer and UBSan, next to the ordinary one: garbage from clients, for FUZZ_SECONDS, then
# hostile frames of a replication link.
SANITIZED = cd build/sanitized && LD_PRELOAD="$$(for name in libasan.so libubsan.so libstdc++.so.6; do $${CC:-cc} -print-file-name=$$name; done | tr '\n' ' ')" \
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONMALLOC=malloc PYTHONPATH="$(CURDIR)" "$(CURDIR)/$(PY)"
fuzz-sanitized: $(BUILT)
	@mkdir -p build/sanitized
	@cp -r qpidd_py build/sanitized/ && find build/sanitized -name '*.so' -delete
	QPIDD_SANITIZE=address,undefined $(PY) setup.py -q build_ext --build-temp build/sanitized-temp --build-lib build/sanitized
	$(SANITIZED) -m tests.property.fuzz_feed --seconds $(FUZZ_SECONDS)
	$(SANITIZED) -m tests.property.fuzz_parser --seconds $(FUZZ_SECONDS)
	$(SANITIZED) -m tests.fuzz --only frames --seconds $(FUZZ_SECONDS)

# With editable_mode=compat this folder is on the path; the finder that is installed otherwise takes 20 ms of each start of Python.
$(INSTALLED): setup.cfg pyproject.toml setup.py
	@bash tools/need_system_packages.sh $(PYTHON)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev,docs,client,spark]' --config-settings editable_mode=compat
	@touch $@

# Installing has just built the core, too.
$(BUILT): $(INSTALLED) $(CORE)
	$(if $(filter $(INSTALLED),$?),,$(PY) setup.py -q build_ext --inplace)
	@touch $@

clean:
	rm -rf build dist *.egg-info qpidd_py/core/*.c qpidd_py/core/*.so $(BUILT)
