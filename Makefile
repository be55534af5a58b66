# What a person or CI asks of this project. `make help` lists it.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/ready
SPARK  := .venv/spark
PYTEST := $(BIN)/pytest
DIR    ?= milena-data
SEED   ?=
ORDER  ?= 1
ENGINE ?= .cache/containers
ARGS   ?=
CHAOS   = $(if $(SHORT),60,$(or $(SECONDS),300))
TESTS  = $(PYTEST) tests -q --randomly-seed=$(ORDER) --ignore=tests/architecture --ignore=tests/oracle --ignore=tests/chaos --ignore=tests/containers --ignore=tests/pipeline \
         $(ARGS)

.PHONY: help setup up down check declarations format test test-alone test-fast test-compiled test-pure coverage sim soak explore powerloss sequences oracle spark pipeline chaos chaos-containers attack mutants endurance nightly bench docs wheel \
  release-check compiled image image-base containers engine-down clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-14s %s\n' "$$name" "$$text"; done

setup: $(READY) ## make .venv with the command at .venv/bin/milena

$(READY): pyproject.toml .ci/make_venv.py
	@$(PYTHON) .ci/make_venv.py .venv >&2
	@echo "Installing into .venv (about a minute)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' >&2
	@$(BIN)/python -m compileall -q milena  # the first start is quick too
	@touch $(READY)

up: $(READY) ## run one controller and three brokers (9092, 9093, 9094) in the foreground; ARGS="..." for options
	@exec $(BIN)/milena up --dir $(DIR) $(ARGS)

down: $(READY) ## stop what `make up` runs
	@exec $(BIN)/milena down --dir $(DIR)

check: $(READY) ## format, lint, strict types, import rules, sizes
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(PYTEST) tests/architecture -q

declarations: $(READY) ## renew milena/protocol/apis, what type checkers know of requests and responses
	@$(BIN)/python -m milena.protocol.schemas.declarations

format: $(READY) ## format and mend what ruff can
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

test: check ## check, then (about 20 minutes on two cores) unit, contract, simulation and wire tests; ORDER=default for another order of the tests
	@$(TESTS)

test-fast: $(READY) ## unit and contract tests alone, about 90 seconds: for the change at hand
	@$(PYTEST) tests/architecture tests/unit tests/contract -q --randomly-seed=$(ORDER) $(ARGS)

test-compiled: check compiled ## all of `make test` on the compiled form (needs a C compiler)
	@MILENA_PURE=0 $(TESTS)

test-alone: $(READY) ## the tests of `make test` without its checks, on the form that MILENA_PURE names
	@$(TESTS)

test-pure: compiled ## what belongs to test-compiled: unit and contract tests on the pure form, and 50 seeds on both, whose digests must be equal (SHORT=1: 15)
	@MILENA_PURE=1 $(PYTEST) tests/unit tests/contract tests/simulation/test_slow_processor.py -q --randomly-seed=$(ORDER) $(ARGS)
	@MILENA_SEEDS_OF_BOTH_FORMS=$(if $(SHORT),15,50) $(PYTEST) tests/simulation/test_both_forms.py -q

coverage: $(READY) ## branches that the unit, contract and simulation tests reach, by module, and what they miss
	@$(BIN)/python -m coverage run -m pytest tests/unit tests/contract tests/simulation -q --randomly-seed=$(ORDER) --deselect \
	  tests/simulation/test_seeded_cluster.py::test_promises_are_kept $(ARGS)
	@$(BIN)/python -m coverage report

sim: $(READY) ## the simulated cluster with one seed, and its trace: make sim SEED=7
	@$(BIN)/milena sim --seed $(or $(SEED),0) $(ARGS)

soak: $(READY) ## random seeds for a given time: make soak SECONDS=60
	@$(BIN)/milena sim --soak $(or $(SECONDS),60) $(ARGS)

explore: $(READY) ## property tests with random examples, TIMES=20 as many as in make test; ARGS="FILE -k NAME"
	@MILENA_EXPLORE=$(or $(TIMES),20) $(PYTEST) -q -m hypothesis --timeout=0 $(or $(ARGS),tests/unit tests/contract)

powerloss: $(READY) ## the power goes right before TIMES=5 calls of each operation on each kind of file, at random
	@MILENA_EXPLORE=$(or $(TIMES),5) $(PYTEST) -q --timeout=0 tests/simulation/test_power_matrix.py $(ARGS)

sequences: $(READY) ## random requests beside Kafka (needs Java and Maven): make sequences SEED=random SEQUENCES=5000 (or SCRIPT=FILE)
	@MILENA_SEED=$(or $(SEED),random) MILENA_SEQUENCES=$(or $(SEQUENCES),1000) MILENA_SCRIPT=$(SCRIPT) \
	  $(PYTEST) tests/oracle/differential/sequences -q -rs $(ARGS)

oracle: $(READY) ## Kafka's own tools and clients against Milena (needs Java and Maven; SHORT=1: 2,000 records each); SEED=random SEQUENCES=N
	@MILENA_RECORDS=$(if $(SHORT),2000,100000) MILENA_SEED=$(SEED) MILENA_SEQUENCES=$(or $(SEQUENCES),$(if $(SHORT),150,1000)) \
	  $(PYTEST) tests/oracle -q -rs $(ARGS)

