# make demo | test | lint | bench | fuzz | simulate | torture | venv | build | clean      The first run sets everything up by itself.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
CORE := $(wildcard $(addprefix qpidd_py/core/*.,pyx pxd pxi h))
INSTALLED := $(VENV)/.stamp-installed
BUILT := $(VENV)/.stamp-built
FUZZ_SECONDS ?= 60
SEEDS ?= 0:10000
MODE ?=
MINUTES ?= 10
BROKERS ?= 3
SEED ?=
MAKEFLAGS += --no-print-directory

.PHONY: demo test lint unit bench fuzz simulate torture venv build clean
.DEFAULT_GOAL := test

venv: $(INSTALLED)
build: $(BUILT)

demo: $(BUILT)
	@$(PY) -m demo $(DEMO_OPTIONS)

test: lint unit

unit: $(BUILT)
	$(PY) -m pytest -q $(PYTEST_OPTIONS)

lint: $(BUILT)
	$(VENV)/bin/ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(BUILT)
	@$(PY) -m benchmarks $(BENCH_OPTIONS)

# Schedules of faults and clients against pure code; MODE is quorum, manager, registry or availability, default all.
simulate: $(BUILT)
	@$(PY) -m tests.simulator --seeds $(SEEDS) --mode "$(MODE)" --jobs $$(nproc) --keep-going $(SIMULATE_OPTIONS)

# Random faults on real brokers in network namespaces (root); MODE is quorum (default), manager, registry or availability.
torture: $(BUILT)
	@$(PY) -m torture --minutes $(MINUTES) --brokers $(BROKERS) $(if $(MODE),--mode $(MODE)) $(if $(SEED),--seed $(SEED)) \
	  $(TORTURE_OPTIONS)

# The core once more with AddressSanitizer, beside the ordinary one, fed with garbage for FUZZ_SECONDS.
fuzz: $(BUILT)
	@mkdir -p build/asan
	@cp -r qpidd_py build/asan/ && find build/asan -name '*.so' -delete
	QPIDD_SANITIZE=address $(PY) setup.py -q build_ext --build-temp build/asan-temp --build-lib build/asan
	cd build/asan && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
	  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONMALLOC=malloc PYTHONPATH="$(CURDIR)" \
	  "$(CURDIR)/$(PY)" -m tests.property.fuzz_feed --seconds $(FUZZ_SECONDS)

$(INSTALLED): setup.cfg pyproject.toml setup.py
	@bash tools/need_system_packages.sh $(PYTHON)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev,client]'
	@touch $@

# Installing has just built the core, too.
$(BUILT): $(INSTALLED) $(CORE)
	$(if $(filter $(INSTALLED),$?),,$(PY) setup.py -q build_ext --inplace)
	@touch $@

clean:
	rm -rf build dist *.egg-info qpidd_py/core/*.c qpidd_py/core/*.so $(BUILT)
