"""Workloads: clicks on new images, on a known image, or both."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator

from benchmarks.arms import Arm
from benchmarks.load import Request
from benchmarks.photo import POINTS, photo, unseen

COLD, CACHED, MIXED = WORKLOADS = ("cold", "cached", "mixed")
"""Every click on a new image; every click on a known one; every fifth on a new one."""
NEW_OF_MIXED = 5


class Clicks:
    """Generator of requests; new images also differ from those of earlier runs, which a cache may still hold."""

    def __init__(self) -> None:
        self._photo = photo()
        self._id = hashlib.sha256(self._photo).hexdigest()
        self._numbers: Iterator[int] = itertools.count(time.time_ns())
        self._points = itertools.cycle(POINTS)

    def new(self, arm: Arm) -> Request:
        """Return a click on an image that no server has seen."""
        return arm.click(unseen(self._photo, next(self._numbers)), next(self._points))

    def known(self, arm: Arm) -> Request:
        """Return a click on `photo()`, by its id if the server supports that."""
        return arm.click(self._id if arm.takes_image_ids else self._photo, next(self._points))

    def of(self, workload: str, arm: Arm, count: int) -> list[Request]:
        """Return `count` requests of a workload."""
        return [self.new(arm) if is_new(workload, index) else self.known(arm) for index in range(count)]


def is_new(workload: str, index: int) -> bool:
    """Return whether the request at this index of a workload is on a new image."""
    return workload == COLD or (workload == MIXED and index % NEW_OF_MIXED == 0)


def new_images(workload: str, count: int) -> int:
    """Return how many of the first `count` requests are on new images."""
    return sum(is_new(workload, index) for index in range(count))
