"""Measure the time from `git clone` to the first mask, on two cores: once with empty caches and once with full ones.

The difference between the two in the steps that download is the time of the network, with unpacking. Standard library
only, as there is no environment yet. pip's configuration applies; all caches are in a temporary folder.
"""

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORES = 2
GOAL_S = 60.0
MAX_RUN_S = 600.0
STEPS = {"environment": "environment", "official weights": "official weights", "export": "export", "Ready": "service"}
"""Step that ends with the line of `make serve` that begins with the key."""
DOWNLOADS = ("environment", "official weights")
SAMPLE, CLICK = "utils/page/static/samples/balloons.jpg", [903, 310]
INHERITED = ("MAKE", "MFLAGS", "MOBILE_SAM_", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
"""Prefixes of environment variables that a new user's shell does not have."""


def main() -> int:
    """Measure and print both starts; return 1 if the first one takes longer than the goal."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory(prefix="first-mask-") as folder:
        first, second = (measure(Path(folder), name) for name in ("first", "second"))
    total = sum(first.values())
    print("\n| seconds | empty caches | full caches |\n|---|---|---|")
    for step in first:
        print(f"| {step} | {first[step]:.1f} | {second.get(step, 0):.1f} |")
    print(f"| in all | {total:.1f} | {sum(second.values()):.1f} |\n")
    print(f"downloads: {sum(first[step] - second.get(step, 0) for step in DOWNLOADS):.1f} s")
    print(f"goal: {GOAL_S:.0f} s with empty caches, {'met' if total <= GOAL_S else 'missed'}")
    return int(total > GOAL_S)


def measure(folder: Path, name: str) -> dict[str, float]:
    """Clone the repository, start it, and segment an object; return the seconds of each step."""
    clone = folder / name
    seconds: dict[str, float] = {}
    ended = time.monotonic()

    def end(step: str) -> None:
        nonlocal ended
        started, ended = ended, time.monotonic()
        seconds[step] = ended - started

    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    end("git clone")
    print(f"\n{name} start", flush=True)
    with serving(clone, environment(folder)) as lines:
        for line in lines:
            print(f"  {line}", end="", flush=True)
            if step := next((step for start, step in STEPS.items() if line.startswith(start)), None):
                end(step)
            if line.startswith("Ready: "):
                segment(line.split(", API ")[1].split(",")[0], (clone / SAMPLE).read_bytes())
                end("first mask")
                return seconds
    raise SystemExit("error: `make serve` ended before the service was ready")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a new user with the caller's pip configuration."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(INHERITED)}
    configurations = (Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf")
    for path in filter(Path.is_file, configurations):
        inherited.setdefault("PIP_CONFIG_FILE", str(path))
    caches = {"XDG_CACHE_HOME": folder, "UV_CACHE_DIR": folder / "uv", "PIP_CACHE_DIR": folder / "pip", "HOME": folder}
    return {**inherited, **{name: str(path) for name, path in caches.items()}}


@contextlib.contextmanager
def serving(clone: Path, environ: dict[str, str]) -> Iterator[Iterator[str]]:
    """Run `make serve` and yield the lines of its output; stop it on exit."""
    command = ["make", "serve", f"PYTHON={sys.executable}", *sys.argv[1:]]
    with subprocess.Popen(
        command,
        cwd=clone,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        late = threading.Timer(MAX_RUN_S, os.killpg, [process.pid, signal.SIGKILL])
        late.start()
        try:
            yield iter(process.stdout.readline, "")
        finally:
            late.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            process.communicate()


def segment(url: str, image: bytes) -> None:
    """Segment the object under a click."""
    body = json.dumps({"input_image": base64.b64encode(image).decode(), "pos_coords": [CLICK]}).encode()
    request = urllib.request.Request(f"{url}mobile_sam", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert b'name="mask"' in response.read()


if __name__ == "__main__":
    sys.exit(main())
