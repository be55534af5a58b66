# What a person or CI asks of this project. `make help` lists it.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/ready
SPARK  := .venv/spark
DIR    ?= milena-data
ORDER  ?= 1
FORM   ?= compiled
IMAGE  ?= milena-kafka
ARGS   ?=

.PHONY: help setup up down check format test test-all oracle spark bench compiled wheel image docs
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do printf '%-17s %s\n' "$$name" "$$text"; done

setup: $(READY) ## make .venv with the command at .venv/bin/milena

$(READY): pyproject.toml .ci/make_venv.py
	@$(PYTHON) .ci/make_venv.py .venv >&2
	@echo "Installing into .venv (about a minute)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' >&2
	@$(BIN)/python -m compileall -q milena  # so that the first start is quick
	@touch $(READY)

up: $(READY) ## run one controller and three brokers (9092, 9093, 9094) in the foreground; ARGS="..." for options
	@exec $(BIN)/milena up --dir $(DIR) $(ARGS)

down: $(READY) ## stop what `make up` runs
	@exec $(BIN)/milena down --dir $(DIR)

check: $(READY) ## format, lint, strict types, import layers, sizes, documentation
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/architecture -q

format: $(READY) ## format, fix what ruff can fix, and generate the types of all requests and responses
	@$(BIN)/python -m milena.protocol.schemas.declarations
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

test: $(READY) ## checks, unit, contract, simulation and wire tests on all cores; ARGS="..." for pytest, ORDER=N for another order
	@ORDER=$(ORDER) $(BIN)/python -m tests.run.everyday $(ARGS)

test-all: $(READY) ## everything that make test leaves out (hours); SHORT=1 samples, ONLY="oracle chaos" selects suites, SAMPLE=TEXT repeats
	@ORDER=$(ORDER) $(BIN)/python -m tests.run $(ONLY) $(if $(SHORT),--short) $(if $(SAMPLE),--sample '$(SAMPLE)') \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

oracle: ## Kafka's own tools, brokers and clients against Milena (needs Java and Maven; SHORT=1: fewer records)
	@$(MAKE) --no-print-directory test-all ONLY=oracle

spark: $(SPARK) ## install the extra spark, and moto's server with s3fs for a tier in a store like S3

$(SPARK): $(READY)
	@$(BIN)/python .ci/spark.py >&2
	@touch $(SPARK)

bench: $(READY) ## figures beside Apache Kafka and kfake where these are there (SHORT=1: less work)
	@if command -v $${CC:-cc} >/dev/null; then MILENA_PURE=1 $(BIN)/python -m compiling.build; \
	  else echo "without a C compiler there is no column of the compiled form" >&2; fi
	@SHORT=$(SHORT) $(BIN)/python -m benchmarks $(ARGS)

compiled: $(READY) ## build the compiled form in build/compiled (needs a C compiler, about two minutes); MILENA_PURE=0 uses it
	@MILENA_PURE=1 $(BIN)/python -m compiling.build

wheel: $(READY) ## build the sdist and both wheels into dist/, check them, and run a cluster from each (needs a C compiler)
	@$(BIN)/python .ci/release_check.py $(ARGS)

image: ## build the image milena-kafka with Docker; FORM=pure needs no C compiler, EXTRAS=s3 adds a tier in an object store
	@docker build --build-arg FORM=$(FORM) --build-arg EXTRAS=$(EXTRAS) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null) --tag $(IMAGE) .

docs: $(READY) ## build the documentation site in build/site; broken links are errors
	@$(BIN)/python -c 'import mkdocs, material, mkdocstrings_handlers.python' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,docs]' >&2
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"
