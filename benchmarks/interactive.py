"""Prompts on known images: beside the raw decoder, beside somebody else's new images, many at once, after a restart."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import requests
from tqdm import tqdm

from benchmarks.photo import SIZE, photo, unseen
from benchmarks.raw import RawModel
from benchmarks.service import Service, running
from benchmarks.timing import interleaved, p95, seconds, show_ratios
from client.request import Photo

ROUNDS = 60
BLOCKS = 6
CLICKS_PER_BLOCK = 25
OBJECTS = 32
ROUNDS_OF_OBJECTS = 5
GRID = 16
QUIET = {"mask_format": "png", "segmented_image": "none"}
DECODER, DECODER_AND_PNG = "raw decoder", "raw decoder + OpenCV's PNG of the picture"


class Clicker:
    """Sends prompts on a known image over one kept connection, bodies prepared, answers read and not decoded: what is
    measured is the service, not a client library."""

    def __init__(self, service: Service, image_id: str) -> None:
        self._image_id = image_id
        self._connection = http.client.HTTPConnection(service.url.removeprefix("http://"))

    def prepared(self, **fields: Any) -> Callable[[], None]:
        """A function that sends this request."""
        body = json.dumps({"image_id": self._image_id, **fields}).encode()

        def send() -> None:
            self._connection.request("POST", "/mobile_sam", body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read()[:300]!r}")
            response.read()

        return send


def in_turn(functions: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """A function that calls the next of these each time, and the first after the last."""
    turn = itertools.cycle(functions)

    def call() -> None:
        next(turn)()

    return call


def clicks(clicker: Clicker, raw: RawModel) -> None:
    """Print what a click on a known image costs over the raw decoder."""
    embedding = raw.encode()
    picture = np.ascontiguousarray(cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR))

    def decode_and_draw() -> None:
        raw.decode(embedding)
        cv2.imencode(".png", picture)

    points = [[[x, y]] for x in range(300, 1500, 100) for y in range(200, 1000, 100)]
    quiet = in_turn([clicker.prepared(pos_coords=point, **QUIET) for point in points])
    overlay = {"mask_format": "png", "segmented_image": "overlay"}
    drawn = in_turn([clicker.prepared(pos_coords=point, **overlay) for point in points])
    arms: dict[str, Callable[[], object]] = {
        DECODER: partial(raw.decode, embedding),
        "click, png mask, no picture": quiet,
        DECODER_AND_PNG: decode_and_draw,
        "click, png mask, overlay": drawn,
    }
    baselines = {"click, png mask, no picture": DECODER, "click, png mask, overlay": DECODER_AND_PNG}
    show_ratios(interleaved(arms, ROUNDS, "clicks"), baselines)


def encode_new_images(url: str, wanted: Event, over: Event) -> None:
    """Another client: sends images that the service has not seen, one after the other, while that is `wanted`."""
    file, session = photo(), requests.Session()
    for number in itertools.count(2**40):
        while not wanted.wait(0.05):
            if over.is_set():
                return
        session.post(f"{url}/embed", json={"input_image": base64.b64encode(unseen(file, number)).decode()}, timeout=60)


def beside_encodes(service: Service, clicker: Clicker) -> None:
    """Print the 95th percentile of a click alone and while another client has new images encoded back to back."""
    wanted, over = multiprocessing.Event(), multiprocessing.Event()
    other = multiprocessing.Process(target=encode_new_images, args=(service.url, wanted, over))
    other.start()
    click = clicker.prepared(pos_coords=[[900, 600]], **QUIET)
    times: dict[bool, list[float]] = {False: [], True: []}
    before = service.embeddings()["encoded"]
    for block in tqdm(range(2 * BLOCKS), desc="beside encodes", unit="block"):
        busy = bool(block % 2)
        (wanted.set if busy else wanted.clear)()
        time.sleep(1)
        for _ in range(CLICKS_PER_BLOCK):
            times[busy].append(seconds(click))
    encoded = service.embeddings()["encoded"] - before
    over.set()
    wanted.clear()
    other.join()
    alone, beside = p95(times[False]), p95(times[True])
    print(
        f"\nclick, p95 alone {alone * 1e3:.1f} ms, beside another client's {encoded} new images {beside * 1e3:.1f} ms: "
        f"{beside / alone:.2f} times"
    )


def many_objects(clicker: Clicker) -> None:
    """Print what 32 boxes cost in one request, over 32 requests."""
    boxes = [[50 * index, 20 * index, 50 * index + 200, 20 * index + 300] for index in range(OBJECTS)]

    each = [clicker.prepared(box=box, **QUIET) for box in boxes]

    def one_by_one() -> None:
        for send in each:
            send()

    single, together = f"{OBJECTS} boxes, a request each", f"{OBJECTS} boxes in one request"
    arms: dict[str, Callable[[], object]] = {
        single: one_by_one,
        together: clicker.prepared(prompts=[{"box": box} for box in boxes], **QUIET),
    }
    show_ratios(interleaved(arms, ROUNDS_OF_OBJECTS, "objects"), {together: single})


def whole_image(known: Photo, clicker: Clicker) -> None:
    """Print time and masks per second of a grid of clicks, beside the same clicks one by one."""
    points = [[(x + 0.5) / GRID * SIZE[0], (y + 0.5) / GRID * SIZE[1]] for y in range(GRID) for x in range(GRID)]
    everything: list[dict[str, Any]] = []

    options = {"multimask_output": True, "mask_format": "rle", "segmented_image": "none"}
    each = [clicker.prepared(pos_coords=[point], **options) for point in points]

    def one_by_one() -> None:
        for send in each:
            send()

    def together() -> None:
        everything.append(known.everything(lambda *_: None, points_per_side=GRID))

    taken, singly = seconds(together), seconds(one_by_one)
    candidates = 3 * len(points)
    print(
        f"\neverything, {GRID} x {GRID} clicks: {taken:.1f} s, {candidates / taken:.0f} candidates a second, of which "
        f"{len(everything[0]['masks'])} masks are kept; the same clicks one by one {singly:.1f} s, "
        f"{candidates / singly:.0f} a second"
    )


def measure(repository: Path, raw: RawModel) -> None:
    """Measure and print all of it."""
    with running(repository) as service:
        known = Photo(service.url, photo())
        clicker = Clicker(service, known.embed()["image_id"])
        before = service.embeddings()
        clicks(clicker, raw)
        many_objects(clicker)
        whole_image(known, clicker)
        if service.embeddings()["encoded"] != before["encoded"]:
            raise RuntimeError("a click on a known image was not a hit of the embedding cache")
        beside_encodes(service, clicker)
    with running(repository, known_images=True) as service:
        taken = seconds(lambda: Photo(service.url, photo()).segment(pos_coords=[[900, 600]], **QUIET))
        print(f"\nfirst click after a restart: {taken * 1e3:.0f} ms, embeddings: {service.embeddings()}")
