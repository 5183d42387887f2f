# One word for everything. `make demo` and `make test` set up what they need on a machine with Python 3.11+, git, gcc, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where pip looks for PyTorch's CPU wheel when it does not find one otherwise: PyTorch's own "CPU" wheel index.
TORCH_CPU_INDEX ?=
# Tests that mostly wait run so many at once.
SIDE_BY_SIDE ?= 4
# vLLM's runner for GPUs is made of Triton kernels. Its tests run on a CPU through Triton's interpreter, which needs a
# Triton that the CPU environment does not have (290 MB; 1 GB on disk), in a folder that no other test sees.
TRITON := triton==3.9.0
ON_V2 := PYTHONPATH=$(CURDIR)/tests/v2_on_cpu/shim:$(CURDIR)/$(VENV)/triton TRITON_INTERPRET=1 VLLM_USE_V2_MODEL_RUNNER=1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-full test-gpu chaos lint format bench bench-fleet bench-producer schema lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## create .venv and install everything, pinned

$(VENV)/.installed: requirements.lock pyproject.toml ops/install.sh
	PYTHON="$(PYTHON)" TORCH_CPU_INDEX="$(TORCH_CPU_INDEX)" ops/install.sh $(VENV)
	@touch $@

demo: install ## answer 16 real prompts with a real model, through Redis and a worker
	@$(BIN)/python ops/demo.py

$(VENV)/.triton: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/triton $(TRITON)
	@touch $@

test: install $(VENV)/.triton ## unit, integration and acceptance tests (three quarters of an hour on 2 cores)
	$(BIN)/pytest -m "not full and not cores" -n $(SIDE_BY_SIDE) --dist worksteal
	$(BIN)/pytest -m "not full and cores"
	$(ON_V2) $(BIN)/pytest -m "not full" tests/v2_on_cpu

test-full: install $(VENV)/.triton ## everything, the long ones too
	$(BIN)/pytest -m "not cores" -n $(SIDE_BY_SIDE) --dist worksteal
	$(BIN)/pytest -m cores
	$(ON_V2) $(BIN)/pytest tests/v2_on_cpu

# No `install`: that is for CPUs. Whatever Python is here brings its own PyTorch, and vLLM if it has it.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

test-gpu: ## on a machine with GPUs: messages and streams, then the engine where vLLM's CUDA build is (under 16 minutes)
	@$(GPU_PYTHON) tests/gpu/tier_a.py --report gpu-tier-a.json; code=$$?; [ $$code != 2 ] || exit 2; \
	$(GPU_PYTHON) tests/gpu/tier_b.py --if-installed --report gpu-tier-b.json && exit $$code

chaos: install ## 100,000 rows through over 200 faults, then the real engine killed; prints the audit (under 25 minutes)
	PYTHONPATH=tests $(BIN)/python -m chaos.storm
	PYTHONPATH=tests $(BIN)/python -m chaos.storm.real

lint: install ## formatting, lint rules and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install ## rewrite the code as ruff likes it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## plain decoding, speculation and two batches side by side, with the embedded pair
	$(BIN)/worker bench --scenarios "ar,sd(m),sd(2m),psd(2m)"

bench-fleet: install ## 32 workers without a model on one Redis: rows and commands a second
	$(BIN)/python ops/bench_fleet.py

bench-producer: install ## a million rows submitted and fetched: seconds, memory, and the limits of both (2 GB of disk)
	$(BIN)/python ops/bench_producer.py

schema: install ## what rows may ask for, from vLLM's classes (after another vLLM): producer/intake/request_schema.json
	$(BIN)/python -m worker.engine.request_schema

lock: ## resolve the newest versions that pyproject.toml allows into requirements.lock (then run the tests)
	ops/lock.sh > requirements.lock.new && mv requirements.lock.new requirements.lock

clean: ## remove what make created here (the model cache and the embedded Redis's data stay)
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache
