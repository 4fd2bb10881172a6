# Every target first sets up what it needs and skips what is done (daemon/setup); the first run takes minutes,
# later ones start at once and need no network.
#   PYTHON=/path/to/python   the interpreter to set up with       ARGS="…"   passed on to the command
# Index, proxy and certificate settings of pip (PIP_INDEX_URL, HTTPS_PROXY, …) are taken from the environment.

.DEFAULT_GOAL := help
.PHONY: help setup serve audio speech chat test test-system test-long bench lint lint-fleet format native reference image lock clean

SETUP := sh daemon/setup/run
BIN := .venv/bin
ARGS ?=

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup:  ## Set up everything that serve needs, without serving
	@$(SETUP) serve

serve:  ## Serve SmolLM2-135M-Instruct on http://127.0.0.1:8000 in the foreground
	@$(SETUP) serve && exec $(BIN)/edgellm serve $(ARGS)

audio:  ## Set up speech recognition: the audio extra and the model whisper-tiny.en
	@$(SETUP) audio

speech:  ## Set up speech: the speech extra (Piper, GPL-3) and a voice
	@$(SETUP) speech

chat:  ## Talk to the server that make serve started
	@$(SETUP) native && exec $(BIN)/edgellm chat $(ARGS)

test:  ## Unit, native, contract and HTTP tests (no root)
	@$(SETUP) test && exec $(BIN)/python -m pytest -m "not long and not system" -n 2 --dist loadfile $(ARGS)

test-system:  ## Units and the service on devices with a systemd of their own (root, Debian or Ubuntu)
	@$(SETUP) fleet && exec $(BIN)/python -m pytest -m system $(ARGS)

test-long:  ## Soak, fuzz, sanitizers, arm64 emulation, fresh machine (root for some; each says what it skips)
	@$(SETUP) test && exec $(BIN)/python -m pytest -m long $(ARGS)

bench:  ## Ratios against llama.cpp, side by side in one run
	@$(SETUP) bench && exec $(BIN)/python -m tests.bench $(ARGS)

lint:  ## ruff, mypy and the import contracts
	@$(SETUP) lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports pyproject.toml

lint-fleet:  ## ansible-lint over the collection in ansible/
	@$(SETUP) fleet
	@mkdir -p build/collections/ansible_collections/edgellm
	@ln -sfn $(CURDIR)/ansible build/collections/ansible_collections/edgellm/appliance
	@cd ansible && PATH=$(CURDIR)/$(BIN):$$PATH ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/build/collections ansible-lint $(ARGS)

format:  ## Format the Python code and mend what ruff can mend
	@$(SETUP) lint
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

native:  ## Build the C++ runtime where its sources changed
	@$(SETUP) native

reference:  ## Write daemon/reference/*.md anew from the code
	@$(SETUP) native && $(BIN)/python -m edgellm.cli.reference daemon/reference

image:  ## Build the container image with podman or buildah (image/README.md; ARGS="--base IMAGE")
	@python3 image/build-container $(ARGS)

lock:  ## Resolve .ci/requirements.lock anew for all supported Pythons
	@$(SETUP) lock
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --extra audio --extra speech --no-header --no-emit-index-url --quiet \
	  --group build --group client --group lint --group test --group clients --group bench --group fleet --group sbom --group lock --upgrade \
	  --output-file .ci/requirements.lock $(ARGS)

clean:  ## Remove the environment, builds and caches (models stay)
	rm -rf .venv .venv.log build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find daemon tests -name __pycache__ -type d -prune -exec rm -rf {} +
