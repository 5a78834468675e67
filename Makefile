# The same verbs for people and CI. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Runs a program under tests/, which imports tests/support and simulation; pytest has the same path in pyproject.toml.
PROGRAM := PYTHONPATH=$(CURDIR):$(CURDIR)/tests:$$PYTHONPATH $(BIN)/python
COMPILED_PATH = $(shell $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/00-penstock-compiled.pth
DATA_DIR ?= data
PORT ?= 9092
HTTP_PORT ?= 8080
ARGS ?=
CYCLES ?= 200
MESSAGES ?= 100000
KILLS ?= 30
BROKERS ?= 1
SEEDS ?= 1000
# Tests wait for processes, timers and disks half of the time: more of them than cores run at once.
WORKERS ?= 3
SELECTION = --draw-by-commit
EXAMPLES = --hypothesis-profile fixed
# Tests and seeds start hundreds of processes: without cached bytecode each of them compiles the sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run demo compile pure test test-all test-compiled compare-builds test-fast lint format bench test-cluster clients faults pipeline-crashes kill-cycles queue-cycles rule-cycles count-cycles rolling-restarts copy-cycles job-cycles storages pipeline-cycles spark-cluster simulate mutants authorizer-oracle fuzz screenshots console-figures vulnerabilities bill-of-materials lock clean
.DEFAULT_GOAL := help

help:  ## Show these verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */\1\t/' | expand -t 16

# The extensions in C are built by the installation: an older one beside newer sources would give wrong results.
$(VENV)/.broker: requirements/broker.txt pyproject.toml setup.py $(wildcard src/penstock/*/*.c src/penstock/*/*.h)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/broker.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.broker requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	touch $@

setup: $(VENV)/.dev  ## Install everything for development into .venv

run: $(VENV)/.broker  ## Start a broker with its data in ./data (PORT, HTTP_PORT, DATA_DIR, ARGS)
	$(BIN)/penstock broker --data-dir $(DATA_DIR) --port $(PORT) --http-port $(HTTP_PORT) $(ARGS)

demo: $(VENV)/.dev  ## Run the tour of the README: topics, a queue, HTTP, the pipeline and a cluster of three brokers
	$(PROGRAM) tests/docs/demo.py

$(VENV)/.compile: $(VENV)/.broker requirements/compile.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/compile.txt
	touch $@

# build/compiled is a copy of the sources with the compiled modules beside them; the .pth file puts it before the
# checkout. The digest of the sources comes first: a source that changes during the build makes the copy stale.
compile: $(VENV)/.compile  ## Compile the hot modules with mypyc for this environment; needs a C compiler, see docs/operating.md
	rm -f $(COMPILED_PATH)
	mkdir -p build/compiled/penstock
	find build/compiled -name '*.py' -delete
	PYTHONPATH=src $(BIN)/python -c "from penstock.build import write_record; write_record('build/compiled/penstock', 'src/penstock')"
	PENSTOCK_COMPILE=1 $(BIN)/python setup.py --quiet build_py --build-lib build/compiled build_ext --build-lib build/compiled --parallel 2
	echo $(CURDIR)/build/compiled > $(COMPILED_PATH)

pure:  ## Remove the compiled modules from this environment
	rm -rf $(COMPILED_PATH) build/compiled

# A failed test that starts processes runs once more, alone, since processes on a busy machine are late at times; the
# tests that needed it are listed. Tests that judge data or start no process do not run again. Logs of first failures
# stay in build/test-failures.
test: $(VENV)/.dev  ## Run the tests, of some large families a fifth that depends on the commit (TESTS: some of them)
	rm -rf build/test-failures
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cache-clear --first-failures=build/test-failures $(SELECTION) $(EXAMPLES) $(TESTS) $(ARGS) || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --second-run-of=build/test-failures $(EXAMPLES)

test-all: SELECTION =
test-all: EXAMPLES =
test-all: test  ## Run all tests, property tests with new examples

test-compiled: SELECTION =
test-compiled: EXAMPLES =
test-compiled: compile test  ## Run all tests on the compiled build (TESTS: some of them); `make pure` removes it

compare-builds: compile $(VENV)/.dev  ## Run seeds on the pure and the compiled build, whose traces must be the same (ARGS: number of seeds)
	$(BIN)/python -m simulation.builds $(ARGS)

# Brokers wait for disks most of the time in these tests: their files are in memory where 3 GB of it are free.
test-fast: $(VENV)/.dev  ## Run the tests that start no processes, with few examples of each property, in a minute
	free=$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1); \
	files=$$(mktemp -d $$([ "$${free:-0}" -gt 3000000 ] && echo --tmpdir=/dev/shm)) && trap 'rm -rf "$$files"' EXIT && \
	$(BIN)/python -m pytest -n 4 --dist worksteal --basetemp="$$files/tests" -m "not process and not slow" --hypothesis-profile fast --draw-by-commit $(ARGS)

