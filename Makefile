# A venv, and everything in it. `make demo` and `make test` need only Python, pip and make.

# As root, Debian's own Python: the lab's ordinary user cannot read one that lies below /root.
PYTHON ?= $(shell test "$$(id -u)" = 0 && test -x /usr/bin/python3 && echo /usr/bin/python3 || echo python3)
VENV ?= .venv
# An unpinned torch brings gigabytes of CUDA; this release has been tested.
TORCH ?= torch==2.13.0

export PATH := $(abspath $(VENV))/bin:$(PATH)

.PHONY: demo test fast check bench gpu browser pictures fresh clean

demo: $(VENV)/train
	torusrun submit examples/digits.yaml --wait

test: check
	python -m pytest -n 2

fast: check
	python -m pytest -q tests/unit

check: $(VENV)/dev
	ruff check .
	ruff format --check .
	mypy

# Both of the README's commands in a minimal Debian, as root: about 40 minutes on two cores.
fresh:
	tests/fresh.sh

# The page of `torusrun report` in Debian's chromium, which is not installed for the tests.
browser: $(VENV)/dev
	python -m tests.browser

# The pictures of README and docs, from real runs: some minutes, and Debian's chromium.
pictures: $(VENV)/dev
	python docs/make_picture.py
	python docs/make_gallery.py

# The checks and benchmarks that need an NVIDIA card. RESULTS=1 keeps the output.
gpu: $(VENV)/dev
	python -m benchmarks.gpu $(if $(RESULTS),--results)

bench: $(VENV)/dev
	python -m benchmarks.cold_start

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torusrun needs Python 3.10 or newer; this is " + sys.version)'
	$(PYTHON) -m venv $(VENV) || { test "$$(id -u)" = 0 && apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); }

$(VENV)/train: $(VENV)/bin/python pyproject.toml
	python -m pip install -q '$(TORCH)'
	python -m pip install -q -e '.[train]'
	touch $@

$(VENV)/dev: $(VENV)/train
	python -m pip install -q '$(TORCH)' -e '.[train,optuna,dev,programs]'
	touch $@

clean:
	rm -rf $(VENV)
