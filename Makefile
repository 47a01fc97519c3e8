# Two targets do all the set-up on a machine that has Python 3.11 or newer and a compiler:
#   make demo   installs Unrolled into .venv and shows it at work on embedded data
#   make test   installs the development tools too, then checks style, types and every test

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml constraints.txt

.PHONY: demo test check-style check-types clean

demo: $(VENV)/installed
	$(BIN)/unrolled train generate
	$(BIN)/unrolled run $$(ls -dt runs/generate-* | head -n 1) --prompt "The " --max-tokens 300 --seed 1

test: check-style check-types
	$(BIN)/pytest -n 2

check-style: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(VENV)/installed-dev
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Unrolled needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# torch first and pinned: a looser request would fetch gigabytes of GPU libraries.
$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install -c constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist
