"""Memory that is kept at hand, and for how long."""

from __future__ import annotations

import threading

import mobile_sam_masks as masks
import numpy as np
from mobile_sam_unused import FreeWhenUnused


def test_what_is_kept_is_forgotten_once_after_the_last_request():
    forgotten = threading.Semaphore(0)
    unused = FreeWhenUnused(forgotten.release, after_s=0.01)
    assert not forgotten.acquire(timeout=0.1)  # nothing was used yet
    for _ in range(2):
        with unused.used():
            pass
        assert forgotten.acquire(timeout=10)
        assert not forgotten.acquire(timeout=0.1)


def test_nothing_is_forgotten_while_a_request_is_worked_on():
    forgotten = threading.Semaphore(0)
    unused = FreeWhenUnused(forgotten.release, after_s=0.01)
    with unused.used():
        pass
    with unused.used():
        working = forgotten.acquire(timeout=0.5)
    assert forgotten.acquire(timeout=10)
    assert not working or not forgotten.acquire(timeout=0.1)


def test_the_logits_of_the_last_mask_can_be_forgotten():
    masks.upsample(np.zeros((256, 256), np.float32), (1024, 1024), (50, 50))
    assert masks._room.cache_info().currsize == 1
    masks.forget_logits()
    assert masks._room.cache_info().currsize == 0
