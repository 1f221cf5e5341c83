"""Release of memory in an idle process."""

import threading

import numpy as np

from orchestrator import masks
from orchestrator.memory import IdleMemoryRelease


def test_memory_is_released_once_after_the_last_request():
    released = threading.Semaphore(0)
    idle_release = IdleMemoryRelease(released.release, after_s=0.01)
    assert not released.acquire(timeout=0.1)  # no request yet
    for _ in range(2):
        with idle_release.request():
            pass
        assert released.acquire(timeout=60)
        assert not released.acquire(timeout=0.1)


def test_memory_is_not_released_during_a_request():
    released = threading.Semaphore(0)
    idle_release = IdleMemoryRelease(released.release, after_s=0.01)
    with idle_release.request():
        pass
    with idle_release.request():
        working = released.acquire(timeout=0.5)
    assert released.acquire(timeout=60)
    assert not working or not released.acquire(timeout=0.1)


def test_release_logits_drops_the_buffer():
    masks.upsample(np.zeros((256, 256), np.float32), (1024, 1024), (50, 50))
    assert masks._reused_buffer.cache_info().currsize == 1
    masks.release_logits()
    assert masks._reused_buffer.cache_info().currsize == 0
