"""Formats of requests and answers, compared: answers in parts or in one document, files in JSON, in forms or raw.

python -m benchmarks.wire
"""

import argparse
import base64
import hashlib
import io
import itertools
import json
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import orjson
from PIL import Image
from urllib3 import encode_multipart_formdata

from benchmarks.figures import interleaved, ratio_table
from benchmarks.load import Connection, Request
from benchmarks.photo import CLICK, SAMPLE, photo, unseen
from benchmarks.report import machine
from benchmarks.service import OFFICIAL, prepare, running

PARTS, DOCUMENT = "cached click, answer in parts", "cached click, answer as one JSON document"
IN_JSON, FORM, RAW = "new file, base64 in JSON", "new file, form", "new file, raw"
BASELINES = {DOCUMENT: PARTS, FORM: IN_JSON, RAW: IN_JSON}
LARGE_SIZE, LARGE_BYTES = (4000, 3000), 4_000_000
"""A photograph of a phone."""
POINTS = tuple(side * large // small for side, large, small in zip(CLICK, LARGE_SIZE, (1800, 1200), strict=True))
JSON = {"Content-Type": "application/json"}
ONE_DOCUMENT = {"Accept": "application/json"}
RLE = {"mask_format": "rle", "segmented_image": "none"}


def large_photo() -> bytes:
    """Return a JPEG file of `LARGE_SIZE` and about `LARGE_BYTES`, with the grain of a photograph."""
    pixels = np.asarray(Image.open(SAMPLE).resize(LARGE_SIZE, Image.Resampling.BICUBIC), np.float32)
    grain = np.random.default_rng(0).normal(0, 6, (*pixels.shape[:2], 1)).astype(np.float32)
    image = Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8))
    for quality in range(95, 50, -3):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        if file.tell() <= LARGE_BYTES:
            break
    return file.getvalue()


def in_json(file: bytes) -> Request:
    """Return the request with the file as base64, encoded by the standard library as `requests` does."""
    fields = {"input_image": base64.b64encode(file).decode(), "pos_coords": [POINTS], **RLE}
    return Request("/mobile_sam", JSON, json.dumps(fields).encode())


def in_form(file: bytes) -> Request:
    """Return the request with the file in a form."""
    fields = orjson.dumps({"pos_coords": [POINTS], **RLE}).decode()
    body, content_type = encode_multipart_formdata({"image": ("photo.jpg", file), "request": fields})
    return Request("/mobile_sam", {"Content-Type": content_type}, body)


def raw(file: bytes) -> Request:
    """Return the request with the file as body."""
    query = f"x={POINTS[0]}&y={POINTS[1]}&mask_format=rle&segmented_image=none"
    return Request(f"/mobile_sam?{query}", {"Content-Type": "image/jpeg"}, file)


def main() -> None:
    """Run the command: measure with the official weights and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="measured rounds (40)")
    rounds = parser.parse_args().rounds
    known, file = hashlib.sha256(photo()).hexdigest(), large_photo()
    click = orjson.dumps({"image_id": known, "pos_coords": [CLICK], **RLE})
    numbers = itertools.count(time.time_ns())
    sizes: dict[str, int] = {}
    with running(prepare(OFFICIAL)) as service, closing(Connection(service.port)) as connection:
        connection.ask(Request("/embed", {"Content-Type": "image/jpeg"}, photo()))

        def cached(name: str, headers: dict[str, str]) -> Callable[[], None]:
            def ask() -> None:
                sizes[name] = len(connection.ask(Request("/mobile_sam", {**JSON, **headers}, click))[0])

            return ask

        def new(request_of: Callable[[bytes], Request]) -> Callable[[], None]:
            return lambda: connection.ask(request_of(unseen(file, next(numbers)))) and None

        arms = {PARTS: cached(PARTS, {}), DOCUMENT: cached(DOCUMENT, ONE_DOCUMENT)}
        arms |= {IN_JSON: new(in_json), FORM: new(in_form), RAW: new(raw)}
        times = interleaved(arms, rounds, "requests")
    print(machine())
    print(
        f"The new file has {len(file):,} bytes, {LARGE_SIZE[0]} x {LARGE_SIZE[1]} pixels; times include the client's."
    )
    print(ratio_table(times, BASELINES))
    print(", ".join(f"{name}: {size} bytes" for name, size in sizes.items()))


if __name__ == "__main__":
    main()