lint: $(VENV)/.dev  ## Check format, lint, types and import layers
	$(BIN)/ruff format --check src simulation tests bench
	$(BIN)/ruff check src simulation tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## Format the code, apply lint fixes, write docs/configuration.md
	$(BIN)/ruff format src simulation tests bench
	$(BIN)/ruff check --fix src simulation tests bench
	$(BIN)/python -m penstock.config.reference > docs/configuration.md

bench: $(VENV)/.dev  ## Measure beside Apache Kafka (ARGS="--quick --only produce-1k"; see bench/README.md)
	$(BIN)/python -m bench $(ARGS)

test-cluster: $(VENV)/.dev  ## Run the client tests against a cluster of three brokers (TESTS: some of them)
	PENSTOCK_TEST_CLUSTER=3 $(BIN)/python -m pytest $(or $(TESTS),tests/clients) $(ARGS)

clients: $(VENV)/.dev  ## Run clients in Java, Go and JavaScript, Kafka Streams, Flink and Spark's Kafka connector against a cluster, if their tools are installed
	$(PROGRAM) tests/clients/other_languages/run.py $(ARGS)

faults: $(VENV)/.dev  ## Run all fault tests on clusters of real processes, ten minutes
	PENSTOCK_ALL_FAULTS=1 $(BIN)/python -m pytest tests/faults $(ARGS)

pipeline-crashes: $(VENV)/.dev  ## Kill drivers, tasks and brokers under the streaming sink for Spark, an hour; ARGS="--cases 10"
	PENSTOCK_ALL_FAULTS=1 $(BIN)/python -m pytest tests/pipeline/test_sink_deaths.py tests/pipeline/test_sink_kills.py
	$(PROGRAM) tests/pipeline/sink_kills.py $(ARGS)

kill-cycles: $(VENV)/.dev  ## kill -9 under load at random moments, CYCLES times (200), resumable; BROKERS=3 is a cluster
	$(PROGRAM) tests/faults/kill_cycles.py --cycles $(CYCLES) --brokers $(BROKERS) $(ARGS)

queue-cycles: $(VENV)/.dev  ## kill -9 brokers and consumers of a share group, CYCLES times (200), resumable; BROKERS=3 is a cluster
	$(PROGRAM) tests/faults/share_cycles.py --cycles $(CYCLES) --brokers $(BROKERS) $(ARGS)

rule-cycles: $(VENV)/.dev  ## Change access rules at a cluster CHANGES times (1000) while brokers are killed with kill -9
	$(PROGRAM) tests/faults/rule_cycles.py --changes $(or $(CHANGES),1000) $(ARGS)

count-cycles: CYCLES = 40
count-cycles: $(VENV)/.dev  ## Fewer partitions under load, with kill -9 of leaders and the controller in each phase, CYCLES times (40), resumable
	$(PROGRAM) tests/faults/count_cycles.py --cycles $(CYCLES) $(ARGS)

rolling-restarts: CYCLES = 100
rolling-restarts: $(VENV)/.dev  ## Restart the brokers of a cluster in turn under idempotent and transactional load, CYCLES times (100), resumable
	$(PROGRAM) tests/faults/rolling_restarts.py --cycles $(CYCLES) $(ARGS)

