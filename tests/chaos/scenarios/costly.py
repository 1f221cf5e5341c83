"""Costliest valid requests, and large answers that the caller does not read."""

import functools
from collections.abc import Iterator

from tests.chaos import hostile
from tests.chaos.attack import AttackedService
from tests.chaos.costliest import Trials, report, search
from tests.chaos.figures import Figure, Start
from tests.chaos.request_space import point
from utils.settings import INTEGRATIONS

ALL_TOOLS = {
    "MOBILE_SAM_INTEGRATIONS": ",".join(INTEGRATIONS),
    "MOBILE_SAM_IMAGE_ORIGINS": "http://127.0.0.1:9",  # Label Studio's set-up needs one
}
many_objects = functools.partial(point, image_source="by id", objects=256)
LARGEST_ANSWERS = (
    many_objects(mask_format="npy", segmented_image="cutout", low_res_mask=True, size=(5000, 5000)),
    many_objects(mask_format="json", segmented_image="cutout", size=(2000, 1500)),
    many_objects(low_res_mask=True, multimask_output=True),
)


def costly(start: Start, seconds: float = 60, search_s: float = 60) -> Iterator[Figure]:
    """Send the costliest requests that a search finds, from twice as many callers as the service admits."""
    with start(**ALL_TOOLS) as server:
        target, trials = AttackedService(server), Trials(server)
        found = search(trials, search_s)
        print(report(trials, found), flush=True)
        requests = [trials.request(each) for each in dict.fromkeys(found.values())]
        yield from target.figures("costliest valid requests", requests, target.connections, seconds)


def unread(start: Start, seconds: float = 30) -> Iterator[Figure]:
    """Request the largest answers and read nothing, or a kilobyte per second."""
    with start() as server:
        target, trials = AttackedService(server), Trials(server)
        requests = [trials.request(largest) for largest in LARGEST_ANSWERS]
        print(report(trials, {f"bytes {n}": asked for n, asked in enumerate(trials.costs)}), flush=True)
        name = "large answers not read, or at 1 kB/s"
        yield from target.figures(name, requests, target.connections, seconds, attempt=hostile.leave_unread)
