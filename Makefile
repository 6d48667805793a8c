# make demo   trains the methods on the bundled digits and writes an HTML report
# make test   lint, types and all tests
# make lint   ruff and mypy alone
# make bench  measures speed and memory and writes docs/performance.md (on an idle machine)
# make bench-gpu  compares a GPU with the CPU and measures it, in less than six minutes
# make peers  measures other simulators beside ours, for the same page
# make compatibility  traces the models of other libraries and writes docs/compatibility.md
# make clean  removes the environment and caches; runs/ stays
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench bench-gpu peers compatibility clean

demo: $(VENV)/.installed
	$(BIN)/widthwise study digits --out runs/demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --durations=15 -m "not alone"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --durations=5 -m alone

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

bench-gpu: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/gpu.py --out gpu.json

# Copied at the end, so that both results name the same commit.
peers: $(VENV)/.installed-dev
	mkdir -p build/benchmarks docs/results/benchmarks
	$(BIN)/python -m benchmarks.peers --out build/benchmarks/peers.json
	$(BIN)/python -m benchmarks.peers --overhead --out build/benchmarks/peers-overhead.json
	cp build/benchmarks/peers.json build/benchmarks/peers-overhead.json docs/results/benchmarks/
	$(BIN)/python -m benchmarks.page

compatibility: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore -m benchmarks.compatibility

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second call instant. torch goes first: it is the large one, and its version is fixed.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	touch $@
