#!/usr/bin/env bash
# Builds and runs the images: `make image-test`. See docs/containers.md.
#
# Needs root on Debian or Ubuntu and access to Debian's and pip's packages, but neither an image registry nor Docker:
# debootstrap makes the base, buildah the images, and podman runs them. The base is kept in
# $XDG_CACHE_HOME/mobile-sam-triton/image-test (120 MB), images and layers in podman's storage (4 GB).
set -euo pipefail

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
KEPT=${XDG_CACHE_HOME:-$HOME/.cache}/mobile-sam-triton/image-test
WORK=$(mktemp -d)
BASE=localhost/mobile-sam-triton-base:12
IMAGE=localhost/mobile-sam-triton:cpu
BENTO_BASE=localhost/mobile-sam-triton-bento-base:12
BENTO_IMAGE=localhost/mobile-sam-triton-bento:test
PICTURE=$ROOT/utils/page/static/samples/balloons.jpg
PORT=${PORT:-3950}
# chroot isolation also works inside most containers.
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
export BENTOML_DO_NOT_TRACK=True BENTOML_HOME=$WORK/bentoml
NAME=

pod() {
    # crun fails on machines with both cgroup versions. The hidden errors say that no systemd runs the health check
    # periodically; this script runs it instead.
    podman --runtime runc --log-level fatal "$@"
}

fail() {
    echo "error: $*" >&2
    exit 1
}

clean_up() {
    if [ -n "$NAME" ]; then
        pod logs "$NAME" 2>&1 | tail -40 >&2 || true
        pod rm --force --time 5 --volumes "$NAME" >/dev/null || true
    fi
    rm -rf "$WORK"
}
trap clean_up EXIT

say() {
    printf '\n== %s (%s s)\n' "$*" "$SECONDS"
}

need() {
    [ "$(id -u)" = 0 ] || fail "must run as root: debootstrap makes a root file system"
    local missing=()
    for program in debootstrap buildah podman runc; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ ${#missing[@]} = 0 ] || fail "not installed: ${missing[*]}; apt-get install --no-install-recommends ${missing[*]}"
    [ -x "$PYTHON" ] || fail "$PYTHON not found: run \`make env\`"
}

make_base() {
    if buildah inspect --type image "$BASE" >/dev/null 2>&1; then
        return
    fi
    mkdir -p "$KEPT"
    if [ ! -f "$KEPT/debian.tar" ]; then
        debootstrap --variant=minbase bookworm "$WORK/debian" >"$WORK/debootstrap.log" || fail "$(tail -5 "$WORK/debootstrap.log")"
        rm -rf "$WORK"/debian/var/cache/apt/archives/*.deb "$WORK"/debian/var/lib/apt/lists/*
        tar --create --numeric-owner --directory "$WORK/debian" --file "$KEPT/debian.tar.new" .
        mv "$KEPT/debian.tar.new" "$KEPT/debian.tar"
        rm -rf "$WORK/debian"
    fi
    local container
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$KEPT/debian.tar" / >/dev/null
    buildah config --cmd bash "$container"
    buildah commit --quiet --rm "$container" "$BASE" >/dev/null
}

build_image() {
    local before
    before=$(buildah images --quiet "$IMAGE" 2>/dev/null || true)
    # The OCI format has no health check.
    buildah build --format docker --layers --tag "$IMAGE" \
        --build-arg HARDWARE=cpu --build-arg CPU_BASE="$BASE" --build-arg WEIGHTS=builtin \
        --secret id=pip,src="$WORK/pip.conf" --secret id=ca,src="$WORK/ca.crt" "$ROOT" \
        >"$WORK/build.log" 2>&1 || fail "$(tail -30 "$WORK/build.log")"
    if [ -n "$before" ] && [ "$before" != "$(buildah images --quiet "$IMAGE")" ]; then
        buildah rmi "$before" >/dev/null
    fi
}

start() { # IMAGE NETWORK OPTION...
    local image=$1 network=$2
    shift 2
    NAME=mobile-sam-image-test-$$
    # Set limits explicitly: raising them, as podman does by default, is not allowed everywhere.
    pod run --detach --name "$NAME" --network "$network" --cap-drop all --security-opt no-new-privileges \
        --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
        --env BENTOML_HOST=127.0.0.1 --env "BENTOML_PORT=$PORT" "$@" "$image" >/dev/null
}

ask() {
    PYTHONPATH=$ROOT/client "$PYTHON" "$ROOT/deploy/image/ask.py" "http://127.0.0.1:$PORT" "$PICTURE" 903 310
}

healthy() {
    pod healthcheck run "$NAME" >/dev/null 2>&1
}

logged() { # WORDS
    local began=$SECONDS
    until pod logs "$NAME" 2>&1 | grep --quiet "$1"; do
        [ $((SECONDS - began)) -lt 30 ] || fail "'$1' is not in the log"
        sleep 0.5
    done
}

in_container() { # PYTHON-PROGRAM
    pod exec "$NAME" python -c "$1"
}

stop() { # prints the duration
    local began=$SECONDS status
    pod stop --time 45 "$NAME" >/dev/null
    status=$(pod inspect --format '{{.State.ExitCode}}' "$NAME")
    [ "$status" = 0 ] || fail "exit status $status after SIGTERM, expected 0"
    echo "exit status 0, $((SECONDS - began)) s after SIGTERM"
    forget
}

forget() {
    pod rm --force --volumes "$NAME" >/dev/null
    NAME=
}

no_zombies() {
    in_container "
import pathlib, sys, time
def dead(): return [p.parent.name for p in pathlib.Path('/proc').glob('[0-9]*/stat') if ') Z ' in p.read_text()]
end = time.time() + 10
while dead() and time.time() < end: time.sleep(0.5)
sys.exit(f'zombies were not reaped: {dead()}' if dead() else 0)"
}

