# All the words to learn: make setup | serve | test | check | bench. CI calls the same ones.
PYTHON ?= python3
BIN := .venv/bin

# make serve MODEL=/path/x.gguf PORT=8081 ARGS="-c 4096 -np 4"; without MODEL the demo model
MODEL ?=
PORT ?= 8080
ARGS ?=
# make test TESTS=tests/unit ARGS="-k append"
TESTS ?= tests
JOBS ?= 2
# make faults FAULTS_S=60
FAULTS_S ?= 600

.PHONY: help setup serve test check format faults bench lock clean

help:
	@sed -n 's/^\([a-z]*\):.*## /  make \1  /p' $(MAKEFILE_LIST) | sed 's/make \([a-z]*\)  /make \1\t/'

setup: ## everything into .venv; the first time on a machine llama.cpp is compiled (minutes)
	@$(PYTHON) tools/setup.py

serve: setup ## start the platform at http://127.0.0.1:$(PORT) (MODEL=, PORT=, ARGS=)
	@exec $(BIN)/llamatape serve \
		$(if $(MODEL),-m "$(MODEL)",-m "$$($(BIN)/python tools/demo_model.py)" -a SmolLM2-135M-Instruct) \
		--port $(PORT) $(ARGS)

test: setup ## all tests (TESTS=, ARGS=, JOBS=)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(TESTS) $(ARGS)

check: setup ## ruff, pyright, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	PYTHONPATH=. $(BIN)/lint-imports --no-cache

format: setup ## let ruff repair what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

faults: setup ## kill and stop everything under load for FAULTS_S seconds (FAULTS_SEED=), then check every log
	@FAULTS_S=$(FAULTS_S) $(BIN)/python -m pytest tests/faults --timeout $$(($(FAULTS_S) + 300)) $(ARGS)

bench: setup ## CPU per token of all our processes (ARGS=)
	@$(BIN)/python -m bench $(ARGS)

lock: setup ## compile requirements.lock anew from pyproject.toml (ARGS=--upgrade)
	@$(BIN)/python tools/lock.py $(ARGS)

clean: ## remove .venv and what tools left; the cached llama.cpp wheel stays
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
