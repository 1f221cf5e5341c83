"""Clicks on new images with a picture in the answer, and memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from tqdm import tqdm

from benchmarks.arms import image_fields, json_request
from benchmarks.figures import short
from benchmarks.load import Connection
from benchmarks.photo import CLICK, photo, unseen
from benchmarks.raw import RawModel
from benchmarks.service import Service
from benchmarks.timing import interleaved, ratio_table

ROUNDS = 25
REQUESTS_FOR_MEMORY = 100
STYLES = ("none", "overlay", "cutout")
RAW = "raw encoder + decoder"


def measure(service: Service, raw: RawModel) -> str:
    """Measure clicks on new images against the raw model, by style of the picture, and resident memory."""
    connection, image, numbers = Connection(service.port), photo(), itertools.count(2**32)

    def click(style: str) -> None:
        fields = image_fields(unseen(image, next(numbers)))
        connection.ask(json_request(**fields, pos_coords=[CLICK], mask_format="png", segmented_image=style))

    arms: dict[str, Callable[[], object]] = {RAW: raw.click_on_a_new_image}
    arms |= {f"cold click, png mask, picture: {style}": partial(click, style) for style in STYLES}
    times = ratio_table(interleaved(arms, ROUNDS, "cold"), dict.fromkeys(list(arms)[1:], RAW))
    memory = []
    for number in tqdm(range(1, REQUESTS_FOR_MEMORY + 1), desc="memory", unit="request"):
        click("overlay")
        if number in {REQUESTS_FOR_MEMORY // 2, REQUESTS_FOR_MEMORY}:
            memory.append(f"{short(service.resident_bytes() / 1e9)} GB after {number} more")
    return f"{times}\n\nResident memory of all processes: {', '.join(memory)}."
