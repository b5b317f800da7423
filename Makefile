# Every target sets up what it needs: a fresh checkout, Python 3.11 or newer, and make are enough.
#
#   make run                                         judge PyTorch's own kernels on the smoke suite
#   make run ARGS="run --suite smoke --backend aten" any other torchstone command
#   make test ARGS="-k tolerance"                    any other pytest arguments
#   make test PYTHON=/path/to/python                 another interpreter; one that has torch keeps it

.DEFAULT_GOAL := help
CANDIDATES := python3 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in $(CANDIDATES); do "$$each" -c '$(NEW_ENOUGH)' 2>/dev/null && echo "$$each" && break; done)
PYTHON := $(PYTHON)

NAME_ONE = No Python 3.11 or newer on PATH (tried $(CANDIDATES)). Install one, or name it: make PYTHON=/path/to/python
INTERPRETER = $(if $(PYTHON),$(PYTHON),$(error $(NAME_ONE)))
BOOTSTRAP = $(INTERPRETER) tools/bootstrap.py
CHECK = $(BOOTSTRAP) --for check --
PYTEST = $(BOOTSTRAP) --for test -- -m pytest
# Tests that look at the clock run alone, the others two side by side.
ALONE := tests/redteam tests/worker tests/judge_process/test_leftover_work.py tests/harness/test_pair_session.py
SIDE_BY_SIDE := --numprocesses 2 --dist loadfile --no-loadscope-reorder $(foreach room,$(ALONE),--ignore=$(room))
CACHES := .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help run test check lint format-check format types imports prose tables tables-write wheels clean

help: ## list the targets
	@sed -n 's/^#   \(make .*\)/  \1/p' Makefile
	@echo
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r n t; do printf '  %-14s%s\n' "$$n" "$$t"; done

run: ARGS ?= run --suite smoke --backend aten
run: ## judge kernels; ARGS="..." replaces the arguments
	@$(BOOTSTRAP) --for run -- -m torchstone $(ARGS)

test: export OMP_NUM_THREADS = 1
test: ## run the tests; ARGS="..." goes to pytest
	@$(if $(ARGS),$(PYTEST) $(ARGS),$(PYTEST) $(SIDE_BY_SIDE) && $(PYTEST) $(ALONE))

check: lint format-check types imports prose tables ## all that does not run the program: the six below

lint: ## ruff's rules
	@$(CHECK) -m ruff check .

format-check: ## ruff's layout
	@$(CHECK) -m ruff format --check .

types: ## mypy, strict
	@$(CHECK) -m mypy
	@$(CHECK) -m mypy tools

imports: ## arrows between rooms point one way
	@$(CHECK) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'

prose: ## documentation and docstrings are plain technical English
	@$(INTERPRETER) tools/prose.py

tables: ## tables of the documentation hold the figures that stand in the code
	@$(CHECK) tools/doc_tables.py --check

tables-write: ## write these tables
	@$(CHECK) tools/doc_tables.py

format: ## lay the code out and mend what ruff can
	@$(CHECK) -m ruff check --fix .
	@$(CHECK) -m ruff format .

wheels: ## download what a machine without network may lack into wheels/; ARGS="expecttest" adds more
	@$(INTERPRETER) tools/carry_wheels.py $(ARGS)

clean: ## remove what set-up and tools have made; wheels/ stays
	@if [ -e .venv/.torchstone-stamp ]; then rm -rf .venv; fi
	@rm -rf .deps $(CACHES) dist
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
