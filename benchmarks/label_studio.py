"""A Label Studio project encoded ahead of its first clicks, compared with a loop of two callers of `/embed`.

python -m benchmarks.label_studio
"""

import argparse
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figures import interleaved, percentile, ratio_table
from benchmarks.goals import as_list, ratio_goals
from benchmarks.integrations import MAX_RATIO
from benchmarks.load import Connection, Request, Run, perform
from benchmarks.photo import CLICK, SIZE, photo, unseen
from benchmarks.report import machine
from benchmarks.service import OFFICIAL, Service, free_ports, prepare, running
from tools.environment import install
from tools.try_label_studio import CONFIG, ENVIRONMENT, LabelStudio, label_studio

CALLERS = 2
ROUNDS = 60
OWN, ADAPTER = "click by image_id, /mobile_sam", "click, Label Studio"
MIN_RATIO = 0.9
"""Goal of the ratio of the command's images per second to the loop's."""
POINT = {
    "id": "point",
    "type": "keypointlabels",
    "from_name": "point",
    "to_name": "image",
    "original_width": SIZE[0],
    "original_height": SIZE[1],
    "image_rotation": 0,
    "is_positive": True,
    "value": {
        "x": 100 * CLICK[0] / SIZE[0],
        "y": 100 * CLICK[1] / SIZE[1],
        "width": 0.3,
        "keypointlabels": ["Object"],
    },
}
"""A click as Label Studio's page sends it."""


def click(studio: LabelStudio, model: int, task: dict[str, Any]) -> float:
    """Click in a task by Label Studio's API; return the seconds until its mask."""
    started = time.perf_counter()
    body = {"task": task["id"], "context": {"result": [POINT]}}
    answer = studio.call("POST", f"ml/{model}/interactive-annotating", json=body)
    assert answer["data"]["result"], answer
    return time.perf_counter() - started


def compare(service: Service, task: dict[str, Any], image: Path) -> dict[str, list[float]]:
    """Measure clicks in a task, sent to the adapter, and the same clicks on `/mobile_sam` by the image's id."""
    params = {"context": {"result": [POINT]}}
    image_id = hashlib.sha256(image.read_bytes()).hexdigest()
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        OWN: ("/mobile_sam", {"image_id": image_id, "pos_coords": [CLICK], "mask_format": "rle"}),
        ADAPTER: ("/label-studio/predict", {"tasks": [task], "label_config": CONFIG, "params": params}),
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    with closing(Connection(service.port)) as connection:
        arms = {
            name: partial(connection.ask, Request(path, headers, orjson.dumps(body)), b'"rle":')
            for name, (path, body) in bodies.items()
        }
        return interleaved(arms, ROUNDS, "clicks")


def main() -> None:
    """Run the command: measure with the official weights and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="tasks of the project (200)")
    count: int = parser.parse_args().tasks
    numbers = itertools.count(time.time_ns())
    install(ENVIRONMENT, ["integrations-label-studio"])
    with tempfile.TemporaryDirectory() as text, label_studio(Path(text), *free_ports(1)) as studio:
        token = studio.access_token()
        settings = {
            "MOBILE_SAM_INTEGRATIONS": "label-studio",
            "MOBILE_SAM_LABEL_STUDIO_URL": studio.url,
            "MOBILE_SAM_LABEL_STUDIO_API_KEY": token,
        }
        images = [Path(text) / f"{number}.jpg" for number in range(count)]
        for image in images:
            image.write_bytes(unseen(photo(), next(numbers)))
        project, tasks = studio.project("Ahead", CONFIG, images)
        with running(prepare(OFFICIAL), settings=settings) as service:
            model = studio.connect(project, service.url)

            def loop() -> float:
                """Return the images per second of half as many requests."""
                jpeg = {"Content-Type": "image/jpeg"}
                requests = [Request("/embed", jpeg, unseen(photo(), next(numbers))) for _ in range(count // 2)]
                return len(requests) / perform(Run(service.port, requests, CALLERS)).seconds

            def command() -> float:
                """Return the images per second of the command line, its start included."""
                program = [sys.executable, "-m", "mobile_sam_client", "embed", "--url", service.url]
                program += ["--label-studio", studio.url, "--project", str(project)]
                started = time.perf_counter()
                environment = {**os.environ, "LABEL_STUDIO_API_KEY": token}
                subprocess.run(program, env=environment, stdout=subprocess.DEVNULL, check=True)
                return count / (time.perf_counter() - started)

            before, ahead, after = loop(), command(), loop()
            encoded = service.embeddings()["encoded"]
            clicks = [click(studio, model, task) for task in tasks]
            late = service.embeddings()["encoded"] - encoded
            times = compare(service, tasks[0], images[0])
    print(machine())
    print(ratio_table(times, {ADAPTER: OWN}))
    print(as_list(ratio_goals(times, {ADAPTER: OWN}, MAX_RATIO)))
    print(f"Loop of {CALLERS} callers: {before:.2f} images/s before, {after:.2f} after; the command: {ahead:.2f}.")
    print(f"Ratio {2 * ahead / (before + after):.2f}; the goal is at least {MIN_RATIO}.")
    print(
        f"First clicks in {count} tasks by Label Studio's API: {late} had to encode (goal 0), "
        f"p50 {1000 * percentile(clicks, 50):.0f} ms, p95 {1000 * percentile(clicks, 95):.0f} ms."
    )


if __name__ == "__main__":
    main()
