# make demo: install and run the main job        make test: everything that needs no accelerator (minutes)
# make check: the quick part (under a minute)    make bench: measure the figures that the README quotes
# make test-device: what needs a GPU, and a report of that GPU (a quarter of an hour)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := src tests benchmarks docs examples
# Two processes, each with whole files of tests, those with long ones first; `make test WORKERS=8` for more.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Every pip call, also those that pip itself makes for build environments, keeps to the tested versions.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# `make check JUNIT=FILE`, or `make test`, writes how long each test took, for tests/list_slow.py.
REPORT := $(if $(JUNIT),--junitxml=$(JUNIT) -o junit_family=xunit1)

# Tests start hundreds of processes: each would compile the whole package again where Python keeps no bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-device check lint bench docs clean

help:
	@sed -n '1,3s/^# //p' Makefile

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Two stamps: people who only look need no development tools.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing nearpeak and what the demo needs into $(VENV) …"
	@start=$$(date +%s) && $(BIN)/python -m pip install --quiet --editable '.[speed,hf,onnx,web]' \
	  && echo "installed in $$(($$(date +%s) - start)) s"
	@touch $@

$(VENV)/.developed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

lint: $(VENV)/.developed
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(PYTEST) $(SPREAD) -m 'not device and not long' --durations=10 $(REPORT)

check: lint
	$(PYTEST) $(SPREAD) -m 'not device and not slow and not long' $(REPORT) tests/conventions tests/golden tests/unit

# Where nothing can be installed: `make test-device DEVICE_PYTHON=python3`, an interpreter that has what is needed.
SECONDS ?= 820
ifdef DEVICE_PYTHON
test-device:
	PYTHONPATH=src:.$${PYTHONPATH:+:$$PYTHONPATH} $(DEVICE_PYTHON) -m pytest -m device -rs --device-seconds $(SECONDS) tests/device
else
test-device: $(VENV)/.developed
	$(PYTEST) -m device -rs --device-seconds $(SECONDS) tests/device
endif

bench: $(VENV)/.developed
	$(BIN)/python -m benchmarks.run
	$(BIN)/python docs/generate_reference.py --write
	$(BIN)/python -m benchmarks.quote --write

# What is written by a program: reference pages, figures quoted in documents, formatting.
docs: $(VENV)/.developed
	$(BIN)/python docs/generate_reference.py --write
	$(BIN)/python -m benchmarks.quote --write

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
