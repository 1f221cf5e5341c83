"""Costly requests to `/everything`: another caller waits for a bounded time, and keeps the cached images."""

import json
import random
import time
from collections.abc import Iterator
from functools import partial

import requests

from tests.chaos.attack import Target, noise
from tests.chaos.callers import click, crowd, photo
from tests.chaos.costliest import Trials, report
from tests.chaos.figures import Figure, Start
from tests.chaos.hostile import Request
from tests.chaos.request_space import point, renew_image, request

CALLERS = ("innocent", "other", "eve", "mallory")
HEADERS = {name: {"X-API-Key": f"{name}-key-of-24-letters......"} for name in CALLERS}
CACHE_BYTES = 64 * 2**20
"""Size of the cache: small, so that an attack of seconds can fill it."""
IMAGES = 5
MAX_S = 10.0
"""Goal for the 16-point request of another caller: one costly batch per attacker goes first."""
REGIONS = [
    point(
        "/everything",
        points_per_side=4,
        min_mask_region_area=10**9,
        thresholds=0.0,
        content="noise",
        image_source="by id",
        size=size,
    )
    for size in ((2000, 1500), (4000, 3000), (5000, 5000))
]
CROPS = point("/everything", crop_n_layers=3, thresholds=1.0, size=(2000, 1500))
NEW = point("/embed", image_source="new")


def everything(start: Start, seconds: float = 30) -> Iterator[Figure]:
    """Clean up small regions of large images, and fill the cache with crops and new images."""
    keys = ",".join(f"{name}:{headers['X-API-Key']}" for name, headers in HEADERS.items())
    settings = {"MOBILE_SAM_API_KEYS": keys, "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES)}
    with start(**settings, **noise()) as server:
        target = Target(server, headers=HEADERS["innocent"])
        name = "small regions by 2 callers"
        eve, mallory = (Trials(server, HEADERS[caller], timeout_s=60) for caller in ("eve", "mallory"))
        regions = max(REGIONS, key=lambda at: eve.cost(at).work_s)
        print(report(eve, {f"work in small regions {at[-1]}": at for at in REGIONS}), flush=True)
        yield Figure(name, f"one batch of 16 points at {regions[-1]}", eve.cost(regions).latency_s, MAX_S, "s")
        body = json.dumps({"input_image": json.loads(click(photo(7))[1])["input_image"], "points_per_side": 4}).encode()
        other = partial(crowd, server.port, lambda: ("/everything", body), 1, pause=0.5, headers=HEADERS["other"])
        with other() as alone:
            time.sleep(5)
        with other() as beside:
            yield from target.figures(name, [eve.request(regions), mallory.request(regions)], 4, seconds)
        waited, usual = (max(outcome.seconds for outcome in each) for each in (beside.all, alone.all[1:]))
        yield Figure(name, f"slowest 16 points of another caller (alone {usual:.1f} s)", waited, MAX_S, "s")
        failed = len(beside.all) - len(beside.answered())
        yield Figure(name, f"failed of {len(beside.all)} requests of another caller", failed, 0)

        def ask(path: str, **fields: object) -> requests.Response:
            return requests.post(server.url + path, json=fields, headers=HEADERS["other"], timeout=60)

        name = "crops and new images that fill the cache"
        ids = [
            ask("/embed", input_image=json.loads(click(photo(number))[1])["input_image"]).json()["image_id"]
            for number in range(IMAGES)
        ]
        attacks = [
            Request(*request(CROPS)[:2], HEADERS["eve"], renew=_other_overlap),
            Request(*request(NEW)[:2], HEADERS["mallory"], renew=renew_image),
        ]
        yield from target.figures(name, attacks, 4, seconds)
        lost = sum(ask("/mobile_sam", image_id=each, pos_coords=[[1, 1]]).status_code != 200 for each in ids)
        yield Figure(name, f"images of another caller no longer cached, of {IMAGES}", lost, 0)


def _other_overlap(body: bytes) -> bytes:
    """Return a request for other crops."""
    return body.replace(b'"crop_overlap_ratio": 0.0', b'"crop_overlap_ratio": %.6f' % random.random())
