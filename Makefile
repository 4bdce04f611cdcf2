# Slipway. `make help` lists what there is.
PYTHON ?= python3
STACK  ?= local
PYTEST_ARGS ?=
SECONDS ?= 300
HARNESS ?=
TESTS  ?= $(if $(SHARD),$(or $(shard-$(SHARD)),$(error SHARD=$(SHARD) is none of: $(shards))))
WORKERS ?= 4
export STACK

# All tests in parts that take about as long: by folder, as the tests of a folder share what they start and build.
shard-unit := tests/unit tests/programs tests/fuzzing tests/history tests/jobs tests/provider
shard-engine := tests/engine tests/aws tests/attacks
shard-toolchain := tests/toolchain tests/workflows
shard-cluster := tests/cluster
shard-images := tests/images/test_*.py
shard-efa := tests/images/efa
shard-family := tests/images/family tests/images/megatron
shard-universal := tests/images/universal
shards := $(patsubst shard-%,%,$(filter shard-%,$(.VARIABLES)))

toolchain := $(PYTHON) -m toolchain
pytest     = python -m pytest --numprocesses $(WORKERS) --dist loadscope $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.PHONY: help up preview down doctor ready lint test test-unit test-all fuzz bench lock

help: # list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

up: ## set up this machine, build and publish the images of a stack (STACK=local)
	@$(toolchain) up -- "$$STACK"

preview: ## say what `make up` would change, and build nothing
	@$(toolchain) preview -- "$$STACK"

down: ## stop the services that Slipway started
	@$(toolchain) down

doctor: ## show which tools are used, their versions, and why
	@$(toolchain) doctor

ready: ## set up the toolchain and start its services; build nothing
	@$(toolchain) ready

lint: ## check style, types, Dockerfiles, shell scripts and workflows
	@$(toolchain) packages
	@$(toolchain) lint

test: ## lint, then all tests but the slow ones (TESTS=tests/engine: only these)
	@$(if $(TESTS),,$(PYTHON) -m tests.helpers.disk_space)
	@$(toolchain) packages
	@$(MAKE) --no-print-directory --jobs=3 lint programs collect
	@. .slipway/env && exec $(pytest) -m "not slow" $(TESTS)

.PHONY: collect programs
programs: ready # those of Debian that tests run
	@.slipway/venv/bin/python -m tests.helpers.machine_programs

# Of all tests, the making of cases would take twice as long as the imports. Some of Hypothesis's have it read all modules' constants.
collect: # compile the tests once, while `ready` waits for downloads, and not in each worker
	@.slipway/venv/bin/python -m pytest --numprocesses 0 --collect-only --quiet \
	  --override-ini 'python_functions=test_*_of_any_*' --override-ini python_classes= > /dev/null || true

test-unit: WORKERS = $(shell nproc)
test-unit: ## the tests that need Python only, in about 80 seconds on 2 cores
	@$(toolchain) packages
	@.slipway/venv/bin/$(pytest) -m "not slow" $(or $(TESTS),tests/unit)

test-all: ## lint, then all tests (TESTS=tests/engine: only these; SHARD=engine: the tests of nightly's job)
	@$(toolchain) packages
	@$(MAKE) --no-print-directory --jobs=3 lint programs collect
	@. .slipway/env && exec $(pytest) $(TESTS)

fuzz: ## fuzz the parsers of outside input, guided by coverage (HARNESS=elf: only this one; SECONDS=300 for each)
	@$(toolchain) packages
	@.slipway/venv/bin/uv pip install --quiet --python .slipway/venv/bin/python --target .slipway/fuzzing/site \
	  --require-hashes --requirements tests/fuzzing/requirements.txt
	@PYTHONPATH=.slipway/fuzzing/site exec .slipway/venv/bin/python -m tests.fuzzing "$(SECONDS)" $(HARNESS)

bench: ready ## compare with bare Pulumi, docker buildx bake, pip and docker pull
	@. .slipway/env && exec python -m bench

lock: ## resolve requirements.lock anew, the policy pack's requirements, and the hashes of released programs
	@$(toolchain) packages
	@.slipway/venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --upgrade --group run --group dev pyproject.toml --output-file requirements.lock
	@.slipway/venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --constraint requirements.lock --group run pyproject.toml --output-file requirements.run.lock
	@.slipway/venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --upgrade policies/requirements.in --output-file policies/requirements.txt
	@$(toolchain) pin
