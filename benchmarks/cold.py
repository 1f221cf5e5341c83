"""Requests on new images beside the raw model, and memory."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable
from functools import partial

import requests
from tqdm import tqdm

from benchmarks.photo import photo, unseen
from benchmarks.raw import RawModel
from benchmarks.service import Service
from benchmarks.timing import interleaved, show_ratios

ROUNDS = 25
REQUESTS_FOR_MEMORY = 200
RAW = "raw encoder + decoder"


class Asker:
    """Sends requests over one kept connection."""

    def __init__(self, service: Service) -> None:
        self.session = requests.Session()
        self.url = f"{service.url}/mobile_sam"
        self.image = photo()
        self.count = 0

    def cold(self, picture: str) -> None:
        """One click on an image the service has not seen."""
        self.count += 1
        body = {
            "input_image": base64.b64encode(unseen(self.image, self.count)).decode(),
            "pos_coords": [[900, 600]],
            "mask_format": "png",
            "segmented_image": picture,
        }
        self.session.post(self.url, json=body, timeout=60).raise_for_status()


def latency(asker: Asker, raw: RawModel) -> None:
    """Print what a cold request costs over the raw model."""
    arms: dict[str, Callable[[], object]] = {
        RAW: lambda: raw.decode(raw.encode()),
        "cold request, png mask, no picture": lambda: asker.cold("none"),
        "cold request, png mask, overlay": lambda: asker.cold("overlay"),
        "cold request, png mask, cutout": lambda: asker.cold("cutout"),
    }
    show_ratios(interleaved(arms, ROUNDS, "cold"), dict.fromkeys(list(arms)[1:], RAW))


def memory(asker: Asker, service: Service) -> None:
    """Print the resident memory after half and all of the requests."""
    half = 0
    for index in tqdm(range(asker.count, REQUESTS_FOR_MEMORY), desc="memory", unit="request"):
        if index >= REQUESTS_FOR_MEMORY // 2 and not half:
            half = service.resident_bytes()
        asker.cold("overlay")
    full = service.resident_bytes()
    print(f"\nresident memory of all processes after {REQUESTS_FOR_MEMORY // 2} requests: {half / 1e9:.2f} GB")
    print(f"resident memory of all processes after {REQUESTS_FOR_MEMORY} requests: {full / 1e9:.2f} GB")


def encoders(raws: dict[str, RawModel]) -> None:
    """Print the raw encoders and decoders beside each other."""
    embeddings = {name: raw.encode() for name, raw in raws.items()}
    arms: dict[str, Callable[[], object]] = {}
    for name, raw in raws.items():
        arms[f"encoder, {name}"] = raw.encode
        arms[f"decoder, {name}"] = partial(raw.decode, embeddings[name])
    times = interleaved(arms, ROUNDS, "raw models")
    print()
    for part in ("encoder", "decoder"):
        first, *others = [name for name in arms if name.startswith(part)]
        print(f"{first:38} {statistics.median(times[first]) * 1e3:8.1f} ms")
        for name in others:
            ratio = statistics.median(b / a for a, b in zip(times[first], times[name], strict=True))
            print(f"{name:38} {statistics.median(times[name]) * 1e3:8.1f} ms, {ratio:.3f} of the first")
