# Every target works alone on a fresh machine with Python 3.11 or later, and repeats without a rebuild.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
# The tests share two workers, a file to a worker; one process reports.
WORKERS ?= 2
# What `make conformance` puts under test.
MANIFEST ?= conformance/gpustack-delivery.toml

.DEFAULT_GOAL := help
.PHONY: help setup demo test check unit emulator spec conformance mutants bench bench-scale soak walk docs stubs lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked dependencies
$(READY): pyproject.toml requirements/dev.lock requirements/bare.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpustack-delivery needs Python 3.11 or later: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bare.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m tests.clients
	@touch $(READY)

demo: $(READY) ## deliver a real model to Pods on the embedded cluster
	$(BIN)/gpustack-delivery demo $(DEMO_ARGS)

test: check unit emulator spec ## everything: check, unit, emulator, spec

check: $(READY) ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(READY) ## white-box tests of the implementation and of the house itself
	$(PYTEST) tests/unit tests/house -n $(WORKERS) --dist loadfile

emulator: $(READY) ## the emulator against recorded exchanges and real clients
	$(PYTEST) tests/emulator -n $(WORKERS) --dist loadfile

spec: $(READY) ## the executable specification against our own package, with its report
	$(PYTEST) spec_tests -n $(WORKERS) --dist loadfile --idle-rights conformance/idle-rights.toml

conformance: $(READY) ## the specification against the programs of a manifest (MANIFEST=, PYTEST_ARGS=); needs root
	$(PYTEST) spec_tests -n $(WORKERS) --dist loadfile --target processes --manifest $(MANIFEST) $(PYTEST_ARGS)

mutants: $(READY) ## prove the specification: each broken version of ours is caught by the rule it breaks
	$(BIN)/python -m tests.mutants

bench: $(READY) ## delivery beside named peers, as ratios
	$(BIN)/python -m tests.performance $(BENCH_ARGS)

bench-scale: $(READY) ## one worker with 5,000 nodes, beside 500
	$(BIN)/python -m tests.performance.scale $(BENCH_ARGS)

soak: $(READY) ## kills, power cuts and races for SOAK_SECONDS (300); needs root
	$(BIN)/python -m tests.soak $(SOAK_ARGS)

walk: $(READY) ## two hours of a cluster's time: conflicting writers, restarts and leader changes; no update lost
	$(BIN)/python -m tests.writers $(WALK_ARGS)

docs: $(READY) ## regenerate the generated pages under docs/
	$(BIN)/python -m spec_tests.report.pages docs

stubs: $(READY) ## regenerate protobuf modules from their .proto files
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --grpc_python_out=. gpustack_delivery/csi_wire/csi.proto gpustack_delivery/csi_wire/pluginregistration.proto
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. emulator/k8s_wire/kubernetes.proto emulator/k8s_wire/workloads.proto

lock: ## resolve the dependency locks again (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev --custom-compile-command "make lock" -o requirements/dev.lock pyproject.toml
	uv pip compile -q --universal --python-version 3.11 --no-deps --generate-hashes --no-emit-index-url --custom-compile-command "make lock" -o requirements/bare.lock requirements/bare.in
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements/dev.lock --custom-compile-command "make lock" -o requirements/run.lock pyproject.toml

clean: ## remove everything the targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