kill_triton() { # simulates a crash: process 1 inherits its Python processes
    in_container "
import os, pathlib, signal
for entry in pathlib.Path('/proc').glob('[0-9]*/exe'):
    try: program = os.readlink(entry)
    except OSError: continue
    if program.endswith('/tritonserver'): os.kill(int(entry.parent.name), signal.SIGKILL); print('killed', program)"
}

run_by_buildah() { # IMAGE
    local container command server
    container=$(buildah from "$1")
    mapfile -t command < <(buildah inspect --type image \
        --format '{{range .OCIv1.Config.Entrypoint}}{{println .}}{{end}}{{range .OCIv1.Config.Cmd}}{{println .}}{{end}}' "$1" | sed '/^$/d')
    # Its own session, so that the whole process group can be killed: buildah forwards no signals.
    setsid buildah run --isolation chroot --env "BENTOML_PORT=$PORT" --env BENTOML_HOST=127.0.0.1 \
        --env BENTOML_HOME=/tmp/bentoml --env MOBILE_SAM_CACHE_DIR=/tmp/cache "$container" -- "${command[@]}" >"$WORK/run.log" 2>&1 &
    server=$!
    ask || { kill -KILL -- "-$server"; fail "$(tail -30 "$WORK/run.log")"; }
    kill -TERM -- "-$server"
    wait "$server" || true
    buildah rm "$container" >/dev/null
}

need
(cd "$ROOT" && "$PYTHON" -m tools.pip_config "$WORK")

say "Debian 12 base"
make_base
say "image"
build_image
pod history --format '{{.Size}}\t{{.CreatedBy}}' "$IMAGE" | grep -v '^0 B' | cut -c1-100
pod image inspect --format '{{.Size}} bytes in total' "$IMAGE"

say "read-only root, the image's user, the service as process 1"
start "$IMAGE" host --read-only --tmpfs /tmp:size=64m --shm-size 512m
ask
[ "$(pod exec "$NAME" id --user)" = 10001 ] || fail "expected user 10001"
healthy || fail "the health check fails although the service is ready"
kill_triton
logged 'restarting Triton: '
ask
no_zombies
stop

say "arbitrary user, no network"
began=$SECONDS
start "$IMAGE" none --read-only --tmpfs /tmp:size=64m --shm-size 512m --user 23456:0
until healthy; do
    [ $((SECONDS - began)) -lt 90 ] || fail "not ready after 90 s"
    sleep 1
done
stop

say "default size of shared memory"
start "$IMAGE" host --read-only --tmpfs /tmp:size=64m
[ "$(pod wait "$NAME")" = 1 ] || fail "expected status 1"
pod logs "$NAME" 2>&1 | grep -e 'shm-size' || fail "--shm-size is not in the log"
forget

say "Bento"
mkdir "$WORK/project"
tar --create --directory "$ROOT" --exclude __pycache__ service.py README.md LICENSE bentofile.yaml requirements orchestrator utils triton_backends \
    model_repository | tar --extract --directory "$WORK/project"
# Replaces BentoML's base python:3.11-slim, with a Python environment in /usr/local.
buildah build --layers --tag "$BENTO_BASE" --volume "$WORK:/mnt:ro" --file - "$WORK" >"$WORK/build.log" 2>&1 <<END || fail "$(tail -30 "$WORK/build.log")"
FROM $BASE
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates libpython3.11 python3-venv
RUN python3 -m venv /usr/local
RUN cp /mnt/pip.conf /etc/pip.conf && mkdir -p /etc/uv /run/secrets \
 && cp /mnt/ca.crt /etc/ssl/certs/ca-certificates.crt && cp /mnt/ca.crt /run/secrets/ca.crt && echo 'native-tls = true' >/etc/uv/uv.toml
END
(
    cd "$WORK/project"
    "$PYTHON" - "$BENTO_BASE" <<'END'
import sys, pathlib, yaml
file = pathlib.Path("bentofile.yaml")
options = yaml.safe_load(file.read_text())
docker = options.setdefault("docker", {})
docker.pop("distro", None)
docker["base_image"] = sys.argv[1]
file.write_text(yaml.safe_dump(options))
END
    "$(dirname "$PYTHON")/bentoml" build >"$WORK/build.log" 2>&1 || fail "$(tail -30 "$WORK/build.log")"
    "$(dirname "$PYTHON")/bentoml" containerize mobile_sam:latest --backend buildah --image-tag "$BENTO_IMAGE" \
        >"$WORK/build.log" 2>&1 || fail "$(tail -30 "$WORK/build.log")"
)
pod image inspect --format '{{.Size}} bytes in total' "$BENTO_IMAGE" || fail "$(tail -30 "$WORK/build.log")"
say "Bento image"
start "$BENTO_IMAGE" host --read-only --tmpfs /tmp --shm-size 512m --env BENTOML_HOME=/tmp/bentoml --env MOBILE_SAM_CACHE_DIR=/tmp/cache
ask
stop
say "Bento image in buildah, without a container runtime"
run_by_buildah "$BENTO_IMAGE"
pod rmi "$BENTO_IMAGE" >/dev/null
say "passed"
