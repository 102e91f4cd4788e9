# tailrack. `make up` sets up everything and runs the dev stack. `make test` sets up everything and runs all checks.
#   STACK=dev        selects Pulumi.<stack>.yaml
#   ENGINE=          cli or inprocess; default: the Pulumi CLI if possible
#   KEY= for make config-help; VERSION= for make release; NODE=, COMMAND= for make shell; COMMENT= for make preview; CLUSTER=gone for make down of a pool
#   REFRESH=yes      for make up: read clouds and tailnet first
#   ONCE=yes         for make elastic: end when nothing is left to do
#   SHORT=yes        for make test-machines: its short form
#   TAILRACK_ARTIFACTS=  folder with Enroot and Pyxis, for containers in the lab (docs/data.md#containers)
SHELL := /bin/bash
PYTHON := .venv/bin/python
STACK ?= dev
RANDOM_TESTS = $$(grep -rlE --include="test_*.py" "import hypothesis|from hypothesis|tests\.chance" tests/unit)
# The files whose phrases codespell checks (.codespell.txt, pyproject.toml).
PROSE = README.md CONTRIBUTING.md AGENTS.md SECURITY.md Makefile docs cli components stacks engine lab package policy/__main__.py templates bench __main__.py .ci .github
export STACK ENGINE COMMAND
# Without compiled files each of the many Python processes of a test run takes a second more.
unexport PYTHONDONTWRITEBYTECODE
# A misspelt variable would leave its default in place, such as the stack dev.
VARIABLES := STACK ENGINE KEY NAME VERSION NODE COMMAND COMMENT CLUSTER REFRESH ONCE SHORT PYTHON FAULTS_SEED TAILRACK_ARTIFACTS
GIVEN := $(foreach name,$(filter-out SHELL MAKE%,$(.VARIABLES)),$(if $(filter command,$(origin $(name))),$(name)))
capitals = $(filter $(VARIABLES),$(shell echo '$(1)' | tr a-z A-Z))
$(foreach name,$(filter-out $(VARIABLES),$(GIVEN)),$(error unknown variable $(name): \
  write $(or $(addsuffix =$($(name)),$(call capitals,$(name))),one of $(VARIABLES))))
# Without this, `make up REFRESH=no` would refresh, and `make down CLUSTER=away` would need the cluster.
$(foreach name,$(filter REFRESH ONCE SHORT,$(GIVEN)),$(if $(filter-out yes,$($(name))),$(error $(name)=$($(name)) has no \
  meaning: write $(name)=yes or leave it out)))
$(if $(filter-out gone,$(if $(filter CLUSTER,$(GIVEN)),$(CLUSTER))),$(error CLUSTER=$(CLUSTER) has no meaning: write CLUSTER=gone \
  or leave it out))
.PHONY: help setup setup-dev init up preview drift outputs status diagnose images report floors ssh-config shell github-keys trust down reap elastic burst burst-down config-help schema release lint types others prose test test-rest test-all test-unit test-sdk test-engine test-lab test-faults test-machines test-gpu bench site

help:
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 14

setup: ## install Python dependencies in .venv
	@cli/setup.sh

setup-dev: ## install the dependencies of checks and tests too
	@cli/setup.sh dev

init: setup ## make state, passphrase and config of a new stack, and ask for the auth key; overwrites nothing
	@$(PYTHON) -m cli init

up: setup ## bring the stack to its config, measure it, show it
	@$(PYTHON) -m cli up $(if $(REFRESH),--refresh)

preview: setup ## show the changes that up would make; COMMENT=file writes them for a pull request
	@$(PYTHON) -m cli preview $(if $(COMMENT),--comment "$(COMMENT)")

drift: setup ## fail if the stack differs from its config, clouds and tailnet included
	@$(PYTHON) -m cli preview --refresh --expect-no-changes $(if $(COMMENT),--comment "$(COMMENT)")

outputs: setup ## print the stack's outputs as one JSON object
	@$(PYTHON) -m cli outputs

status: setup ## show nodes, jobs, and why a node is out
	@$(PYTHON) -m cli status

diagnose: setup ## write one archive without secrets for a bug report: states, reasons and logs of every machine
	@$(PYTHON) -m cli diagnose

report: setup ## write the last measurements and the nodes into one HTML file
	@$(PYTHON) -m cli report

floors: setup ## write floors from the last measurement into Pulumi.<stack>.yaml
	@$(PYTHON) -m cli floors

ssh-config: setup ## print lines for ~/.ssh/config with which you log in to every machine
	@$(PYTHON) -m cli ssh-config

images: setup ## show the images of containers and the nodes that have them
	@$(PYTHON) -m cli images

