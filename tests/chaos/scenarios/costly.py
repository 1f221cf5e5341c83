"""Costliest valid requests, and large answers that the caller does not read."""

from collections.abc import Iterator

from tests.chaos import hostile
from tests.chaos.attack import AttackedService
from tests.chaos.figures import Figure, Start
from tests.chaos.valid_requests import COSTLIEST, fitting
from utils.settings import INTEGRATIONS

ALL_TOOLS = {
    "MOBILE_SAM_INTEGRATIONS": ",".join(INTEGRATIONS),
    "MOBILE_SAM_IMAGE_ORIGINS": "http://127.0.0.1:9",  # Label Studio's set-up needs one
}
LARGEST_ANSWERS = (
    {
        "mask_format": "npy",
        "segmented_image": "cutout",
        "low_res_mask": True,
        "size": (5000, 5000),
    },
    {"mask_format": "json", "segmented_image": "cutout", "size": (2000, 1500)},
    {"low_res_mask": True, "multimask_output": True},
)
"""Options of requests for as many objects as the service allows."""


def costly(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Send the costliest requests, from twice as many callers as the service admits."""
    with start(**ALL_TOOLS) as server:
        target = AttackedService(server)
        requests = []
        for path, options in COSTLIEST:
            request, answer = fitting(server, path, **options)
            took = answer.elapsed.total_seconds()
            print(f"{path}: {answer.status_code}, {took:.1f} s, {len(answer.content)} bytes")
            requests.append(request)
        yield from target.figures("costliest valid requests", requests, target.connections, seconds)


def unread(start: Start, seconds: float = 30) -> Iterator[Figure]:
    """Request the largest answers and read nothing, or a kilobyte per second."""
    with start() as server:
        target = AttackedService(server)
        requests = []
        for options in LARGEST_ANSWERS:
            fixed = {"image_source": "by id", "objects": 256}
            request, answer = fitting(server, "/mobile_sam", **fixed, **options)
            print(f"{answer.status_code}, {len(answer.content)} bytes")
            requests.append(request)
        name = "large answers not read, or at 1 kB/s"
        yield from target.figures(
            name, requests, target.connections, seconds, attempt=hostile.leave_unread
        )