copy-cycles: $(VENV)/.dev  ## Move MESSAGES (100000) exactly once while brokers and copiers are killed, KILLS times (30)
	$(PROGRAM) tests/faults/copiers.py --messages $(MESSAGES) --kills $(KILLS) $(ARGS)

job-cycles: $(VENV)/.dev  ## Archive, replay, compact and count with a real Spark while jobs, tasks and the broker are killed (ARGS="--cycles 40")
	$(PROGRAM) tests/pipeline/job_kills.py $(ARGS)

storages: $(VENV)/.dev  ## Archive, read, replay, compact and count on local disk, HDFS and an S3 server, with kills during commits; needs Java, Maven and Go (ARGS="hdfs")
	$(PROGRAM) tests/pipeline/storages.py $(ARGS)

pipeline-cycles: $(VENV)/.dev  ## Run three declared pipelines under load with kill -9 of supervisor, driver, tasks and broker, ten minutes (ARGS="--minutes 3")
	$(PROGRAM) tests/pipeline/pipeline_cycles.py $(ARGS)

spark-cluster: $(VENV)/.dev  ## Run jobs and declared pipelines on a standalone Spark with two workers, one with a disk of its own (ARGS="--minutes 3")
	$(PROGRAM) tests/pipeline/standalone_cluster.py
	$(PROGRAM) tests/pipeline/pipeline_cycles.py --standalone $(ARGS)

spark-connector: $(VENV)/.dev  ## Compare source, archive and one-table read with Spark's own Kafka connector, row by row; needs Java and Maven
	$(PROGRAM) tests/pipeline/connector_comparison.py

simulate: $(VENV)/.dev  ## Run brokers and whole clusters in virtual time, from SEEDS seeds each (1000), resumable
	$(BIN)/python -m simulation --seeds $(SEEDS) --progress build/simulation $(ARGS)

mutants: $(VENV)/.dev  ## Plant known bugs one by one; the simulation, or a scenario, must catch each
	$(PROGRAM) tests/simulation/mutants.py $(ARGS)
	$(BIN)/python -m pytest -k is_noticed tests/simulation tests/cluster tests/server tests/security/test_planted_security_bugs.py tests/storage/test_follower_segments.py tests/replication/test_refused_truncation.py tests/queues tests/replication/test_projected_log.py tests/storage/test_planted_projections.py

authorizer-oracle: $(VENV)/.dev  ## Compare DECISIONS (10000) about access with Kafka's authorizer, from SEED (1); needs Java and Maven
	$(PROGRAM) tests/security/authorizer_oracle.py $(or $(SEED),1) $(or $(DECISIONS),10000)

fuzz: $(VENV)/.dev  ## Fuzz every parser, FUZZ_SECONDS each (60)
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) $(BIN)/python -m pytest -n 2 --timeout=0 tests/fuzz $(ARGS)

screenshots: $(VENV)/.dev  ## Take the pictures of docs/console.md (needs Chromium)
	$(PROGRAM) tests/console/screenshots.py docs/images

console-figures: $(VENV)/.dev  ## Measure the console with 10,000 topics and 1,000 groups (ARGS="--topics 1000"; needs Chromium and Playwright)
	$(PROGRAM) tests/console/console_figures.py $(ARGS)

vulnerabilities: $(VENV)/.dev  ## Look up known vulnerabilities of the pinned dependencies of a broker (needs the network)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv tool run pip-audit==2.9.0 --strict --disable-pip --require-hashes -r requirements/broker.txt

bill-of-materials: $(VENV)/.dev  ## Write build/bill-of-materials.json (CycloneDX) of the pinned dependencies of a broker
	mkdir -p build
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv tool run --from cyclonedx-bom==7.0.0 cyclonedx-py requirements requirements/broker.txt -o build/bill-of-materials.json

lock: $(VENV)/.dev  ## Pin the newest versions of all dependencies
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate pyproject.toml -o requirements/broker.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --extra cluster pyproject.toml -o requirements/cluster.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --extra pipeline pyproject.toml -o requirements/pipeline.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --extra dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-header --no-annotate --constraint requirements/dev.txt --extra compile pyproject.toml -o requirements/compile.txt

clean:  ## Remove the environment, caches and build output (not ./data)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
