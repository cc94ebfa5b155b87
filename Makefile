# A venv, and everything in it. `make demo` and `make test` need only Python, pip and make.

# As root, Debian's own Python: the lab's ordinary user cannot read one that lies below /root.
PYTHON ?= $(shell test "$$(id -u)" = 0 && test -x /usr/bin/python3 && echo /usr/bin/python3 || echo python3)
VENV ?= .venv
# The release that has been tested: its build for CPUs where pip's own indexes or this one have it, and there is no card.
TORCH ?= torch==2.13.0
TORCH_INDEX ?= $(if $(shell command -v nvidia-smi),,https://download.pytorch.org/whl/cpu)
FROM_INDEX = --retries 2 --timeout 15 --extra-index-url '$(TORCH_INDEX)'

export PATH := $(abspath $(VENV))/bin:$(PATH)

.PHONY: demo test test-labs fast check measure bench gpu browser pictures fresh pyz clean

demo: $(VENV)/train
	torusrun submit examples/digits.yaml --wait

# What every machine can do: it installs nothing on the system and starts no daemons.
test: check
	python -m pytest -n 2

# The rest: Slurm, Grid Engine, Apptainer and sshd. As root on Debian, whose packages it installs.
test-labs: $(VENV)/dev
	python -m pytest -n 2 --labs

fast: check
	python -m pytest -q tests/unit

check: $(VENV)/dev
	ruff check .
	ruff format --check .
	mypy

# The size of the code, the command line, the keys and the pages.
measure: $(VENV)/dev
	python -m benchmarks.measure

# One file with all that torusrun needs but Python itself.
pyz: $(VENV)/dev
	python -m torusrun.orchestrator.remote.archive torusrun.pyz

# The README's commands in a minimal Debian, as root: about 40 minutes on two cores.
fresh:
	tests/fresh.sh

# The page of `torusrun report` in Debian's chromium, which is not installed for the tests.
browser: $(VENV)/dev
	python -m tests.browser

# The pictures of README and docs, from real runs: some minutes, and Debian's chromium.
pictures: $(VENV)/dev
	python docs/make_picture.py
	python docs/make_gallery.py

# The checks and benchmarks that need an NVIDIA card, and their results in benchmarks/results, or RESULTS=FOLDER.
gpu: $(VENV)/dev
	python -m benchmarks.gpu $(if $(RESULTS),--results '$(RESULTS)')

bench: $(VENV)/dev
	python -m benchmarks.cold_start

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torusrun needs Python 3.10 or newer; this is " + sys.version)'
	$(PYTHON) -m venv $(VENV) > /dev/null || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $@ install -q pip; } || \
	{ rm -rf $(VENV); echo 'no virtual environment: install python3-venv, or pip 22.3 or newer' >&2; exit 1; }

$(VENV)/train: $(VENV)/bin/python pyproject.toml
	{ test -n '$(TORCH_INDEX)' && python -m pip install -q $(FROM_INDEX) '$(TORCH)+cpu' 2> /dev/null; } || \
	{ echo 'PyTorch for CPUs (200 MB) is not taken: on Linux, the one of PyPI brings CUDA, 2 to 4 GB.' && python -m pip install -q '$(TORCH)'; }
	python -m pip install -q -e '.[train]'
	touch $@

$(VENV)/dev: $(VENV)/train
	python -m pip install -q '$(TORCH)' -e '.[train,dev,programs]'
	touch $@

clean:
	rm -rf $(VENV)
