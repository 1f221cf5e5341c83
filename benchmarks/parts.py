"""Steps of a request in our own code compared with libraries, and the decoder by batch size."""

import io
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from benchmarks.figures import interleaved, percentile, ratio_table, table
from benchmarks.photo import SIZE, photo
from benchmarks.raw import RawModel
from benchmarks.service import ROOT
from orchestrator import images
from orchestrator.cache import EmbeddingCache, Entry
from orchestrator.pictures import encode_bilevel_png, encode_png, pack_mask

ROUNDS = 20
BATCHES = (1, 8, 32)


def pictures() -> str:
    """Measure writing PNG files of a picture and of a mask."""
    backwards = np.ascontiguousarray(cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR))
    picture = np.ascontiguousarray(backwards[..., ::-1])
    coarse = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    mask = cv2.resize(coarse, SIZE, interpolation=cv2.INTER_CUBIC) > 0
    bilevel = [cv2.IMWRITE_PNG_BILEVEL, 1]
    arms: dict[str, Callable[[], object]] = {
        "picture, OpenCV": lambda: cv2.imencode(".png", backwards),
        "picture, orchestrator.pictures": lambda: encode_png(picture),
        "mask, OpenCV": lambda: cv2.imencode(".png", mask.view(np.uint8) * np.uint8(255), bilevel),
        "mask, orchestrator.pictures": lambda: encode_bilevel_png([pack_mask(mask)], SIZE[0]),
    }
    return ratio_table(
        interleaved(arms, ROUNDS, "PNG"),
        {"picture, orchestrator.pictures": "picture, OpenCV", "mask, orchestrator.pictures": "mask, OpenCV"},
    )


def pixels() -> str:
    """Measure decoding an image and scaling it to the encoder's frame."""
    file = photo()
    decoded = images.decode(images.open_image(file, SIZE[0] * SIZE[1]))
    arms: dict[str, Callable[[], object]] = {
        "JPEG, Pillow": lambda: np.asarray(Image.open(io.BytesIO(file))),
        "JPEG, orchestrator.images": lambda: images.decode(images.open_image(file, SIZE[0] * SIZE[1])),
        "scaling to the encoder's frame": lambda: images.to_frame(decoded),
    }
    return ratio_table(interleaved(arms, ROUNDS, "pixels"), {"JPEG, orchestrator.images": "JPEG, Pillow"})


def cache(raw: RawModel) -> str:
    """Measure writing and reading an embedding."""
    entry = Entry(raw.encode(), (SIZE[1], SIZE[0]), photo())
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as folder:
        name = "0" * 64
        kept = EmbeddingCache(Path(folder), "f" * 64, 2**30, print)

        def read(store: EmbeddingCache) -> None:
            found = store.get(name)
            assert found is not None
            found.embedding.copy()

        arms: dict[str, Callable[[], object]] = {
            "embedding, write": lambda: kept.put(name, entry),
            "embedding, first read of a process": lambda: read(EmbeddingCache(Path(folder), "f" * 64, 2**30, print)),
            "embedding, further read": lambda: read(kept),
        }
        return ratio_table(interleaved(arms, ROUNDS, "cache"), {})


def batches(raw: RawModel) -> str:
    """Measure the time per prompt in decoder batches of several sizes."""
    arms = {str(count): partial(raw.decode, count=count) for count in BATCHES}
    times = interleaved(arms, ROUNDS // 2, "batches")
    rows = [(count, percentile(values, 50) * 1e3 / int(count)) for count, values in times.items()]
    return table(("prompts in a run of the decoder", "ms a prompt"), rows)


def measure(raw: RawModel) -> str:
    """Run all measurements of this module."""
    return "\n\n".join([pixels(), pictures(), cache(raw), batches(raw)])
