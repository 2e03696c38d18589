# What a contributor types. Needs Python 3.11 or newer and make; everything else goes into .venv.

PYTHON ?= python3
# One more than cores: tests wait for processes that they have started.
JOBS ?= $(shell expr $$(nproc) + 1)
PYTEST_FLAGS ?=

BIN := .venv/bin
STAMP := .venv/.installed
PROJECT := .[run,dev]

# $(call timed,what,command): run a command, say how long it took, keep its exit code.
timed = @echo "== $(1)"; start=$$(date +%s); status=0; $(2) || status=$$?; \
	echo "== $(1): $$(($$(date +%s) - start)) s"; exit $$status

.DEFAULT_GOAL := help
.PHONY: help install train check format-check lint types house quick test matrix faults fuzz new-schedule check-schedule golden format clean

help: ## list what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv and install the pinned versions into it

$(STAMP): pyproject.toml constraints.txt
	$(call timed,install,$(PYTHON) -m venv .venv && \
		$(BIN)/python -m pip install -qq -c constraints.txt -e '$(PROJECT)' && touch $@)

train: $(STAMP) ## train a small long-context model on this machine, under 3 minutes on 2 cores
	$(call timed,train,$(BIN)/penstock train examples/quickstart.toml)

check: format-check lint types house ## format, lint, types and house rules

format-check: $(STAMP)
	$(call timed,format,$(BIN)/ruff format --check --output-format concise .)

lint: $(STAMP)
	$(call timed,lint,$(BIN)/ruff check --output-format concise .)

types: $(STAMP)
	$(call timed,types,$(BIN)/mypy)

house: $(STAMP) ## the rules of the house alone, with the size of each layer; `make test` follows CONTRIBUTING.md
	$(call timed,house rules,$(BIN)/python -m pytest -m "not long" tests/house $(PYTEST_FLAGS))

# Workers read the byte code of a thousand test files that the first collection has written.
unexport PYTHONDONTWRITEBYTECODE
PARALLEL := -n $(JOBS) --dist worksteal
# Quick tests wait for nothing, and each worker collects all of them.
QUICK_JOBS ?= $(shell nproc)

quick: $(STAMP) ## first case of each schedule, no processes; under 2 minutes on 2 cores
	$(call timed,quick tests,$(BIN)/python -m pytest -n $(QUICK_JOBS) --dist worksteal \
		-m "not processes and not long and not matrix" --first-case --ignore tests/house $(PYTEST_FLAGS))

test: $(STAMP) ## every test but the matrices; JOBS=2 for two processes, PYTEST_FLAGS='-k name' for some
	$(call timed,tests,$(BIN)/python -m pytest $(PARALLEL) -m "not matrix" $(PYTEST_FLAGS))

matrix: $(STAMP) ## the large matrices: small shapes and mutants, variants on processes; a sample of what `make exhaustive` has
	$(call timed,matrix,$(BIN)/python -m pytest $(PARALLEL) -m "matrix and not exhaustive" $(PYTEST_FLAGS))

exhaustive: $(STAMP) ## what the matrix takes a sample of, whole: about an hour
	$(call timed,exhaustive,$(BIN)/python -m pytest $(PARALLEL) -m exhaustive $(PYTEST_FLAGS))

TIMES ?= 5

faults: $(STAMP) ## kill, freeze and signal processes of new runs, and count what becomes of them: TIMES=5
	$(BIN)/python scripts/count_faults.py $(TIMES)

fuzz: $(STAMP) ## changed inputs of every format, 100,000 each; about half an hour
	$(call timed,fuzz,$(BIN)/python -m pytest $(PARALLEL) tests/fuzz --fuzz 100000 $(PYTEST_FLAGS))

# Where every schedule is listed: seconds, while the commands of all pages take minutes.
define LISTED
$(BIN)/python scripts/write_golden.py
	$(BIN)/python scripts/write_schedule_pages.py
	$(BIN)/python scripts/write_readme.py
	$(BIN)/python scripts/write_gallery.py
	$(BIN)/python scripts/write_config_reference.py
	$(BIN)/python scripts/write_counts.py
endef

new-schedule: $(STAMP) ## write file, page and test of a schedule, and list it: NAME=my-schedule
	$(BIN)/python scripts/new_schedule.py $(NAME)
	$(LISTED)

check-schedule: $(STAMP) ## prove one schedule alone, under a minute: NAME=my-schedule
	$(BIN)/python scripts/check_schedule.py $(NAME)

golden: $(STAMP) ## write golden lanes and what pages show, some minutes; read the difference
	$(LISTED)
	$(BIN)/python scripts/write_python_reference.py
	$(BIN)/python scripts/write_combinations.py
	$(BIN)/python scripts/write_shell_sessions.py

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove .venv and every cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src scripts tests -name __pycache__ -prune -exec rm -rf {} +
