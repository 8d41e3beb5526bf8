.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

BIN := .venv/bin
INSTALLED := .venv/.installed
LOCK := $(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header
export PYTHON PORT

.PHONY: help
help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): requirements/all.txt pyproject.toml requirements/install
	@requirements/install

.PHONY: setup
setup: $(INSTALLED) ## make .venv with everything that the other targets need

.PHONY: demo
demo: $(INSTALLED) ## run all of it here, with ten sample failures (PORT, DATABASE_URL, REDIS_URL are honoured)
	@$(BIN)/faultline demo

.PHONY: test
test: $(INSTALLED) ## run every test (ARGS="-k word" to choose); servers are started when no URL is set
	@$(BIN)/pytest $(ARGS)

.PHONY: peers
peers: ## install the real servers that tests run against (Debian, as root); without them those tests are skipped
	@tests/peers/install

.PHONY: check
check: $(INSTALLED) ## format, lint, types, import directions, Django's checks, rules, safety, licences
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python -m engine rules check
	$(BIN)/bandit -q -c pyproject.toml -r engine connectors triage
	$(BIN)/python requirements/licences --check
	@requirements/audit

.PHONY: bench
bench: $(INSTALLED) ## measure speed and memory: of the engine, of collecting, of 2,000 attempts at once
	@$(BIN)/pytest tests -m bench -s $(ARGS)

.PHONY: chaos
chaos: $(INSTALLED) ## kill every process at random while attempts arrive, and count (ROUNDS, SEED, ATTEMPTS, ONLY="fault")
	@nice $(BIN)/python -m tests.chaos --json docs/reliability.json $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(ATTEMPTS),--attempts $(ATTEMPTS)) $(if $(ONLY),--only "$(ONLY)")
	@$(BIN)/python -m tests.chaos.report docs/reliability.json

.PHONY: screenshots
screenshots: $(INSTALLED) ## take pictures of every page into docs/screenshots (needs Chromium)
	@$(BIN)/pytest -q tests/e2e/screenshots.py

.PHONY: format
format: $(INSTALLED) ## write the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: lock
lock: $(INSTALLED) ## renew the locked requirements from the .in files (UPGRADE=1: to the newest versions)
	$(LOCK) $(if $(UPGRADE),--upgrade) requirements/all.in -o requirements/all.txt
	$(LOCK) -c requirements/all.txt requirements/base.in -o requirements/base.txt

.PHONY: licences
licences: $(INSTALLED) ## write docs/licences.md from what is installed
	$(BIN)/python requirements/licences

.PHONY: sbom
sbom: $(INSTALLED) ## write sbom.json (CycloneDX): every package that production installs, with its hash
	$(BIN)/cyclonedx-py requirements requirements/base.txt --output-reproducible --of JSON -o sbom.json

.PHONY: clean
clean: ## remove .venv, caches and the demo's data
	@if [ -x $(BIN)/faultline ]; then $(BIN)/faultline clean; fi
	rm -rf .venv .faultline build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache htmlcov .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
