"""The costliest valid requests, searched against a running service: `python -m tests.chaos.costliest PORT PID`.

A coordinate search over the space of requests: from a cheap one it goes through the dimensions, takes of each the best
option, and goes round until nothing improves; then it begins anew at a random point of a seed. It prints what it found.
"""

from __future__ import annotations

import argparse
import base64
import functools
import hashlib
import http.client
import io
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from PIL import Image

from tests.chaos.callers import JSON
from tests.fuzz.body_parts import FLOAT32, npy

Point = tuple[Any, ...]
"""An option of each dimension, in the order of the space."""
Space = Mapping[str, Sequence[Any]]

SPACE: Space = {
    "path": ("/mobile_sam", "/everything", "/embed"),
    "multimask_output": (False, True),
    "mask_format": ("rle", "json", "npy", "png", "polygon"),
    "segmented_image": ("none", "overlay", "cutout"),
    "low_res_mask": (False, True),
    "mask_input": (False, True),
    "points": (1, 16),
    "crop_n_layers": (0, 1, 3),
    "min_mask_region_area": (0, 1000),
    "thresholds": (None, 0.0),
    "progress": (False, True),
    "content": ("photo", "noise", "flat", "stripes"),
    "way": ("known", "by id", "new"),
    "file_format": ("JPEG", "PNG", "WEBP"),
    "objects": (1, 8, 32, 256),
    "points_per_side": (1, 8, 64),
    "size": ((512, 512), (2000, 1500), (4000, 3000), (5000, 5000), (16000, 1560)),
}
"""Each dimension begins with its cheapest option; those that make everything dearer come last."""
OPTIONS = {
    "/mobile_sam": ("multimask_output", "mask_format", "segmented_image", "low_res_mask"),
    "/everything": ("points_per_side", "crop_n_layers", "min_mask_region_area", "progress"),
    "/embed": (),
}
OF_SEGMENT = ("mask_input", "points", "objects")
OF_ALL = ("path", "content", "way", "file_format", "size")
FITS = re.compile(rb'"expected":\s*"at most (\d+) ')
"""What a refusal says would be answered."""
IDLE_SHARE = 0.25
"""Of a core: a service that uses less has nothing to do."""


@dataclass(frozen=True)
class Cost:
    """What one request cost."""

    status: int
    """0: no answer within the time of a trial."""
    work_s: float
    """Of all cores together, that spent after the caller has left included."""
    took_s: float
    sent: int
    received: int
    objects: int | None = None
    """As many as the service allows, where it does not allow as many as the point has."""


@dataclass(frozen=True)
class Found:
    """A point and what it gave."""

    point: Point
    value: float


def climb(space: Space, value: Callable[[Point], float], over: Callable[[], bool], seed: int = 0) -> Found:
    """Search the point of the greatest value.

    Args:
        space: the options of each dimension; the search begins at the first of each.
        value: of a point; asked once for each.
        over: whether the budget is spent; asked before each point but the first.
        seed: of the points where the search begins anew.
    """
    draw = random.Random(seed)
    asked: dict[Point, float] = {}
    best = Found(tuple(options[0] for options in space.values()), float("-inf"))
    here = best
    every = 1
    for options in space.values():
        every *= len(options)

    def visit(point: Point) -> float:
        nonlocal best
        if point not in asked:
            asked[point] = value(point)
            best = max(best, Found(point, asked[point]), key=lambda found: found.value)
        return asked[point]

    here = Found(here.point, visit(here.point))
    while True:
        before = here.value
        for axis, options in enumerate(space.values()):
            for option in options:
                if over() or len(asked) == every:
                    return best
                point = (*here.point[:axis], option, *here.point[axis + 1 :])
                here = max(here, Found(point, visit(point)), key=lambda found: found.value)
        if here.value <= before:
            point = tuple(draw.choice(options) for options in space.values())
            if over():
                return best
            here = Found(point, visit(point))


