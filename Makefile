# Everything here works on a machine that has Python 3.11 or newer: the rest is brought by scripts/system.sh and pip.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: browser objects site help demo test check bench chart soak flaky docs clean system databases

BIN := .venv/bin
READY := .venv/.ready
JARS := .venv/.jars
# The tests of `make check`, which `make test` does not run a second time.
STYLE := tests/test_layers.py tests/test_style.py tests/test_links.py

help:  ## Show what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: system $(READY)  ## Run the trading demo for about half a minute
	@$(BIN)/millpond demo

test: check $(JARS) browser databases objects  ## Check the code, then run every test
	@echo "== tests"
	@$(BIN)/python -m pytest -n 2 --durations=10 $(STYLE:%=--ignore=%)

check: system $(READY)  ## Lint, format, types, layers and style: no Spark, under a minute
	@echo "== ruff";    $(BIN)/ruff check .
	@echo "== format";  $(BIN)/ruff format --check .
	@echo "== types";   $(BIN)/mypy --strict
	@echo "== layers";  $(BIN)/lint-imports
	@echo "== imports and style"; $(BIN)/python -m pytest $(STYLE)

bench: system $(READY) databases  ## Run the benchmarks and print their figures
	@for file in start check tables backends flows sources databases apps features app_growth; do echo "== bench/$$file.py"; $(BIN)/python "bench/$$file.py"; done

chart: system $(READY)  ## Draw how tables grow, up to ten million rows, into docs/
	@$(BIN)/python bench/tables.py --chart docs/growth.png

soak: system $(READY) databases objects  ## Run the crash tests a hundred times over, and the largest batches, random transactions and readers beside a writer for a minute
	@MILLPOND_SOAK=1 $(BIN)/python -m pytest -k "crash or kill or readers_never or random_queries or same_rows or wheel or many_objects or hostile or large_batch or captured_tables or connection_lost"
	@echo "== flows, every batch on Spark"
	@MILLPOND_ENGINE=spark $(BIN)/python -m pytest -n 2 tests/engine tests/relational

flaky: $(JARS) databases objects  ## Run every test that starts a process or a server 20 times, with all cores busy
	@$(BIN)/python scripts/flaky.py

docs: $(READY)  ## Write the generated parts of docs/ anew
	@$(BIN)/python scripts/docs.py

site: $(READY)  ## Build the documentation as a site, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

clean:  ## Remove everything that was made
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis spark-warehouse src/*.egg-info

system:
	@scripts/system.sh

# Without Chromium the tests of the page are skipped, loudly.
browser:
	@scripts/system.sh chromium || true

# Without this server S3 is tested on moto, which verifies less, loudly.
objects: $(READY)
	@scripts/system.sh s3 || true

# Without the servers the tests of databases are skipped, loudly; everything else runs.
databases: $(READY)
	@scripts/system.sh databases || true
	@scripts/system.sh mongodb || true

$(READY): pyproject.toml constraints.txt scripts/system.sh
	@scripts/system.sh
	@echo "== making .venv"
	@"$$(scripts/system.sh python)" -m venv .venv
	@echo "== installing Millpond and its tools (a few minutes the first time: Spark is 400 MB)"
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]' \
		| { grep -v 'already satisfied' || true; }
	@touch $@

# Without Maven the Kafka tests are skipped, loudly; everything else runs.
$(JARS): $(READY) src/millpond/jars/pom.xml
	@scripts/system.sh maven || true
	@echo "== fetching the jars of connectors"
	@if $(BIN)/millpond doctor --install kafka; then touch $@; fi
