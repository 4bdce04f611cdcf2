# Slipway. `make help` lists what there is.
PYTHON ?= python3
STACK  ?= local
PYTEST_ARGS ?=
TESTS  ?=
WORKERS ?= 4
export STACK

toolchain := $(PYTHON) -m toolchain
pytest     = python -m pytest --numprocesses $(WORKERS) --dist loadscope $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.PHONY: help up preview down doctor ready lint test test-unit test-all bench lock

help: # list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

up: ## ready this machine, build and publish the images of a stack (STACK=local)
	@$(toolchain) up -- "$$STACK"

preview: ## say what `make up` would change, and build nothing
	@$(toolchain) preview -- "$$STACK"

down: ## end the services that Slipway started
	@$(toolchain) down

doctor: ## say which part of the toolchain is used, its version, and why
	@$(toolchain) doctor

ready: ## have the toolchain, and its services running, and nothing built
	@$(toolchain) ready

lint: ## check style, types, Dockerfiles, shell scripts and workflows
	@$(toolchain) packages
	@$(toolchain) lint

test: ## lint, then all tests but the slow ones (TESTS=tests/engine: only these)
	@$(toolchain) packages
	@$(MAKE) --no-print-directory --jobs=2 lint ready
	@. .slipway/env && exec $(pytest) -m "not slow" $(TESTS)

test-unit: WORKERS = auto
test-unit: ## the tests that need nothing but Python, in seconds
	@$(toolchain) packages
	@.slipway/venv/bin/$(pytest) -m "not slow" tests/unit

test-all: ## lint, then all tests (TESTS=tests/engine: only these)
	@$(toolchain) packages
	@$(MAKE) --no-print-directory --jobs=2 lint ready
	@. .slipway/env && exec $(pytest) $(TESTS)

bench: ready ## measure against bare Pulumi, docker buildx bake and plain pip
	@. .slipway/env && exec python -m bench

lock: ## resolve requirements.lock anew from pyproject.toml
	@$(toolchain) packages
	@.slipway/venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --upgrade --group dev pyproject.toml --output-file requirements.lock
