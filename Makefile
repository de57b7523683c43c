.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More than there are cores in a small machine: many of them wait for Snakemake.
# The product grows only on purpose.
MOST_LINES := 45919
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist worksteal
export PYTHONDONTWRITEBYTECODE :=

# Snakemake keeps a cache in the home folder, which a user of a container may not have.
ifneq ($(shell test -w "$(HOME)" || echo no),)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
endif

# PyTorch: the pinned build; `existing`, that of PYTHON; or `cpu`, from a package index at TORCH_INDEX.
TORCH ?= pinned
TORCH_INDEX ?=
ifeq ($(filter $(TORCH),pinned existing cpu),)
$(error TORCH is "$(TORCH)"; allowed: pinned, existing, cpu)
endif
ifeq ($(TORCH)$(TORCH_INDEX),cpu)
$(error TORCH=cpu needs TORCH_INDEX=URL, an index of builds of PyTorch for processors)
endif

USER_ID ?= 1000

# What `make run` and `make plan` take instead of config/config.yaml: arguments of opcost run.
MODELS ?=
FLAG ?=
ifeq ($(origin models),command line)
$(error models is no setting of this Makefile. Write: make run MODELS="$(models)")
endif

.PHONY: help run plan retry lint test test-package test-gpu test-campaign test-slurm test-browser check validate wheel image format docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/run ## Set up .venv if needed, and run the study in config/config.yaml, or MODELS="resnet18 vit_b_16"
	@$(BIN)/opcost run $(MODELS)

plan: $(VENV)/run ## Say what a run would measure, in how much time and memory
	@$(BIN)/opcost plan $(MODELS)

retry: $(VENV)/run ## Forget the measurements that failed, or have a FLAG (FLAG=disturbed), and measure them again
	@$(BIN)/opcost retry $(addprefix --flag ,$(FLAG))

test: $(VENV)/dev ## Set up .venv if needed, and run the tests
	@$(PYTEST)

test-package: $(VENV)/dev ## The tests that start no workflow, which take a minute: for another Python
	@$(PYTEST) -m 'not (workflow or gpu or slow or slurm or browser)'

test-gpu: $(VENV)/dev ## Minutes, on a quiet machine: tests of a GPU, studies with energy, a wattmeter, all simulated
	@$(BIN)/python -m pytest -m slow tests/test_simulated_cuda.py tests/test_function_timing.py tests/test_wattmeter.py

test-campaign: $(VENV)/dev ## Minutes, mostly waiting: campaigns and other tools' examples on a simulated GPU; a compiled model
	@$(BIN)/python -m pytest -m slow tests/test_campaign.py tests/test_from_other_tools.py tests/test_launches.py

test-slurm: $(VENV)/dev ## Minutes: the workflow on a Slurm cluster on this machine; installs Slurm if it may
	@$(BIN)/python -m pytest -m slurm

test-browser: $(VENV)/dev ## The report in Chromium; installs it if it may
	@$(BIN)/python -m pytest -m browser

lint: $(VENV)/dev ## Linters, formatters, types, direction of imports, lines of the product
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/mypy
	$(BIN)/lint-imports
	@lines=$$(git ls-files -z '*.py' '*.smk' '*Snakefile' ':!tests' ':!docs' | xargs -0 cat | wc -l); \
	echo "$$lines lines of Python and Snakemake, of at most $(MOST_LINES)"; test $$lines -le $(MOST_LINES)

check: lint test ## Linters and tests: what to run before a change is proposed

validate: $(VENV)/dev ## Minutes: published FLOPs of every model, replay of whole models
	@$(BIN)/python -m pytest -m slow tests/validation

wheel: $(VENV)/dev ## Build a wheel of the last commit in dist, and test it installed without the repository
	@rm -rf dist && mkdir dist
	@git archive --prefix=opcost/ --output=dist/opcost.tar.gz HEAD
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist dist/opcost.tar.gz
	@WHEEL=$$(echo dist/*.whl) $(BIN)/python -m pytest -m slow tests/validation/test_package.py
	@echo dist/*.whl

image: ## Build the container image opcost:TORCH: TORCH=pinned with CUDA, or TORCH=cpu; its user has USER_ID (1000)
	@for builder in docker podman buildah; do \
	  if answer=$$($$builder info 2>&1); then \
	    exec $$builder build --file envs/Containerfile --tag opcost:$(TORCH) \
	      --build-arg TORCH=$(TORCH) --build-arg TORCH_INDEX=$(TORCH_INDEX) --build-arg USER_ID=$(USER_ID) .; \
	  fi; \
	  why="$$why; $$builder: $$(echo "$$answer" | tail -n 1)"; \
	done; \
	echo "make image needs docker, podman or buildah, and none runs here$$why" >&2; exit 1

format: $(VENV)/dev ## Format all code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile workflow

docs: $(VENV)/dev ## Write the reference pages and the figures on GPUs anew, and build the documentation in docs/_build
	@$(BIN)/python docs/reference/generate
	@$(BIN)/python docs/explanation/real_gpus.py
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . docs/_build
	@echo "Open docs/_build/docs/index.html"

clean: ## Delete .venv; results stay
	rm -rf $(VENV)

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "opcost needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Use: make run PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/run: requirements.txt pyproject.toml $(VENV)/python
	@echo "Installing the pinned packages into $(VENV) (some minutes, about 6 GB with CUDA)"
ifeq ($(TORCH),existing)
	@$(PYTHON) -c 'import os, torch, torchvision; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
	  > $(VENV)/existing.pth || \
	  { echo "$(PYTHON) has no torch and torchvision. Name another: make run TORCH=existing PYTHON=/path/to/python3"; exit 1; }
	@cp $(VENV)/existing.pth "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
endif
ifeq ($(TORCH),cpu)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --index-url $(TORCH_INDEX) $$(grep '^torch' requirements.txt)
endif
	@grep $(if $(filter pinned,$(TORCH)),'',-v '^torch') requirements.txt > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/dev: requirements-dev.txt requirements-models.txt requirements-slurm.txt $(VENV)/run
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
