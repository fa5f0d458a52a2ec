# `make demo` runs the demo, `make test` the tests; each sets up what it needs from a bare Python 3.11 and make.
# A second call is quick: the files .venv/.* say what is already there.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
ARGS ?=
# What the tests need of the extras; .ci/run asks for them by `make extras`.
EXTRAS := cli,testing,mcp,postgres,prices,otel,pii,agent-hooks,dbos,temporal
AIMOCK := 1.43.0
MCP_SERVERS := 2026.8.31
TOOLS := .tools/.installed-$(AIMOCK)-$(MCP_SERVERS)

PIP := -m pip --disable-pip-version-check --quiet --quiet
# A plain editable install blinds mypy; a strict one is a tree of links below build/, made anew with each new module.
EDITABLE := --config-settings editable_mode=strict --editable
MODULES := $(sort $(shell find capabilities runtime -name '*.py' -o -name py.typed))

.PHONY: help demo test lint docs site bench corruption mutants random clean tools extras FORCE

help:
	@echo 'make demo   run the demo                      ARGS="--no" is handed to it'
	@echo 'make test   run the tests on asyncio and trio ARGS="-k name" is handed to pytest'
	@echo 'make lint   format, lint, types, imports'
	@echo 'make docs   write the generated tables of README and docs anew'
	@echo 'make site   build the site of the docs; a warning is an error'
	@echo 'make bench  measure against peers             ARGS="--quick" is handed to the benchmark'
	@echo 'make corruption  run each corruption case, and the same attacks on peers; write what was seen'
	@echo 'make mutants     take each check out of the runtime in turn; the tests must notice'
	@echo 'make random      live 10,000 random runs; each must keep every promise'
	@echo 'make clean  remove all that these have made'

demo: .venv/.cli
	.venv/bin/capfold demo $(ARGS)

test: .venv/.dev tools
	.venv/bin/python -m pytest $(ARGS)

lint: .venv/.dev
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/mypy --strict tests benchmarks
	.venv/bin/lint-imports

docs: .venv/.dev
	.venv/bin/python -m tests.docs.generated

site: .venv/.dev
	.venv/bin/sphinx-build --fail-on-warning --keep-going -q -c docs -d build/site/doctrees . build/site/html
	@echo build/site/html/index.html

bench: .venv-bench/.bench
	.venv-bench/bin/python benchmarks/run.py $(ARGS)

corruption: .venv/.dev .venv-bench/.bench
	.venv/bin/python -m tests.corruption.matrix --write
	.venv-bench/bin/python -m benchmarks.attacks --write
	.venv/bin/python -m tests.docs.generated

mutants: .venv/.dev
	.venv/bin/python -m tests.mutation $(ARGS)

random: .venv/.dev
	.venv/bin/python -m tests.random_runs $(ARGS)

clean:
	rm -rf .venv .venv-bench .tools build dist capfold.egg-info \
		.hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find capabilities runtime tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The environments. --group, for the dependency groups of pyproject.toml, came with pip 25.1.
.venv/.made .venv-bench/.made:
	@test -n "$(PYTHON)" || { echo 'capfold needs Python 3.11 or later: make PYTHON=/path/to/python' >&2; exit 1; }
	"$(PYTHON)" -m venv --clear $(@D)
	$(@D)/bin/python $(PIP) install --upgrade 'pip>=25.1'
	@touch $@

.venv/.cli: .venv/.made .venv/.modules pyproject.toml
	.venv/bin/python $(PIP) install $(EDITABLE) '.[cli]'
	@touch $@

.venv/.dev: .venv/.made .venv/.modules pyproject.toml
	.venv/bin/python $(PIP) install --group dev $(EDITABLE) '.[$(EXTRAS)]'
	@touch $@ .venv/.cli

.venv-bench/.bench: .venv-bench/.made .venv-bench/.modules pyproject.toml
	.venv-bench/bin/python $(PIP) install $(EDITABLE) '.[bench]'
	@touch $@

# Rewritten only when the list of modules is another one, not when one is edited.
.venv/.modules .venv-bench/.modules: %/.modules: %/.made FORCE
	@echo '$(MODULES)' | cmp -s - $@ || echo '$(MODULES)' > $@

# For .ci/run: the list has one place.
extras:
	@echo $(EXTRAS)

FORCE:

# Servers by others, for the tests: an OpenAI-compatible one, and two of MCP. In one install: each removes the last.
ifneq ($(shell command -v npm),)
tools: $(TOOLS)
else
tools:
	@echo 'npm is MISSING: aimock and two MCP servers cannot be installed, the tests against them will be skipped.' >&2
endif

# Node reads its own certificates only; those of the system are added, so npm works where pip does.
$(TOOLS): export NODE_EXTRA_CA_CERTS ?= $(firstword $(wildcard \
	/etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
$(TOOLS):
	npm install --prefix .tools --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
		@copilotkit/aimock@$(AIMOCK) @modelcontextprotocol/server-everything@$(MCP_SERVERS) \
		@modelcontextprotocol/server-filesystem@$(MCP_SERVERS)
	@touch $@
