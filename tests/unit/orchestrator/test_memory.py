"""Release of memory in an idle process."""

import threading
import time
from types import SimpleNamespace

import numpy as np

from orchestrator import masks, memory
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


def test_memory_is_not_released_during_a_request(monkeypatch):
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda _: time.sleep(0.01))
    monkeypatch.setattr(memory, "time", clock)
    released = threading.Semaphore(0)
    idle_release = IdleMemoryRelease(released.release, after_s=10)
    with idle_release.request():
        pass
    with idle_release.request():
        now_s[0] = 100.0
        assert not released.acquire(timeout=0.3)
    assert not released.acquire(timeout=0.1)
    now_s[0] = 110.0
    assert released.acquire(timeout=60)


def test_release_logits_drops_the_buffer():
    masks.upsample(np.zeros((256, 256), np.float32), (1024, 1024), (50, 50))
    assert masks._reused_buffer.cache_info().currsize == 1
    masks.release_logits()
    assert masks._reused_buffer.cache_info().currsize == 0
