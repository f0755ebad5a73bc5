# The two that matter: make run, make test. `make` alone lists all.
VENV ?= .venv
ARGS ?= model=onn ops=sine,exp data=denoise
LOGDIR ?= outputs
# Two test processes with one thread each, as the suite's tensors are too small to share; what one has left the other takes.
TEST_ARGS ?= -n 2 --dist worksteal
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help run test check format tensorboard benchmark soak clean

help: ## this list
	@echo "make TARGET [ARGS=\"...\"] [VENV=.venv] [PYTHON=python3.11]"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

run: $(INSTALLED) ## set up and train: make run ARGS="model=conv data=denoise"
	@$(BIN)/onn-run $(ARGS)

test: $(INSTALLED_DEV) ## set up and run the whole test suite: make test TEST_ARGS="-n 2 tests/cli"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(TEST_ARGS)

check: $(INSTALLED_DEV) ## style, types and tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory test

format: $(INSTALLED_DEV) ## put the code into the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

tensorboard: $(INSTALLED) ## look at the runs: make tensorboard LOGDIR=multirun/<name>
	@$(BIN)/tensorboard --logdir $(LOGDIR)

benchmark: $(INSTALLED) ## accuracy, then time and memory of the kernels: make benchmark BENCHMARK_ARGS="--quick"
	@$(BIN)/python scripts/benchmark.py $(BENCHMARK_ARGS)

soak: $(INSTALLED) ## kill runs and sweeps at random moments; no number may change: make soak SOAK_ARGS="--kills 10 --sweep-kills 3"
	@$(BIN)/python scripts/soak.py $(SOAK_ARGS)

clean: ## remove caches and build products; outputs/, multirun/ and the environment stay
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage *.egg-info
	@find onn_runner tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written after success only, so that a broken installation is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@sh scripts/setup.sh "$(VENV)"
	@touch "$@"

$(INSTALLED_DEV): $(INSTALLED)
	@sh scripts/setup.sh "$(VENV)" dev
	@touch "$@"