@functools.lru_cache(maxsize=32)
def image_file(width: int, height: int, file_format: str, content: str) -> bytes:
    """A file of one of the formats and contents of `SPACE`."""
    draw = np.random.default_rng(0)
    if content == "flat":
        pixels = np.full((height, width, 3), 128, np.uint8)
    elif content == "stripes":
        pixels = np.repeat(np.indices((height, width)).sum(axis=0)[..., None] // 4 % 2 * 255, 3, axis=2).astype(
            np.uint8
        )
    else:
        block = 2 if content == "noise" else 64
        small = draw.integers(0, 256, (-(-height // block), -(-width // block), 3), dtype=np.uint8)
        how = Image.Resampling.NEAREST if content == "noise" else Image.Resampling.BILINEAR
        pixels = np.asarray(Image.fromarray(small).resize((width, height), how))
    file = io.BytesIO()
    options = {"JPEG": {"quality": 85}, "PNG": {"compress_level": 1}, "WEBP": {"method": 0}}[file_format]
    Image.fromarray(pixels).save(file, file_format, **options)
    return file.getvalue()


def relevant(point: Point) -> Point:
    """The point with the cheapest options where they change nothing about the request."""
    chosen = dict(zip(SPACE, point, strict=True))
    path = chosen["path"]
    used = {*OF_ALL, *OPTIONS[path]}
    used |= set(OF_SEGMENT) if path == "/mobile_sam" else {"thresholds"} if path == "/everything" else set()
    return tuple(option if name in used else SPACE[name][0] for name, option in chosen.items())


def request(point: Point, number: int = 0, objects: int | None = None) -> tuple[str, bytes]:
    """The path and body of a point's request.

    Args:
        point: of `SPACE`.
        number: no two have the same image where the point says `new`.
        objects: in place of the point's.
    """
    chosen = dict(zip(SPACE, point, strict=True))
    path, (width, height) = chosen["path"], chosen["size"]
    file = image_file(width, height, chosen["file_format"], chosen["content"])
    fields: dict[str, Any] = {name: chosen[name] for name in OPTIONS[path]}
    if chosen["way"] == "by id":
        fields["image_id"] = hashlib.sha256(file).hexdigest()
    else:
        # What stands behind the end of an image file changes its id alone.
        more = number.to_bytes(8, "big") if chosen["way"] == "new" else b""
        fields["input_image"] = base64.b64encode(file + more).decode()
    if path == "/everything" and chosen["thresholds"] is not None:
        fields |= {"pred_iou_thresh": chosen["thresholds"], "stability_score_thresh": chosen["thresholds"]}
    if path == "/mobile_sam":
        draw = random.Random(0)
        mask = npy(FLOAT32, bytes(4 * 256 * 256)) if chosen["mask_input"] else None
        fields["prompts"] = [
            {
                "pos_coords": [[draw.randrange(width), draw.randrange(height)] for _ in range(chosen["points"])],
                **({"mask_input": mask} if mask else {}),
            }
            for _ in range(objects or chosen["objects"])
        ]
    return path, json.dumps(fields).encode()


class Trials:
    """Asks a service once for each point and keeps what that cost."""

    def __init__(self, port: int, family: Callable[[], list[psutil.Process]], limit_s: float = 10.0) -> None:
        """Make none yet.

        Args:
            port: of a service of this machine that nobody else asks meanwhile.
            family: gives its processes.
            limit_s: seconds that an answer may take; the caller then hangs up.
        """
        self._port, self._family, self._limit_s = port, family, limit_s
        self.costs: dict[Point, Cost] = {}

    def cost(self, point: Point) -> Cost:
        """The cost of a point's request, measured or known."""
        point = relevant(point)
        if point not in self.costs:
            chosen = dict(zip(SPACE, point, strict=True))
            if chosen["way"] != "new":
                whole = tuple({"path": "/embed", "way": "known"}.get(name, option) for name, option in chosen.items())
                self._ask(*request(relevant(whole)))
            self.costs[point] = self._measure(point)
        return self.costs[point]

    def requests(self, point: Point, count: int) -> list[tuple[str, bytes]]:
        """Paths and bodies of a point's request, as measured, each with another image where the point says so."""
        varied = dict(zip(SPACE, point, strict=True))["way"] == "new"
        objects = self.cost(point).objects
        return [request(point, 2**32 + number, objects) for number in range(count if varied else 1)]

    def work(self, point: Point) -> float:
        """Seconds of work."""
        return self.cost(point).work_s

    def gain(self, point: Point) -> float:
        """Bytes of a good answer for each byte sent."""
        cost = self.cost(point)
        return cost.received / cost.sent if cost.status == 200 else 0.0

    def dearest(self) -> dict[str, Point]:
        """The points that cost most: of each path, of those answered within half a second, and in bytes."""
        good = [point for point, cost in self.costs.items() if cost.status in (0, 200, 504)]
        kinds: dict[str, Callable[[Point], float]] = {
            f"work at {path}": functools.partial(lambda path, point: (point[0] == path) * self.work(point), path)
            for path in OPTIONS
        }
        kinds["work answered within 0.5 s"] = lambda point: (self.cost(point).took_s < 0.5) * self.work(point)
        kinds["bytes for each byte sent"] = self.gain
        kinds["bytes"] = lambda point: float(self.cost(point).received)
        return {kind: max(good, key=value) for kind, value in kinds.items()}

    def _measure(self, point: Point, objects: int | None = None) -> Cost:
        path, body = request(point, len(self.costs), objects)
        before, began = self._used(), time.monotonic()
        status, received, start = self._ask(path, body)
        took, last = time.monotonic() - began, self._used()
        if status == 422 and objects is None and (fits := FITS.search(start)) and int(fits[1]):
            return self._measure(point, int(fits[1]))
        while time.monotonic() - began < took + self._limit_s:
            time.sleep(0.1)
            if (now := self._used()) - last < 0.1 * IDLE_SHARE:
                break
            last = now
        return Cost(status, last - before, took, len(body), received, objects)

    def _ask(self, path: str, body: bytes) -> tuple[int, int, bytes]:
        """The status, the bytes of the answer, and those of its beginning."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._limit_s)
        over, received, start = time.monotonic() + self._limit_s, 0, b""
        try:
            connection.request("POST", path, body, JSON)
            response = connection.getresponse()
            while (data := response.read1(2**20)) and time.monotonic() < over:
                received += len(data)
                start = start or data
        except (OSError, http.client.HTTPException):
            return 0, received, start
        finally:
            connection.close()
        return 0 if data else response.status, received, start

    def _used(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._family() if process.is_running())


def search(trials: Trials, seconds: float, seed: int = 0) -> dict[str, Point]:
    """Search for so long, three quarters of it for work, the rest for bytes; the dearest of all that was tried."""
    began = time.monotonic()
    for value, until in ((trials.work, 0.75 * seconds), (trials.gain, seconds)):
        climb(SPACE, value, lambda until=until: time.monotonic() - began > until, seed)  # type: ignore[misc]
    return trials.dearest()


def described(point: Point) -> str:
    """The options of a point that are not the cheapest."""
    chosen = zip(SPACE.items(), relevant(point), strict=True)
    return ", ".join(f"{name} {option}" for (name, options), option in chosen if name == "path" or option != options[0])


def report(trials: Trials, found: Mapping[str, Point]) -> str:
    """A line for each of the dearest."""
    lines = [f"of {len(trials.costs)} requests tried:"]
    for kind, point in found.items():
        cost = trials.cost(point)
        lines.append(
            f"most {kind}: {described(point)}{f', in truth {cost.objects}' if cost.objects else ''}: {cost.status}, {cost.work_s:.1f} s of work in {cost.took_s:.1f} s, "
            f"{cost.sent} bytes sent, {cost.received} received"
        )
    return "\n".join(lines)


def main() -> None:
    """Read the command line, search, and print."""
    parser = argparse.ArgumentParser(description="Search the costliest valid requests.")
    parser.add_argument("port", type=int)
    parser.add_argument("pid", type=int, help="of the service's first process")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--limit", type=float, default=60, help="seconds that an answer may take")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    first = psutil.Process(options.pid)
    trials = Trials(options.port, lambda: [first, *first.children(recursive=True)], options.limit)
    print(report(trials, search(trials, options.seconds, options.seed)))


if __name__ == "__main__":
    main()
