#!/usr/bin/env bash
# Runs the README's commands, as committed, in an empty Debian 12 container: `make fresh-test`.
#
# Needs root on Debian, debootstrap and Docker, but no image registry: Docker is the engine of DOCKER_HOST, else one that
# this script starts and ends. Its images (120 MB) are kept in $XDG_CACHE_HOME/mobile-sam-triton/fresh-test.
set -euo pipefail

ROOT=$(cd "$(dirname "$0")/../.." && pwd)
KEPT=${XDG_CACHE_HOME:-$HOME/.cache}/mobile-sam-triton/fresh-test
WORK=$(mktemp -d)
BASE=mobile-sam-triton-fresh:12
PORT=${PORT:-3960}

clean_up() {
    docker rm --force "fresh-$$" >/dev/null 2>&1 || true
    if [ -f "$WORK/docker.pid" ]; then
        kill "$(cat "$WORK/docker.pid")"
        wait
    fi
    rm -rf "$WORK"
}
trap clean_up EXIT

if [ -z "${DOCKER_HOST:-}" ]; then
    export DOCKER_HOST=unix://$WORK/docker.sock
    dockerd --iptables=false --bridge=none --host "$DOCKER_HOST" --data-root "$KEPT/data" --exec-root "$KEPT/exec" \
        --pidfile "$WORK/docker.pid" >"$WORK/docker.log" 2>&1 &
    until docker info >/dev/null 2>&1; do
        kill -0 $! || { tail -n 5 "$WORK/docker.log" >&2; exit 1; }
        sleep 0.5
    done
fi
if ! docker image inspect "$BASE" >/dev/null 2>&1; then
    debootstrap --variant=minbase bookworm "$WORK/debian" >"$WORK/debootstrap.log" || { tail -n 5 "$WORK/debootstrap.log" >&2; exit 1; }
    tar --create --directory "$WORK/debian" . | docker import - "$BASE" >/dev/null
fi
git clone --quiet --bare "$ROOT" "$WORK/source"
(cd "$ROOT" && "${PYTHON:-python3}" -m tools.pip_config "$WORK")
docker run --interactive --name "fresh-$$" --network host --shm-size 1g --env "PORT=$PORT" \
    --env http_proxy --env https_proxy --env no_proxy --volume "$WORK/source:/source:ro" \
    --volume "$WORK/pip.conf:/etc/pip.conf:ro" --volume "$WORK/ca.crt:/run/secrets/ca.crt:ro" "$BASE" bash -euo pipefail <<'END'
step() {
    echo "$*: $SECONDS s"
    SECONDS=0
}
{
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends curl git libpython3.11 make python3-venv
} >/var/log/apt.log 2>&1 </dev/null || { tail -n 5 /var/log/apt.log; exit 1; }
git clone --quiet /source /root/project
cd /root/project
step "Debian packages and git clone"

make serve "PORT=$PORT" >/root/serve.log 2>&1 </dev/null &
until grep --quiet '^Ready: ' /root/serve.log; do
    kill -0 $! || { cat /root/serve.log; exit 1; }
    sleep 0.5
done
curl --silent --show-error --fail --form image=@utils/page/static/samples/balloons.jpg --form 'request={"pos_coords": [[903, 310]]}' \
    --header 'Accept: application/json' "http://127.0.0.1:$PORT/mobile_sam" | grep --only-matching '"score":[^}]*"box":[^]]*]'
kill $!
wait $! || true
step "make serve, and a mask"

make env-dev </dev/null
PATH=$PWD/.venv/bin:$PATH pytest -q -n 3 --dist loadfile -m "not e2e and not slow" </dev/null
step "tests without a service"
END
