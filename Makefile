# Every target sets up what it needs by itself. `make` alone lists them.
PORT ?= 8501
ADDRESS ?=
ARGS ?=
PYTHON ?=
export PYTHON

python := .venv/bin/python
# Where Linux offers it: the server ends with make, even if make is killed.
tied = $(shell setpriv --pdeathsig TERM true 2>/dev/null && echo setpriv --pdeathsig TERM)

.DEFAULT_GOAL := help
.PHONY: help setup run runtimes recordings test test-quick test-all check format bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  with PORT=8600 (run), ADDRESS=0.0.0.0 (run: let other machines in), ARGS='-k name' (test), PYTHON=/path/to/python (setup)"

setup: ## make .venv with everything that the app, the tests and the checks need
	@.ci/setup requirements-dev.txt

run: ## start the app on http://localhost:8501; Ctrl-C ends it
	@.ci/setup requirements.txt
	@exec $(tied) $(python) -m streamlit run app.py --server.port $(PORT) $(if $(ADDRESS),--server.address $(ADDRESS))

runtimes: ## get further TensorFlow versions; ARGS='2.21 --keras 3.4.1' names one
	@.ci/setup requirements.txt
	@exec $(tied) $(python) -m engine runtimes install $(ARGS)

recordings: ## record what is shown where a version is not installed, on each that is; ARGS='fit --tf 2.4.1' names some
	@.ci/setup requirements.txt
	@exec $(tied) $(python) -m engine recordings $(ARGS)

# Servers that the tests start open no window in anyone's browser.
test test-quick test-all bench: export STREAMLIT_SERVER_HEADLESS = true

# In two processes: tests/conftest.py says which tests go together.
pytest = exec $(python) -m pytest -n 2 --dist loadgroup

test: setup ## run all tests; of large grids of alike cases a sample, another one each day
	@$(pytest) $(ARGS)

test-quick: setup ## run the tests that need neither TensorFlow nor a browser: less than a minute
	@$(pytest) --quick $(ARGS)

test-all: setup ## run every test, with every case and every recording, on every version that is installed
	@$(pytest) --all $(ARGS)

check: setup ## look for mistakes without running anything: ruff, mypy
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy

format: setup ## put the code into its one form
	$(python) -m ruff check --fix
	$(python) -m ruff format

bench: setup ## measure: warm against cold runs, thirty at once, start, memory
	@exec $(python) -m tests.bench $(ARGS)

clean: ## remove .venv and every cache
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -not -path './.runtimes/*' -prune -exec rm -rf {} +
