# Everything a person or CI does here. `.ci/run` calls these targets too.
PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs golden bench matrix cluster clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install Debian packages (as root) and the pinned Python environment in .venv
	@scripts/packages
	@$(MAKE) --no-print-directory -s .venv/.ready

.venv/.ready: constraints.txt setup.cfg pyproject.toml
	echo "installing the Python environment into .venv (a minute)" && $(PYTHON) -m venv .venv
	.venv/bin/pip install -q --disable-pip-version-check -c constraints.txt pip setuptools wheel pbr
	.venv/bin/pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

demo: setup ## a cluster on this machine and a tour through it (KEEP=1 leaves it running)
	@python -m lab.demo

test: setup cluster ## every test: pure, golden, real Open vSwitch, real API server (ARGS=… goes to pytest)
	@python -m pytest --forbid-skips $(ARGS)

lint: setup ## ruff, its formatter and the import contracts
	@ruff check . && ruff format --check . && lint-imports --no-cache

types: setup ## mypy, strict
	@mypy

docs: setup ## write the pages of docs/ that are made from the code anew
	@mkdir -p docs build
	@for page in pipeline configuration; do \
	  signalbox docs $$page >build/$$page.md && mv build/$$page.md docs/$$page.md || exit 1; done

golden: setup ## write the golden files of tests/golden anew; read the difference before you commit it
	@python -m pytest tests/golden --regenerate-golden

bench: setup ## measure against ovs-ofctl and OVN on this machine
	@scripts/packages ovn-central ovn-host
	@python -m bench

matrix: setup ## ask every kind of service from everywhere, in every mode (minutes): a table, and build/matrix.html
	@python -m tests.services.matrix --page build/matrix.html $(ARGS)

cluster: setup ## build what a real Kubernetes API server needs (minutes, once)
	@scripts/go-toolchain
	@tests/cluster/build

clean: ## take down the labs `lab` and `demo`, remove .venv and every cache
	-@[ ! -x .venv/bin/python ] || for lab in lab demo; do python -m lab down --name $$lab; done
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