shell: setup ## open a shell on a lab node: NODE=head; COMMAND='sinfo' runs one command
	@$(PYTHON) -m cli shell --node "$(NODE)" --run "$$COMMAND"

github-keys: setup ## show SSH keys of users at GitHub, ask, and record them in Pulumi.<stack>.yaml
	@$(PYTHON) -m cli github-keys

trust: setup ## show unknown host keys of machines, ask, and record them
	@$(PYTHON) -m cli trust

down: setup ## remove everything of the stack; CLUSTER=gone for a pool whose cluster no longer exists
	@$(PYTHON) -m cli down $(if $(filter gone,$(CLUSTER)),--cluster-gone)

reap: setup ## remove a pool that has been idle for longer than its idle_limit_minutes; print the reason
	@$(PYTHON) -m cli reap

elastic: setup ## rent and return the machines of an elastic pool as its jobs need, until Ctrl-C; ONCE=yes for one pass
	@$(PYTHON) -m cli elastic $(if $(ONCE),--once)

burst: STACK = dev-burst
burst: up ## add the pool dev-burst to the cluster of the dev stack

burst-down: STACK = dev-burst
burst-down: down ## remove the pool dev-burst

config-help: setup ## print config keys with type, default and text: KEY=storage.mounts
	@$(PYTHON) -c 'from stacks.config.reference import main; main()' "$(KEY)"

schema: setup ## write schema.json, with which editors complete the keys of Pulumi.<stack>.yaml, and package/schema.json
	@$(PYTHON) -m stacks.config.schema
	@$(PYTHON) -m package.arguments

release: ## tag a committed release with its section of CHANGELOG.md, and push nothing: VERSION=0.2.0
	@[ -z "$$(git status --porcelain)" ] || { echo "files are changed: commit them, then run again" >&2; exit 1; }
	@grep -Fqx 'RELEASE = "$(VERSION)"' stacks/release.py || { echo "VERSION is not RELEASE in stacks/release.py" >&2; exit 1; }
	@text=$$(awk '/^## / {on = $$2 == "$(VERSION)"; next} on' CHANGELOG.md); \
	[ -n "$$text" ] || { echo "CHANGELOG.md has no section $(VERSION): write it, then run again" >&2; exit 1; }; \
	git tag --annotate --cleanup=whitespace --message "tailrack $(VERSION)" --message "$$text" "v$(VERSION)"

lint: setup-dev ## run ruff, import-linter, mypy, shellcheck, codespell, actionlint, zizmor, gofmt, go vet
	@$(MAKE) --no-print-directory --output-sync --jobs 2 types others

# mypy is as strict as --strict on __main__.py, stacks and components (pyproject.toml).
types:
	@.venv/bin/mypy __main__.py stacks components engine cli lab package policy tests bench
	@cd examples/machines && ../../.venv/bin/mypy --strict --config-file ../../pyproject.toml .

# import-linter sees only folders with an __init__.py, so it gets a copy in which all have one.
IMPORTS = .tailrack/imports

others: prose
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@rm -rf $(IMPORTS) && mkdir -p $(IMPORTS)
	@find components stacks cli engine lab -name '*.py' | xargs cp --parents --target-directory $(IMPORTS)
	@find $(IMPORTS) -type d ! -exec test -e {}/__init__.py ';' -exec touch {}/__init__.py ';'
	@cd $(IMPORTS) && output=$$(../../.venv/bin/lint-imports --no-cache --config ../../pyproject.toml) || { echo "$$output"; exit 1; }
	@.venv/bin/shellcheck $$(git ls-files '*.sh' .ci/run)
	@.venv/bin/zizmor --quiet --offline --no-progress --min-severity medium .github
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
	@cd lab/control && test -z "$$(gofmt -l .)" && go vet ./... && go test ./...

prose:
	@.venv/bin/codespell $(PROSE)

# Provider SDKs are not in .venv, because the CLI would find them there and fetch the provider for every stack.
HAVE_PACKAGES = awk -F '[= ]+' '/^[a-z]/ {gsub("-", "_", $$1); n += system("test -d .tailrack/packages/" $$1 "-" $$2 ".dist-info")} END {exit n > 0}'
INSTALL_PACKAGES = $(PYTHON) -m pip -q --disable-pip-version-check install --no-deps --no-compile --require-hashes --upgrade --target .tailrack/packages -r

.tailrack/packages/pulumi_%: requirements/%.txt
	@$(HAVE_PACKAGES) $< || $(INSTALL_PACKAGES) $<
	@touch $@

# `machines` are those that only examples/machines has.
.tailrack/packages/machines: requirements/machines.txt
	@$(HAVE_PACKAGES) $< || $(INSTALL_PACKAGES) $<
	@touch $@

