# These need Python 3.11 or newer and a compiler:
#   make demo   installs Unrolled into .venv, trains a model on built-in data and lets it write
#   make test   also installs the development tools, then checks style, types and all tests
# Longer searches for faults:
#   make kill N=1000             kills training runs of every task 1,000 times and compares them with undisturbed runs
#   make fuzz N=100000 [SEED=2]  reads damaged files with every reader, counts the outcomes and keeps the failures
# These need an NVIDIA GPU and install nothing; GPU_PYTHON is a Python with torch for CUDA, numpy and pytest:
#   make test-gpu      runs tests/gpu and records the result in benchmarks/results/test_gpu.txt
#   make sanitize-gpu  runs small cases under compute-sanitizer: memcheck, then racecheck

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# Bytecode is made when a module is first imported, and kept: most of what is installed never is.
INSTALL := $(PIP) install --no-compile -c constraints.txt
export PYTHONDONTWRITEBYTECODE :=
NATIVE := CMakeLists.txt $(wildcard native/*) $(wildcard native/*/*)

.PHONY: demo test kill fuzz test-gpu sanitize-gpu check-style check-types clean FORCE

demo: $(VENV)/installed
	$(BIN)/unrolled train generate
	$(BIN)/unrolled run $$(ls -dt runs/generate-* | head -n 1) --prompt "The " --max-tokens 300 --seed 1
	@echo; echo "Next: source $(BIN)/activate, then unrolled train generate --train YOUR_TEXT.txt, or unrolled --help"

# mypy runs beside the tests, and its verdict comes last.
test: check-style
	@$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(BIN)/pytest -n 2 --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; echo "mypy:"; cat $(VENV)/types.txt; exit $$((tests || types))

kill: $(VENV)/installed-dev
	UNROLLED_SLOW=1 $(BIN)/python -m pytest -q tests/ranks tests/test_ray.py
	$(BIN)/python -m tests.faults.kill --kills $(or $(N),100) --out benchmarks/results/kill.json
	$(BIN)/python -m tests.faults.kill_corpus --kills $(or $(N),100) --out benchmarks/results/kill_corpus.json
	$(BIN)/python -m tests.faults.kill_corpus --kills 20 --workers 2 --cases classify,generate \
	  --out benchmarks/results/kill_corpus.json

fuzz: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults.fuzz --inputs $(or $(N),10000) --seed $(or $(SEED),1) --record benchmarks/results/fuzz.json

GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)

test-gpu: SHELL := /bin/bash
test-gpu:
	@set -o pipefail; { date -u; git rev-parse HEAD; nvidia-smi -L; \
	$(GPU_PYTHON) -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)'; \
	$(GPU_PYTHON) -m pytest -q -p no:cacheprovider tests/gpu; } 2>&1 | tee benchmarks/results/test_gpu.txt

sanitize-gpu:
	compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
	  $(GPU_PYTHON) -m pytest -q tests/gpu/test_cuda_engine.py tests/gpu/test_ctc.py -k small
	compute-sanitizer --tool racecheck --error-exitcode 1 \
	  $(GPU_PYTHON) -m pytest -q tests/gpu/test_cuda_engine.py tests/gpu/test_ctc.py \
	  -k 'small_without_clusters or test_ctc and small'

check-style: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(VENV)/installed-dev
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Unrolled needs Python 3.11 or newer; choose one with: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

# An editable install lists the modules by name: repeat it when one is added, removed or moved, or the C++ changes.
$(VENV)/modules: $(BIN)/python FORCE
	@find unrolled -name '*.py' | sort > $@.now
	@cmp -s $@.now $@ || cp $@.now $@

# torch comes first and pinned: an unpinned request would download gigabytes of GPU libraries. installed-dev also
# counts as installed, so the C++ is compiled once.
SOURCES := $(BIN)/python $(VENV)/modules pyproject.toml constraints.txt $(NATIVE)

$(VENV)/installed: $(SOURCES)
	$(INSTALL) torch
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-dev: $(SOURCES)
	$(INSTALL) torch
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist
