# `make serve` and `make test` install what they need; later runs skip that.

HOST ?= 127.0.0.1
PORT ?= 3000
WEIGHTS ?= auto
SHARED ?= ../shared
OBJECTS ?= $(SHARED)/quality
PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
BUILDER ?= docker
NAME ?=

# With an NVIDIA driver, the CUDA build of ONNX Runtime is installed.
HARDWARE ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
RUN := env PATH="$(abspath $(VENV))/bin:$$PATH" BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1
BIN := $(VENV)/bin

EXAMPLES := $(sort $(patsubst examples/%/service.py,%,$(wildcard examples/*/service.py)))
# Prerequisites of single examples.
text_generation_needs := env-text
bentoml_runner_needs := weights

.PHONY: serve example known-example test text-test s3-test batch-test batch-measure check audit chaos chaos-full bench bench-full bench-peers bench-page bench-estimates quality gate page-picture docs weights env env-dev env-chaos env-batch env-storage env-text env-bench env-peers bento image image-test lock clean

serve: weights ## serve on HOST:PORT
	@$(BIN)/python -m utils.environment check $(HOST) $(PORT)
	@exec $(RUN) bentoml serve service.py:svc --host $(HOST) --port $(PORT)

example: known-example env $($(NAME)_needs) ## serve one of examples/ on HOST:PORT: NAME=ensemble
	@$(if $(wildcard examples/$(NAME)/prepare.py),$(RUN) python -m examples.$(NAME).prepare)
	@$(BIN)/python -m utils.environment check $(HOST) $(PORT)
	@exec $(RUN) bentoml serve examples.$(NAME).service:svc --host $(HOST) --port $(PORT)

known-example:
	@$(if $(filter-out $(EXAMPLES),$(or $(NAME),none)),$(error NAME: expected one of $(EXAMPLES), got "$(NAME)"))

test: env-dev ## run all tests: first those without a service, on two cores, then the end-to-end tests
	@$(RUN) pytest -n 2 --dist loadfile -m "not e2e"
	@$(RUN) pytest -m e2e

check: env-dev ## run linters, formatter, type checkers and audit
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(RUN) pytest -q -m "not e2e" tests/unit/deploy
	@for model in triton_backends/*/model.py model_repository/*/1/model.py; do MYPYPATH=triton_backends/common:. $(BIN)/mypy $$model || exit 1; done
	@for code in examples/*/model_repository/*/1/model.py; do \
		MYPYPATH=$$(dirname $$code) $(BIN)/mypy $$(dirname $$code)/*.py || exit 1; done
	@$(BIN)/deno lint --quiet --config utils/page/deno.json utils/page/static
	@$(BIN)/deno check --quiet --config utils/page/deno.json utils/page/static/*.js
	@$(MAKE) --no-print-directory audit

s3-test: env-storage ## test models from S3, with a local stand-in
	@$(RUN) pytest tests/storage

text-test: env-text ## test examples/text_generation with a tiny GPT-2
	@$(RUN) pytest tests/e2e/examples/test_text_generation.py

batch-test: env-batch ## test batches on a local Ray whose workers get killed; about 5 minutes
	@$(RUN) pytest deploy/ray tests/unit/deploy/test_batch_files.py

batch-measure: env-batch weights ## measure images per second on Ray and in one process
	@$(RUN) python -m deploy.ray.measure

audit: env-dev ## look for known vulnerabilities in the locked requirements
	@$(BIN)/python -m tests.audit

chaos: env-chaos ## kill, stop, flood, fuzz and overload the service; about 25 minutes
	@$(RUN) python -m tests.chaos.run --weights builtin official

chaos-full: env-chaos ## the same for longer, with 20 minutes of soak test
	@$(RUN) python -m tests.chaos.run --weights builtin official --stops 20 --search-minutes 10 --soak-minutes 20

bench: env-bench ## compare the service with the raw model and its peers; about 3 minutes
	@$(RUN) python -m benchmarks.bench

bench-full: env-bench ## run all measurements and write them into docs/performance.md; about 10 minutes
	@$(RUN) python -m benchmarks.bench --full

bench-estimates: env ## compare the times of masks and pictures with the estimates by which requests are refused
	@$(BIN)/python -m benchmarks.estimates

bench-peers: env-bench env-peers ## compare the service with the official predictor and a server around it; writes docs/performance.md; 5 minutes
	@$(RUN) python -m benchmarks.bench_peers $(PEERS_VENV)

bench-page: env-dev weights ## measure clicks in the page until the painted mask; writes docs/performance.md; needs Chromium
	@$(RUN) python -m benchmarks.page

quality: env-dev ## measure IoU and number of clicks on OBJECTS with WEIGHTS, by default official and builtin
	@$(RUN) python -m benchmarks.quality $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

gate: env-bench ## compare masks and times of the engines on OBJECTS with WEIGHTS, by default official and builtin
	@$(RUN) python -m benchmarks.gate $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

page-picture: env-dev ## take docs/images/page.jpg from a running `make serve WEIGHTS=official`; needs Chromium
	@$(RUN) python -m tools.page_picture http://127.0.0.1:$(PORT) docs/images/page.jpg

docs: env ## generate docs/http.md from the OpenAPI document
	@$(RUN) python -m utils.api.openapi.reference docs/http.md

weights: env ## export the model files of WEIGHTS: auto, official, builtin, random or a checkpoint's path
	@$(BIN)/python -m mobile_sam_onnx --weights $(WEIGHTS) --output model_repository

bento: weights ## package the service: `bentoml serve mobile_sam:latest`
	@$(RUN) bentoml build

env:
	@$(PYTHON) -m utils.environment install $(VENV) $(HARDWARE) client

env-dev: env
	@$(PYTHON) -m utils.environment install $(VENV) dev

env-chaos: env-dev
	@$(PYTHON) -m utils.environment install $(VENV) chaos

env-batch: env-dev
	@$(PYTHON) -m utils.environment install $(VENV) batch

env-storage: env-dev
	@$(PYTHON) -m utils.environment install $(VENV) storage

env-text: env-dev
	@$(PYTHON) -m utils.environment install $(VENV) text
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0

env-bench: env
	@$(PYTHON) -m utils.environment install $(VENV) bench

env-peers:
	@$(PYTHON) -m utils.environment install $(PEERS_VENV) peers
	@$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision==0.28.0

image: ## build the container image for HARDWARE (cpu or gpu) with WEIGHTS; BUILDER is docker, podman or buildah
	@BUILDAH_FORMAT=docker $(BUILDER) build --target $(HARDWARE) --build-arg WEIGHTS=$(WEIGHTS) --tag mobile-sam-triton:$(HARDWARE) .

image-test: env weights ## build and test the images, as root on Debian; needs debootstrap, buildah, podman, runc
	@PYTHON=$(abspath $(BIN))/python deploy/image/test.sh

lock: ## lock the newest allowed versions; needs uv
	uv pip compile pyproject.toml --extra cpu --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -o requirements/cpu.txt
	uv pip compile pyproject.toml --extra gpu --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -o requirements/gpu.txt
	uv pip compile pyproject.toml --extra client --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -o requirements/client.txt
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -c requirements/client.txt -o requirements/dev.txt
	uv pip compile pyproject.toml --extra chaos --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -c requirements/dev.txt -o requirements/chaos.txt
	uv pip compile pyproject.toml --extra batch --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -c requirements/client.txt -c requirements/dev.txt -o requirements/batch.txt
	uv pip compile pyproject.toml --extra storage --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -c requirements/dev.txt -o requirements/storage.txt
	uv pip compile pyproject.toml --extra text --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -c requirements/client.txt -c requirements/dev.txt -o requirements/text.txt
	uv pip compile pyproject.toml --extra bench --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides.txt -c requirements/cpu.txt -o requirements/bench.txt
	uv pip compile --group peers --universal --python-version 3.10 --generate-hashes --no-header --override requirements/overrides-peers.txt -o requirements/peers.txt
	echo "uv>=0.13" | uv pip compile - --universal --python-version 3.10 --generate-hashes --no-header --no-annotate -o requirements/uv.txt

clean: ## remove the environment and the generated model files
	rm -rf $(VENV) $(PEERS_VENV) model_repository/*/1/model.onnx model_repository/*/1/weights.json model_repository/*/[2-9]
