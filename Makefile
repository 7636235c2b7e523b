# Two commands matter: `make setup` and `make demo`. Everything runs in .venv; nothing is installed globally.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup java demo demo-platform docs example-000 example-001 example-002 example-003 test test-fast test-versions test-doors test-schedulers check audit crash cluster faults faults-all mutants bench bench-scale bench-peers dist lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock and fetch the JVM connectors (needs Python 3.10+, Java 17 or 21)
	@PYTHON="$(PYTHON)" scripts/setup.sh

java: ## fetch a JDK into the cache folder, where no Java 17 or 21 is installed
	@PYTHON="$(PYTHON)" scripts/setup.sh java

demo: setup ## about half a minute: a small shop, a kill in the middle of a write, late rows; nothing lost, nothing doubled
	@$(BIN)/floodmark demo .demo

demo-platform: setup ## a minute on two cores: two days of a platform's costs, a crash, late rows, and not a cent lost or doubled
	@$(BIN)/python examples/platform_observability/demo.py

docs: setup ## build the site of the docs into build/site, offline, and check its links and the README's types
	@$(BIN)/python scripts/docs.py

example-000: setup ## seed 000: the offsets of a Kafka topic as a mark, on a real broker
	@$(BIN)/python examples/seed_000/run.py
	@$(BIN)/python examples/seed_000/through_the_door.py

example-001: setup ## seed 001: healing, the mark follows what really succeeded, on a real broker
	@$(BIN)/python examples/seed_001/run.py

example-002: setup ## seed 002: a table polled for ever into Kafka, on real servers
	@$(BIN)/python examples/seed_002/run.py

example-003: setup ## seed 003: streams joined by typed functions, on files and on a real broker
	@$(BIN)/python examples/seed_003/run.py

test: setup ## run the tests, all but crash, cluster and faults
	@$(BIN)/python -m pytest -m "not crash and not cluster and not faults" -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 5

test-fast: setup ## run the tests that need neither Spark nor a server and are quick: the inner loop, within a minute
	@$(BIN)/python -m pytest -q -m "not crash and not cluster and not faults and not spark and not server and not slow" -n auto --maxprocesses 4

test-versions: setup ## import, init and a run on every Python from 3.10 to 3.13 that is found here
	@$(BIN)/python scripts/test_versions.py

test-doors: setup ## run the originals' own tests and examples through the doors, and count (environments of their own)
	@$(BIN)/python scripts/doors.py

test-schedulers: setup ## run the files of examples/scheduling in Airflow and Dagster themselves (environments of their own)
	@$(BIN)/python scripts/schedulers.py

check: setup ## lint, format, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_layers.py
	@$(BIN)/python scripts/audit.py --quick

audit: setup ## ask for known weaknesses of every package in requirements.lock
	@$(BIN)/python scripts/audit.py

crash: setup ## kill runs at every point and compare the rows; and what takes minutes
	@$(BIN)/python -m pytest -m crash -n 2 --dist loadfile --no-loadscope-reorder

cluster: setup ## run on a real cluster of Spark (a master, two workers with disks of their own), on an S3 double, and through Spark Connect
	@$(BIN)/python -m pytest -m cluster

faults: setup ## break disks, servers, clocks and processes below a run, and compare what is left (docs/guarantees.md has the table)
	@FLOODMARK_PROOFS=docs/guarantees.md $(BIN)/python -m pytest -m faults

faults-all: setup ## the same with every store, sink and way that a fault can take
	@FLOODMARK_FAULTS=all FLOODMARK_PROOFS=docs/guarantees.md $(BIN)/python -m pytest -m faults

mutants: setup ## break step, stores and sinks in one place at a time: which test notices? (an hour; goes on where it was)
	@$(BIN)/python scripts/mutants.py --write

bench: setup ## measure; some cases by name: make bench CASES="json start"
	@$(BIN)/python bench/run.py $(CASES)

bench-scale: setup ## measure what grows: rows, cores, partitions, jobs in a loop, memory (half an hour; CASES as above)
	@$(BIN)/python bench/run.py --scale $(CASES)

bench-peers: setup ## measure beside onETL, dlt, streamz and watermill, each in an environment of its own
	@$(BIN)/python bench/run.py --peers $(CASES)

dist: setup ## build wheel and sdist into dist/
	@$(BIN)/python -m build --no-isolation

lock: setup ## resolve requirements.lock anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --upgrade \
		--extra kafka --extra postgres --extra web --extra dev \
		--no-header --no-annotate --no-emit-index-url pyproject.toml -o requirements.lock

clean: ## remove what was built; .venv and the cache folder stay
	@rm -rf dist build .audit .mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis .demo .demo-platform
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
