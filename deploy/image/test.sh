#!/usr/bin/env bash
# Builds the images and runs them as they are meant to be run: `make image-test`. See docs/containers.md.
#
# Needs root on Debian or Ubuntu, and Debian's packages and pip's within reach, but neither a registry of images nor Docker:
# the base is made by debootstrap, the images by buildah, and podman runs them. For the next time it keeps the base in
# $XDG_CACHE_HOME/mobile-sam-triton/image-test (120 MB), and images and layers where podman has all of them (4 GB).
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
# No more of the kernel than changing the root: works inside of most other containers.
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
export BENTOML_DO_NOT_TRACK=True BENTOML_HOME=$WORK/bentoml
NAME=

pod() {
    # crun refuses machines with both kinds of control groups. The errors that are not shown say that there is no systemd to
    # ask the health check now and then; it is asked below.
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
    [ "$(id -u)" = 0 ] || fail "root is needed: debootstrap makes a root file system"
    local missing=()
    for program in debootstrap buildah podman runc; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    [ ${#missing[@]} = 0 ] || fail "not installed: ${missing[*]}; apt-get install --no-install-recommends ${missing[*]}"
    [ -x "$PYTHON" ] || fail "no $PYTHON: \`make env\` makes it"
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
    # Docker's format: the other has no health check.
    buildah build --format docker --layers --target cpu --tag "$IMAGE" \
        --build-arg CPU_BASE="$BASE" --build-arg WEIGHTS=builtin \
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
    # The limits on files and processes: podman would raise them, which needs more than some machines allow.
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
        [ $((SECONDS - began)) -lt 30 ] || fail "not a word of '$1' in the log"
        sleep 0.5
    done
}

in_container() { # PYTHON-PROGRAM
    pod exec "$NAME" python -c "$1"
}

stop() { # prints how long it took
    local began=$SECONDS status
    pod stop --time 45 "$NAME" >/dev/null
    status=$(pod inspect --format '{{.State.ExitCode}}' "$NAME")
    [ "$status" = 0 ] || fail "SIGTERM ended it with $status, expected 0"
    echo "SIGTERM ended it in $((SECONDS - began)) s, with status 0"
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
sys.exit(f'nobody reaps {dead()}' if dead() else 0)"
}

kill_triton() { # as a crash would: its Python processes are left to process 1
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
    # A session of its own, so that all of it can be ended: buildah hands on no signals.
    setsid buildah run --isolation chroot --env "BENTOML_PORT=$PORT" --env BENTOML_HOST=127.0.0.1 \
        --env BENTOML_HOME=/tmp/bentoml --env MOBILE_SAM_CACHE_DIR=/tmp/cache "$container" -- "${command[@]}" >"$WORK/run.log" 2>&1 &
    server=$!
    ask || { kill -KILL -- "-$server"; fail "$(tail -30 "$WORK/run.log")"; }
    kill -TERM -- "-$server"
    wait "$server" || true
    buildah rm "$container" >/dev/null
}

need
(cd "$ROOT" && "$PYTHON" -m deploy.image.pip_config "$WORK")

say "base of Debian 12"
make_base
say "image"
build_image
pod history --format '{{.Size}}\t{{.CreatedBy}}' "$IMAGE" | grep -v '^0 B' | cut -c1-100
pod image inspect --format '{{.Size}} bytes in all' "$IMAGE"

say "read-only root, the image's own user, first process"
start "$IMAGE" host --read-only --tmpfs /tmp:size=64m --shm-size 512m
ask
[ "$(pod exec "$NAME" id --user)" = 10001 ] || fail "expected user 10001"
healthy || fail "the health check says no, though it is ready"
kill_triton
logged 'restarting Triton: '
ask
no_zombies
stop

say "a user without a name, no network"
began=$SECONDS
start "$IMAGE" none --read-only --tmpfs /tmp:size=64m --shm-size 512m --user 23456:0
until healthy; do
    [ $((SECONDS - began)) -lt 90 ] || fail "it was not ready after 90 s"
    sleep 1
done
stop

say "shared memory of a container's default size"
start "$IMAGE" host --read-only --tmpfs /tmp:size=64m
[ "$(pod wait "$NAME")" = 1 ] || fail "expected status 1"
pod logs "$NAME" 2>&1 | grep -e 'shm-size' || fail "not a word of --shm-size in the log"
forget

say "Bento"
mkdir "$WORK/project"
tar --create --directory "$ROOT" --exclude __pycache__ service.py README.md LICENSE bentofile.yaml requirements utils triton_backends \
    model_repository | tar --extract --directory "$WORK/project"
# BentoML's own base is python:3.11-slim; this stands for it, with a Python of its own in /usr/local.
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
pod image inspect --format '{{.Size}} bytes in all' "$BENTO_IMAGE" || fail "$(tail -30 "$WORK/build.log")"
say "the Bento's image"
start "$BENTO_IMAGE" host --read-only --tmpfs /tmp --shm-size 512m --env BENTOML_HOME=/tmp/bentoml --env MOBILE_SAM_CACHE_DIR=/tmp/cache
ask
stop
say "the same by buildah, which needs no runtime"
run_by_buildah "$BENTO_IMAGE"
pod rmi "$BENTO_IMAGE" >/dev/null
say "all is well"