chaos: $(READY) ## clients work while nodes of a cluster are killed, cut off and wiped, and a verdict: make chaos SEED=7 SECONDS=600 ON=processes (SHORT=1: a minute each)
	@$(BIN)/python -m tests.chaos --on $(or $(ON),processes) --seed $(or $(SEED),1) --seconds $(CHAOS) $(ARGS)
	@$(BIN)/python -m tests.chaos --on $(or $(ON),processes) --seed $(or $(SEED),1) --seconds $(CHAOS) --unsafe $(ARGS)
	@MILENA_CHAOS_SECONDS=$(if $(SHORT),20,60) $(PYTEST) tests/chaos -q
	@MILENA_RECORDS=$(if $(SHORT),5000,100000) $(PYTEST) tests/wire -q -m kill

chaos-containers: $(READY) ## the same in containers, with safe settings, after `make image` or `make containers` (SHORT=1: a minute)
	@address=$$($(BIN)/python .ci/containers.py base $(ENGINE)) || { test $$? = 3 && exit 0; exit 1; }; \
	  DOCKER_HOST=$$address $(BIN)/python -m tests.chaos --on containers --seed $(or $(SEED),1) --seconds $(CHAOS) $(ARGS)

spark: $(SPARK) ## install the extras spark and report, and moto's server with s3fs for a tier in a store like S3

$(SPARK): $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark,report]' >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'moto[server]>=5' 's3fs>=2024.6' >&2 || echo "without moto: no test of a tier in S3" >&2
	@touch $(SPARK)

pipeline: ## Spark: `make spark`, then tests the source, the sink and the jobs (7 minutes and more; needs a JDK 17 or 21)
	@if ! command -v java >/dev/null && [ -z "$$JAVA_HOME" ]; then echo "skipped: Spark needs a JDK, and there is none: install JDK 17 or 21"; else \
	  $(MAKE) --no-print-directory spark && $(PYTEST) tests/pipeline -q -rs $(ARGS); fi

attack: $(READY) ## mutated frames, resource abuse, hostile peers: make attack FRAMES=1000000 (SHORT=1: 20,000 frames)
	@SHORT=$(SHORT) $(BIN)/python -m tests.attack $(if $(FRAMES),--frames $(FRAMES)) $(ARGS)

mutants: $(READY) ## change the modules that decide, place by place, and see a test fail (SHORT=1: a sample): make mutants ARGS="--only lineage"
	@MILENA_PURE=1 SHORT=$(SHORT) nice -n 12 $(BIN)/python -m tests.mutants $(ARGS)

endurance: $(READY) ## mixed load on three brokers, memory and descriptors sampled: make endurance MINUTES=60
	@$(BIN)/python -m tests.endurance --minutes $(or $(MINUTES),60) $(ARGS)

nightly: ## what .ci/run has no time for: make test on the pure form, and the other suites in their long forms (hours)
	@$(MAKE) test
	@$(MAKE) test-compiled test-pure
	@MILENA_PURE=0 $(MAKE) oracle soak chaos attack SECONDS=1800
	@$(MAKE) explore powerloss mutants bench
	@$(MAKE) endurance

docs: $(READY) ## build the documentation site in build/site; broken links are errors
	@$(BIN)/python -c 'import mkdocs, material, mkdocstrings_handlers.python' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,docs]' >&2
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

bench: $(READY) ## figures of both forms beside Kafka 4.3.1 and kfake where these are there (SHORT=1: less work)
	@if command -v $${CC:-cc} >/dev/null; then MILENA_PURE=1 $(BIN)/python -m compiling.build; \
	  else echo "without a C compiler there is no column of the compiled form" >&2; fi
	@SHORT=$(SHORT) $(BIN)/python -m benchmarks $(ARGS)

compiled: $(READY) ## the compiled form in build/compiled (needs a C compiler, about two minutes); MILENA_PURE=0 uses it
	@MILENA_PURE=1 $(BIN)/python -m compiling.build

wheel: $(READY) ## build the sdist, the pure wheel and the compiled one for this platform into dist/ (needs a C compiler, about two minutes)
	@$(BIN)/python -m compiling.wheels dist >&2

release-check: $(READY) ## the same, check their metadata, run a cluster from each wheel; nothing is uploaded
	@$(BIN)/python .ci/release_check.py $(ARGS)

image: $(READY) ## the container image milena-kafka where no image can be pulled (Debian's packages; needs root): docker build . elsewhere
	@$(BIN)/python .ci/containers.py image $(ENGINE)

image-base: $(READY) ## its base alone, milena-base; starts an engine in ENGINE=.cache/containers if none answers
	@$(BIN)/python .ci/containers.py base $(ENGINE)

containers: $(READY) ## the image and the compose file in containers; makes the images anew, and says why where it cannot (needs root)
	@address=$$($(BIN)/python .ci/containers.py tests $(ENGINE)) || { test $$? = 3 && exit 0; exit 1; }; \
	  DOCKER_HOST=$$address $(PYTEST) tests/containers -q -rs $(ARGS)

engine-down: $(READY) ## end the engine that `make image` or `make image-base` has started
	@$(BIN)/python .ci/containers.py stop $(ENGINE)

clean: ## remove what the tools left
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