SDK_PACKAGES = $(addprefix .tailrack/packages/,pulumi_aws machines)

# The parts of the engine's and the lab's tests that `make test` runs.
QUICK_ENGINE = $(addprefix tests/engine/test_,engine_parity.py engine_run.py engine_secrets.py trust.py preview.py)
QUICK_LAB = $(addprefix tests/lab/test_,cluster.py share.py jobs.py operating.py why.py sll.py slurm.py secrets.py trust.py)

test-unit: setup-dev .tailrack/packages/pulumi_tailscale ## run tests without daemons and without SDKs of clouds
	@$(PYTHON) -m pytest tests/unit -n 2 --dist loadfile --timeout 180 -m "not proof and not sdk"

test-sdk: setup-dev .tailrack/packages/pulumi_tailscale $(SDK_PACKAGES) ## run tests against SDKs of clouds, 500 MB
	@$(PYTHON) -m pytest tests/unit -n 2 --dist loadfile -m sdk

test-engine: setup-dev .tailrack/packages/pulumi_tailscale ## test the engines against a real SSH server
	@$(PYTHON) -m pytest tests/engine -n 2

test-lab: setup-dev ## run tests on real daemons in containers
	@$(PYTHON) -m lab image
	@$(PYTHON) -m pytest tests/lab -n 2 --dist loadfile

test-faults: setup-dev ## run all faults: kills, a partition, restarts, the secret scan, new random inputs; two hours
	@export FAULTS_SEED=$${FAULTS_SEED:-$$(od -An -N4 -tx1 /dev/urandom | tr -d ' ')}; echo "FAULTS_SEED=$$FAULTS_SEED"; \
	$(PYTHON) -m pytest -n 2 --hypothesis-seed=$$((16#$$FAULTS_SEED)) $(RANDOM_TESTS) && \
	$(PYTHON) -m lab image && { $(PYTHON) -m pytest -m "proof or story" -s --timeout 3600 tests/lab; lab=$$?; \
	$(PYTHON) -m pytest -s --timeout 3600 tests/faults && exit $$lab; }

test: lint ## run the quick checks: twelve minutes on two cores
	@$(PYTHON) -m cli engine
	@$(MAKE) --no-print-directory test-unit
	@.venv/bin/python -m pytest $(QUICK_ENGINE) -n 2
	@$(PYTHON) -m lab image
	@$(PYTHON) -m pytest $(QUICK_LAB) -n 2 --dist loadfile
	@echo "left out: SDKs of clouds, $$(ls tests/engine/test_*.py | wc -l) - $(words $(QUICK_ENGINE)) files of tests/engine, $$(ls tests/lab/test_*.py | wc -l) - $(words $(QUICK_LAB)) of tests/lab: make test-all"
	@echo "left out: faults: make test-faults; virtual machines: make test-machines; real GPUs: make test-gpu"

test-rest: setup-dev .tailrack/packages/pulumi_tailscale ## run what test-all has beyond `make test`
	@$(MAKE) --no-print-directory test-sdk
	@$(PYTHON) -m pytest tests/engine -n 2 $(addprefix --ignore=,$(QUICK_ENGINE))
	@$(PYTHON) -m lab image
	@$(PYTHON) -m pytest tests/lab -n 2 --dist loadfile $(addprefix --ignore=,$(QUICK_LAB))

test-all: test test-rest ## run all tests but faults, virtual machines and GPUs: an hour

# No setup: the machine may lack a network, and the archives contain everything (tests/gpu/pack.py).
test-gpu: ## run tests on a machine with NVIDIA GPUs and no network; archives: python -m tests.gpu.pack
	@tests/gpu/run.sh

test-machines: setup-dev ## run tests on QEMU virtual machines with their own kernels; SHORT=yes: the short form
	@$(if $(SHORT),:,$(PYTHON) -m tests.lab.slurm_packages debian-12 debian-13)
	@tests/machines/run.sh $(if $(SHORT),-m short)

# Pages link to files outside docs/, so the site has all files.
site: setup-dev ## build the docs as a site with search, .tailrack/site/html; a broken link is an error
	@rm -rf .tailrack/site/files && mkdir -p .tailrack/site/files && git ls-files -z | xargs -0 cp --parents -t .tailrack/site/files
	@.venv/bin/uv venv --quiet --allow-existing .tailrack/site/venv
	@.venv/bin/uv pip install --quiet --python .tailrack/site/venv --require-hashes -r requirements/site.txt
	@NO_MKDOCS_2_WARNING=true .tailrack/site/venv/bin/mkdocs build --strict --quiet

bench: setup-dev ## print times of this machine, without a verdict
	@for program in bench/[a-z]*.py; do PYTHONPATH=. $(PYTHON) $$program; done
