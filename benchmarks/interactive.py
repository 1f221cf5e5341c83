"""Clicks on known images: with pictures, during other encodes, many in one request, after a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from benchmarks.arms import image_fields, json_request
from benchmarks.figures import percentile, short, table
from benchmarks.load import Connection, LoadClient, Run
from benchmarks.photo import CLICK, POINTS, SIZE, photo, unseen
from benchmarks.raw import RawModel
from benchmarks.service import Service, running
from benchmarks.timing import interleaved, ratio_table, seconds
from mobile_sam_client import Client, Embedding, Everything

ROUNDS = 60
BLOCKS = 6
ENCODES_PER_BLOCK = 5
CLICKS_PER_BLOCK = 25
OBJECTS = 32
ROUNDS_OF_OBJECTS = 5
GRID = 16
QUIET = {"mask_format": "png", "segmented_image": "none"}
OVERLAY = {"mask_format": "png", "segmented_image": "overlay"}


class KnownImage:
    """Client of a known image, with a keep-alive connection and prepared bodies."""

    def __init__(self, service: Service, image_id: str) -> None:
        self._image_id, self._connection = image_id, Connection(service.port)

    def prepared(self, **fields: Any) -> Callable[[], object]:
        """Return a function that sends this request."""
        return partial(self._connection.ask, json_request(image_id=self._image_id, **fields))


def in_turn(functions: Sequence[Callable[[], object]]) -> Callable[[], None]:
    """Return a function that calls these functions in rotation."""
    turn = itertools.cycle(functions)

    def call() -> None:
        next(turn)()

    return call


def clicks(image: KnownImage, raw: RawModel) -> str:
    """Compare clicks with and without a picture to the raw decoder."""
    picture = np.ascontiguousarray(cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR))

    def decode_and_draw() -> None:
        raw.decode()
        cv2.imencode(".png", picture)

    decoder, with_png = "raw decoder", "raw decoder + OpenCV's PNG of the picture"
    quiet, drawn = "click, png mask, no picture", "click, png mask, overlay"
    arms: dict[str, Callable[[], object]] = {
        decoder: raw.decode,
        quiet: in_turn([image.prepared(pos_coords=[point], **QUIET) for point in POINTS]),
        with_png: decode_and_draw,
        drawn: in_turn([image.prepared(pos_coords=[point], **OVERLAY) for point in POINTS]),
    }
    return ratio_table(interleaved(arms, ROUNDS, "clicks"), {quiet: decoder, drawn: with_png})


def beside_encodes(service: Service, image: KnownImage, client: LoadClient) -> str:
    """Measure the 95th percentile of clicks, alone and while another client has new images encoded."""
    click = image.prepared(pos_coords=[CLICK], **QUIET)
    file, numbers = photo(), itertools.count(2**40)
    alone: list[float] = []
    beside: list[float] = []
    for _ in tqdm(range(BLOCKS), desc="beside encodes", unit="block"):
        alone += [seconds(click) for _ in range(CLICKS_PER_BLOCK)]
        new = [json_request("/embed", **image_fields(unseen(file, next(numbers)))) for _ in range(ENCODES_PER_BLOCK)]
        client.begin(Run(service.port, new))
        while client.busy():
            beside.append(seconds(click))
        client.end()
    one, other = percentile(alone, 95), percentile(beside, 95)
    return table(
        ("click on a known image", "clicks", "p95 ms", "ratio"),
        [("alone", len(alone), one * 1e3, ""), ("beside another's new images", len(beside), other * 1e3, other / one)],
    )


def many_objects(image: KnownImage) -> str:
    """Compare 32 boxes in one request to 32 requests."""
    boxes = [[50 * index, 20 * index, 50 * index + 200, 20 * index + 300] for index in range(OBJECTS)]
    each = [image.prepared(box=box, **QUIET) for box in boxes]

    def one_by_one() -> None:
        for send in each:
            send()

    single, together = f"{OBJECTS} boxes, a request each", f"{OBJECTS} boxes in one request"
    arms: dict[str, Callable[[], object]] = {
        single: one_by_one,
        together: image.prepared(prompts=[{"box": box} for box in boxes], **QUIET),
    }
    return ratio_table(interleaved(arms, ROUNDS_OF_OBJECTS, "objects"), {together: single})


def whole_image(sam: Client, known: Embedding, image: KnownImage) -> str:
    """Compare `/everything` on a grid of clicks to the same clicks one by one."""
    points = [[(x + 0.5) / GRID * SIZE[0], (y + 0.5) / GRID * SIZE[1]] for y in range(GRID) for x in range(GRID)]
    everything: list[Everything] = []
    options = {"multimask_output": True, "mask_format": "rle", "segmented_image": "none"}
    each = [image.prepared(pos_coords=[point], **options) for point in points]

    def one_by_one() -> None:
        for send in tqdm(each, desc="clicks one by one"):
            send()

    def together() -> None:
        everything.append(sam.everything(known, points_per_side=GRID))

    taken, singly, candidates = seconds(together), seconds(one_by_one), 3 * len(points)
    return table(
        (f"{GRID} x {GRID} clicks", "s", "candidates/s"),
        [
            (f"by `/everything`, {len(everything[0].masks)} masks kept", taken, candidates / taken),
            ("one by one", singly, candidates / singly),
        ],
    )


def measure(repository: Path, raw: RawModel, client: LoadClient) -> str:
    """Run all measurements of this module.

    Raises:
        RuntimeError: the service encoded a known image again.
    """
    with running(repository) as service, Client(service.url) as sam:
        known = sam.embed(photo())
        image = KnownImage(service, known.image_id)
        before = service.embeddings()
        tables = [clicks(image, raw), many_objects(image), whole_image(sam, known, image)]
        if service.embeddings()["encoded"] != before["encoded"]:
            raise RuntimeError("a click on a known image missed the embedding cache")
        tables.append(beside_encodes(service, image, client))
    with running(repository, known_images=True) as service, Client(service.url) as sam:
        taken = seconds(lambda: sam.segment(photo(), pos_coords=[CLICK], segmented_image="none"))
        encoded = service.embeddings()["encoded"]
    tables.append(f"First click on a known image after a restart: {short(taken * 1e3)} ms, images encoded: {encoded}.")
    return "\n\n".join(tables)
