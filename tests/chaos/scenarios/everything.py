"""Costly requests to `/everything`: another caller waits for a bounded time, and keeps the
cached images.
"""

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import requests

from harness.load import crowd
from tests.chaos.attack import AttackedService
from tests.chaos.figures import Figure, Start
from tests.chaos.valid_requests import EVERYTHING, valid_request

CALLERS = ("control", "other", "eve", "mallory")
HEADERS = {name: {"X-API-Key": f"{name}-key-of-24-letters......"} for name in CALLERS}
CACHE_BYTES = 64 * 2**20
"""Size of the cache: small, so that an attack of seconds can fill it."""
IMAGES = 5
MAX_BATCH_S, MAX_WAIT_S = 5.0, 10.0
"""Goals for a batch, and for the 16 points of another caller: a batch of each attacker goes
first."""
LARGE = {name: EVERYTHING[name] for name in ("content", "size")}
REGIONS = {**EVERYTHING, "image_source": "by id"}
CROPS = {"crop_n_layers": 3, "thresholds": 1.0, "size": (2000, 1500)}
SIXTEEN_POINTS = valid_request("/everything", HEADERS["other"], points_per_side=4)


def everything(start: Start, seconds: float = 30) -> Iterator[Figure]:
    """Clean up small regions of large images, and fill the cache with crops and new images."""
    keys = ",".join(f"{name}:{headers['X-API-Key']}" for name, headers in HEADERS.items())
    settings = {"MOBILE_SAM_API_KEYS": keys, "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES)}
    with start(**settings) as server:

        def ask(caller: str, path: str, **options: Any) -> requests.Response:
            return server.send(valid_request(path, HEADERS[caller], **options), stream=True)

        target = AttackedService(server, headers=HEADERS["control"])
        attackers = ("eve", "mallory")
        for caller in attackers:
            ask(caller, "/embed", **LARGE).raise_for_status()
        lines = ask("eve", "/everything", **REGIONS, progress=True).iter_lines()
        moments = [time.monotonic() for _ in lines]
        longest = max(
            (after - before for before, after in itertools.pairwise(moments)), default=float("inf")
        )
        name = "small regions of 25 megapixels by 2 callers"
        yield Figure(
            name, f"longest of {len(moments) - 1} batches of 16 points", longest, MAX_BATCH_S, "s"
        )
        other = partial(crowd, server.port, lambda: SIXTEEN_POINTS, 1, pause=0.5)
        with other() as alone:
            time.sleep(5)
        attacks = [valid_request("/everything", HEADERS[caller], **REGIONS) for caller in attackers]
        with other() as beside:
            yield from target.figures(name, attacks, 4, seconds)
        waited, usual = (
            max(outcome.seconds for outcome in each) for each in (beside.all, alone.all[1:])
        )
        yield Figure(
            name,
            f"slowest 16 points of another caller (alone {usual:.1f} s)",
            waited,
            MAX_WAIT_S,
            "s",
        )
        failed = len(beside.all) - len(beside.answered())
        yield Figure(name, f"failed of {len(beside.all)} requests of another caller", failed, 0)

        name = "crops and new images that fill the cache"
        new = {"image_source": "new"}
        ids = [ask("other", "/embed", **new).json()["image_id"] for _ in range(IMAGES)]
        crops = valid_request("/everything", HEADERS["eve"], **CROPS)
        attacks = [
            replace(crops, renew=_other_overlap),
            valid_request("/embed", HEADERS["mallory"], **new),
        ]
        yield from target.figures(name, attacks, 4, seconds)
        clicks = [{"image_id": each, "pos_coords": [[1, 1]]} for each in ids]
        answers = [
            requests.post(f"{server.url}/mobile_sam", json=each, headers=HEADERS["other"])
            for each in clicks
        ]
        lost = sum(answer.status_code != 200 for answer in answers)
        yield Figure(name, f"images of another caller no longer cached, of {IMAGES}", lost, 0)


def _other_overlap(body: bytes) -> bytes:
    """Return a request for other crops."""
    return body.replace(
        b'"crop_overlap_ratio": 0.0', b'"crop_overlap_ratio": %.6f' % random.random()
    )
