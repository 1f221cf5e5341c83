"""Clicks of one caller: on new images; on known ones with pictures, many at once, beside encodes, after a restart."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from benchmarks.arms import image_fields, json_request, new_photo
from benchmarks.figures import interleaved, percentile, ratio_table, seconds, short, table
from benchmarks.load import Connection, Run, perform
from benchmarks.photo import CLICK, POINTS, SIZE, photo
from benchmarks.raw import RawModel
from benchmarks.service import Service, running
from mobile_sam_client import Client, Embedding, Everything

NEW_IMAGES, IMAGES_FOR_MEMORY = 25, 100
STYLES = ("none", "overlay", "cutout")
ROUNDS = 60
BLOCKS, ENCODES_PER_BLOCK, CLICKS_PER_BLOCK = 6, 5, 25
OBJECTS, ROUNDS_OF_OBJECTS = 32, 5
GRID = 16
QUIET = {"mask_format": "png", "segmented_image": "none"}
OVERLAY = {"mask_format": "png", "segmented_image": "overlay"}


def new_images(service: Service, raw: RawModel) -> str:
    """Measure clicks on new images against the raw model, by style of the picture, and resident memory."""
    connection, base = Connection(service.port), "raw encoder + decoder"

    def click(style: str) -> None:
        image = image_fields(new_photo())
        connection.ask(json_request(**image, pos_coords=[CLICK], mask_format="png", segmented_image=style))

    arms: dict[str, Callable[[], object]] = {base: raw.click_on_a_new_image}
    arms |= {f"cold click, png mask, picture: {style}": partial(click, style) for style in STYLES}
    times = ratio_table(interleaved(arms, NEW_IMAGES, "cold"), dict.fromkeys(list(arms)[1:], base))
    memory = []
    for number in tqdm(range(1, IMAGES_FOR_MEMORY + 1), desc="memory", unit="request"):
        click("overlay")
        if number in {IMAGES_FOR_MEMORY // 2, IMAGES_FOR_MEMORY}:
            memory.append(f"{short(service.resident_bytes() / 1e9)} GB after {number} more")
    return f"{times}\n\nResident memory of all processes: {', '.join(memory)}."


Prepare = Callable[..., Callable[[], object]]
"""Function that takes the fields of a request on a known image and returns one that sends it."""


def in_turn(functions: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """Return a function that calls these functions in rotation."""
    turn = itertools.cycle(functions)

    def call() -> object:
        return next(turn)()

    return call


def clicks(prepared: Prepare, raw: RawModel) -> str:
    """Compare clicks with and without a picture to the raw decoder."""
    picture = np.ascontiguousarray(cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR))

    def decode_and_draw() -> None:
        raw.decode()
        cv2.imencode(".png", picture)

    decoder, with_png = "raw decoder", "raw decoder + OpenCV's PNG of the picture"
    quiet, drawn = "click, png mask, no picture", "click, png mask, overlay"
    arms: dict[str, Callable[[], object]] = {
        decoder: raw.decode,
        quiet: in_turn([prepared(pos_coords=[point], **QUIET) for point in POINTS]),
        with_png: decode_and_draw,
        drawn: in_turn([prepared(pos_coords=[point], **OVERLAY) for point in POINTS]),
    }
    return ratio_table(interleaved(arms, ROUNDS, "clicks"), {quiet: decoder, drawn: with_png})


def beside_encodes(service: Service, prepared: Prepare, client: Executor) -> str:
    """Measure the 95th percentile of clicks, alone and while another client has new images encoded."""
    click = prepared(pos_coords=[CLICK], **QUIET)
    alone: list[float] = []
    beside: list[float] = []
    for _ in tqdm(range(BLOCKS), desc="beside encodes", unit="block"):
        alone += [seconds(click) for _ in range(CLICKS_PER_BLOCK)]
        new = [json_request("/embed", **image_fields(new_photo())) for _ in range(ENCODES_PER_BLOCK)]
        other = client.submit(perform, Run(service.port, new))
        while not other.done():
            beside.append(seconds(click))
        other.result()
    p95, p95_beside = percentile(alone, 95), percentile(beside, 95)
    return table(
        ("click on a known image", "clicks", "p95 ms", "ratio"),
        [
            ("alone", len(alone), p95 * 1e3, ""),
            ("beside another's new images", len(beside), p95_beside * 1e3, p95_beside / p95),
        ],
    )


def many_objects(prepared: Prepare) -> str:
    """Compare 32 boxes in one request to 32 requests."""
    boxes = [[50 * index, 20 * index, 50 * index + 200, 20 * index + 300] for index in range(OBJECTS)]
    each = [prepared(box=box, **QUIET) for box in boxes]

    def one_by_one() -> None:
        for send in each:
            send()

    single, together = f"{OBJECTS} boxes, a request each", f"{OBJECTS} boxes in one request"
    arms: dict[str, Callable[[], object]] = {
        single: one_by_one,
        together: prepared(prompts=[{"box": box} for box in boxes], **QUIET),
    }
    return ratio_table(interleaved(arms, ROUNDS_OF_OBJECTS, "objects"), {together: single})


def whole_image(sam: Client, known: Embedding, prepared: Prepare) -> str:
    """Compare `/everything` on a grid of clicks to the same clicks one by one."""
    points = [[(x + 0.5) / GRID * SIZE[0], (y + 0.5) / GRID * SIZE[1]] for y in range(GRID) for x in range(GRID)]
    everything: list[Everything] = []
    options = {"multimask_output": True, "mask_format": "rle", "segmented_image": "none"}
    each = [prepared(pos_coords=[point], **options) for point in points]

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


def known_images(repository: Path, raw: RawModel, client: Executor) -> str:
    """Measure clicks on known images.

    Raises:
        RuntimeError: the service encoded a known image again.
    """
    with running(repository) as service, Client(service.url) as sam:
        known, connection = sam.embed(photo()), Connection(service.port)

        def prepared(**fields: Any) -> Callable[[], object]:
            return partial(connection.ask, json_request(image_id=known.image_id, **fields))

        before = service.embeddings()
        tables = [clicks(prepared, raw), many_objects(prepared), whole_image(sam, known, prepared)]
        if service.embeddings()["encoded"] != before["encoded"]:
            raise RuntimeError("a click on a known image missed the embedding cache")
        tables.append(beside_encodes(service, prepared, client))
    with running(repository, known_images=True) as service, Client(service.url) as sam:
        taken = seconds(lambda: sam.segment(photo(), pos_coords=[CLICK], segmented_image="none"))
        encoded = service.embeddings()["encoded"]
    tables.append(f"First click on a known image after a restart: {short(taken * 1e3)} ms, images encoded: {encoded}.")
    return "\n\n".join(tables)
