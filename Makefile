# tailrack. make up: set up everything and run the dev stack. make test: set up everything and run all checks.
#   STACK=dev        which Pulumi.<stack>.yaml
#   ENGINE=          cli or inprocess; left out, the Pulumi CLI where it can be had
#   NAME= for make role; NODE=, COMMAND=  for make shell; COMMENT= for make preview; CLUSTER=gone for make down of a pool
#   REFRESH=yes      for make up: look at clouds and tailnet first
#   SHORT=yes        for make test-machines, its short form
#   TAILRACK_ARTIFACTS=  folder with Enroot and Pyxis: the lab then has containers (docs/containers.md)
SHELL := /bin/bash
PYTHON := .venv/bin/python
STACK ?= dev
RANDOM_TESTS = $$(grep -rlE --include="test_*.py" "import hypothesis|from hypothesis|tests\.chance" tests/unit)
export STACK ENGINE COMMAND
.PHONY: help setup setup-dev up preview drift outputs status diagnose images report floors shell trust down reap burst burst-down role lint test test-unit test-engine test-lab test-faults test-machines test-gpu bench

help:
	@sed -n 's/^\([a-z-]*\): *[a-z._/ -]*## /\1\t/p' Makefile | expand -t 14

setup: ## Python dependencies in .venv
	@cli/setup.sh

setup-dev: ## those of the checks too
	@cli/setup.sh dev

up: setup ## bring the stack up, measure it, show it
	@$(PYTHON) -m cli up $(if $(REFRESH),--refresh)

preview: setup ## say what up would do, with the lines that change; COMMENT=file writes it for a pull request
	@$(PYTHON) -m cli preview $(if $(COMMENT),--comment "$(COMMENT)")

drift: setup ## fail where the stack is not as its config says, clouds and tailnet included
	@$(PYTHON) -m cli preview --refresh --expect-no-changes $(if $(COMMENT),--comment "$(COMMENT)")

outputs: setup ## print the stack's outputs as one JSON object
	@$(PYTHON) -m cli outputs

status: setup ## nodes, jobs, and why a node is out
	@$(PYTHON) -m cli status

diagnose: setup ## one archive for a bug report: states, reasons and logs of every machine, no secret; prints its path
	@$(PYTHON) -m cli diagnose

report: setup ## the last measurements and the nodes as one HTML file, whose path it prints
	@$(PYTHON) -m cli report

floors: setup ## write what was measured last as floors into Pulumi.<stack>.yaml
	@$(PYTHON) -m cli floors

images: setup ## images of containers, and which node has which
	@$(PYTHON) -m cli images

shell: setup ## a shell on a lab node: NODE=head, or one command: COMMAND='sinfo'
	@$(PYTHON) -m cli shell --node "$(NODE)" --run "$$COMMAND"

trust: setup ## show the host keys of new machines, ask, and keep them
	@$(PYTHON) -m cli trust

down: setup ## remove everything of the stack; CLUSTER=gone of a pool whose cluster is gone for good
	@$(PYTHON) -m cli down $(if $(filter gone,$(CLUSTER)),--cluster-gone)

reap: setup ## remove a pool that nobody has used for longer than its idle_limit_minutes; says what it did, or why not
	@$(PYTHON) -m cli reap

burst: STACK = dev-burst
burst: up ## the pool dev-burst joins the cluster of the dev stack

burst-down: STACK = dev-burst
burst-down: down ## the pool dev-burst leaves

role: setup ## the skeleton of a new role: NAME=x (docs/adding.md)
	@$(PYTHON) -m cli.new_role "$(NAME)"

lint: setup-dev ## ruff, import-linter, mypy, shellcheck, actionlint, zizmor, and the Go program's own checks
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@said=$$(.venv/bin/lint-imports --no-cache) || { echo "$$said"; exit 1; }
	@.venv/bin/mypy --strict __main__.py stacks components
	@.venv/bin/mypy engine cli lab tests bench
	@.venv/bin/shellcheck $$(git ls-files '*.sh' .ci/run)
	@.venv/bin/zizmor --quiet --offline --no-progress --min-severity medium .github
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
	@cd lab/control && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...

test-unit: setup-dev .tailrack/packages/pulumi_aws .tailrack/packages/pulumi_tailscale ## tests without daemons, five minutes
	@$(PYTHON) -m pytest tests/unit -n 2 --dist loadfile

# Beside .venv, where the CLI does not find it: it would fetch the provider for every stack.
.tailrack/packages/pulumi_%: requirements-%.txt
	@$(PYTHON) -m pip -q --disable-pip-version-check install --no-deps --no-compile --require-hashes --upgrade --target .tailrack/packages -r $<
	@touch $@

test-engine: setup-dev .tailrack/packages/pulumi_tailscale ## tests of the engines against a real SSH server
	@$(PYTHON) -m pytest tests/engine -n 2

test-lab: setup-dev ## tests on real daemons, in containers
	@$(PYTHON) -m lab image >/dev/null
	@$(PYTHON) -m pytest tests/lab -n 2 --dist loadfile

test-faults: setup-dev ## what goes wrong, in full: kills, a partition, restarts, the secret scan, other random inputs; two hours
	@export FAULTS_SEED=$${FAULTS_SEED:-$$(od -An -N4 -tx1 /dev/urandom | tr -d ' ')}; echo "FAULTS_SEED=$$FAULTS_SEED"; \
	$(PYTHON) -m pytest -n 2 --hypothesis-seed=$$((16#$$FAULTS_SEED)) $(RANDOM_TESTS) && \
	$(PYTHON) -m lab image >/dev/null && $(PYTHON) -m pytest -m "proof or story" -s --timeout 3600 tests/lab

test: lint ## all checks, the quick ones first
	@$(PYTHON) -m cli engine
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-engine
	@$(MAKE) --no-print-directory test-lab

# No setup: the machine may have no network, and all that is needed is in archives (tests/gpu/pack.py).
test-gpu: ## tests on a machine with two NVIDIA GPUs, without network; archives: python -m tests.gpu.pack
	@tests/gpu/run.sh

test-machines: setup-dev ## tests on virtual machines with kernels of their own, by QEMU; SHORT=yes: the short form
	@$(if $(SHORT),:,$(PYTHON) -m tests.lab.slurm_packages debian-12 debian-13)
	@tests/machines/run.sh $(if $(SHORT),-m short)

bench: setup-dev ## measure times of this machine (prints, never fails)
	@for program in bench/[a-z]*.py; do PYTHONPATH=. $(PYTHON) $$program; done
