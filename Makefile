# tailrack. make up: set up everything and run the dev stack. make test: set up everything and run all checks.
#   STACK=dev        which Pulumi.<stack>.yaml
#   ENGINE=          cli or inprocess; left out, the Pulumi CLI where it can be had
#   NODE=, COMMAND=  for make shell
SHELL := /bin/bash
PYTHON := .venv/bin/python
STACK ?= dev
export STACK ENGINE COMMAND
.PHONY: help setup up preview outputs status shell down lint test test-unit test-engine test-lab test-gpu bench

help:
	@sed -n 's/^\([a-z-]*\): *[a-z ]*## /\1\t/p' Makefile | expand -t 14

setup: ## Python dependencies in .venv
	@driver/setup.sh

up: setup ## bring the stack up, measure it, show it
	@$(PYTHON) -m driver up

preview: setup ## say what up would do
	@$(PYTHON) -m driver preview

outputs: setup ## print the stack's outputs as one JSON object
	@$(PYTHON) -m driver outputs

status: setup ## nodes, jobs, and why a node is out
	@$(PYTHON) -m driver status

shell: setup ## a shell on a lab node: NODE=head, or one command: COMMAND='sinfo'
	@$(PYTHON) -m driver shell --node "$(NODE)" --run "$$COMMAND"

down: setup ## remove everything of the stack
	@$(PYTHON) -m driver down

lint: setup ## ruff, mypy, shellcheck, and the Go program's own checks
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy --strict __main__.py stacks components
	@.venv/bin/mypy engine driver lab tests bench
	@.venv/bin/shellcheck $$(git ls-files '*.sh' .ci/run)
	@cd lab/control && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...

test-unit: setup ## tests without daemons, seconds
	@$(PYTHON) -m pytest tests/unit -n 2

test-engine: setup ## tests of the engines against a real SSH server
	@$(PYTHON) -m pytest tests/engine -n 2

test-lab: setup ## tests on real daemons, in containers
	@$(PYTHON) -m lab image >/dev/null
	@$(PYTHON) -m pytest tests/lab

test: lint ## all checks, the quick ones first
	@$(PYTHON) -m driver engine
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-engine
	@$(MAKE) --no-print-directory test-lab

# No setup: the machine may have no network, and all that is needed is in archives (tests/gpu/pack.py).
test-gpu: ## tests on a machine with two NVIDIA GPUs, without network; archives: python -m tests.gpu.pack
	@tests/gpu/run.sh

bench: setup ## measure times of this machine (prints, never fails)
	@for program in bench/[a-z]*.py; do PYTHONPATH=. $(PYTHON) $$program; done
