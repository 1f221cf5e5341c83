"""Counters on a full disk and in a removed folder."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import mmap_dict

from tests.small_disk import fill, small_disk
from utils.observability import counter_files
from utils.observability.counter_files import INITIAL_BYTES, counter_file_class

ROOT = Path(__file__).resolve().parents[4]
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def make_counters(tmp_path, monkeypatch):
    """Return a function that makes counter files, which check their place at every write."""
    monkeypatch.setattr(counter_files, "CHECK_INTERVAL_S", -1.0)
    kind, open_files = counter_file_class(mmap_dict.MmapedDict), []

    def make(name: str = "counter_1.db"):
        open_files.append(kind(str(tmp_path / "metrics" / name)))
        return open_files[-1]

    yield make
    for file in open_files:
        file.close()


@pytest.fixture
def folder(tmp_path) -> Path:
    path: Path = tmp_path / "metrics"
    path.mkdir()
    return path


@pytest.fixture
def toggle_full(monkeypatch):
    """Return a function that makes the disk full, and on a second call empty."""
    allocate, is_full = os.posix_fallocate, False

    def limited(descriptor: int, offset: int, length: int) -> None:
        if is_full:
            raise FULL
        allocate(descriptor, offset, length)

    def toggle() -> None:
        nonlocal is_full
        is_full = not is_full

    monkeypatch.setattr(os, "posix_fallocate", limited)
    return toggle


def stored(path: Path) -> dict[str, float]:
    """Return the values that `/metrics` reads from a file."""
    return {key: value for key, value, *_ in mmap_dict.MmapedDict.read_all_values_from_file(str(path))}


def levels(log) -> list[str]:
    return [level for level, _ in log()]


def test_counter_file_has_all_blocks_allocated(folder, make_counters):
    counters = make_counters()
    path = folder / "counter_1.db"
    assert path.stat().st_size == INITIAL_BYTES
    keys = [f"{number:05d}{'x' * 2000}" for number in range(100)]
    for number, key in enumerate(keys):
        counters.write_value(key, number, 0.0)
        assert path.stat().st_blocks * 512 >= path.stat().st_size == counters._capacity
    assert path.stat().st_size > INITIAL_BYTES
    assert stored(path) == {key: float(number) for number, key in enumerate(keys)}


def test_counter_file_of_an_earlier_process_is_continued(folder, make_counters):
    path = folder / "counter_1.db"
    sparse = mmap_dict.MmapedDict(str(path))
    sparse.write_value("a", 3.0, 0.0)
    sparse.close()
    counters = make_counters()
    assert counters.read_value("a") == (3.0, 0.0)
    assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_counters_are_in_memory_if_no_file_can_be_created(folder, make_counters, toggle_full, log):
    toggle_full()
    counters, gauges = make_counters(), make_counters("gauge_all_1.db")
    counters.write_value("a", 1.0, 0.0)
    gauges.write_value("b", 2.0, 0.0)
    assert counters.read_value("a") == (1.0, 0.0)
    assert list(folder.iterdir()) == []
    assert levels(log) == ["WARNING"]
    toggle_full()
    counters.write_value("a", 5.0, 0.0)
    assert levels(log) == ["WARNING"]
    gauges.write_value("b", 6.0, 0.0)
    assert stored(folder / "counter_1.db") == {"a": 5.0}
    assert stored(folder / "gauge_all_1.db") == {"b": 6.0}
    assert levels(log) == ["WARNING", "INFO"]


def test_counters_move_to_memory_and_back_if_the_file_cannot_grow(folder, make_counters, toggle_full, log):
    counters, path = make_counters(), folder / "counter_1.db"
    keys = [f"{number:05d}{'x' * 2000}" for number in range(100)]
    counters.write_value(keys[0], 1.0, 0.0)
    toggle_full()
    for key in keys:
        counters.write_value(key, 7.0, 0.0)
    assert {counters.read_value(key) for key in keys} == {(7.0, 0.0)}
    before = stored(path)
    assert 0 < len(before) < len(keys)
    assert sorted(entry.name for entry in folder.iterdir()) == ["counter_1.db"]
    toggle_full()
    counters.write_value(keys[0], 8.0, 0.0)
    assert stored(path) == {**dict.fromkeys(keys, 7.0), keys[0]: 8.0}
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    assert levels(log) == ["WARNING", "INFO"]


def test_removed_counter_file_is_restored(folder, make_counters, log):
    counters = make_counters()
    counters.write_value("a", 1.0, 0.0)
    shutil.rmtree(folder)
    counters.write_value("a", 2.0, 0.0)
    assert counters.read_value("a") == (2.0, 0.0)
    assert levels(log) == ["WARNING"]
    folder.mkdir()
    counters.write_value("b", 3.0, 0.0)
    assert stored(folder / "counter_1.db") == {"a": 2.0, "b": 3.0}


SCRIPT = """
import os, sys
from pathlib import Path
from utils.observability.counter_files import allocate_counters
if sys.argv[1] == "allocated":
    allocate_counters()
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
counter = Counter("answers", "of a test", ["path"])
counter.labels("first").inc()
print("counting", flush=True)
sys.stdin.readline()
for number in range(400):
    counter.labels(f"{number:0500d}").inc()
assert counter.labels("first")._value.get() == 1.0
registry = CollectorRegistry()
MultiProcessCollector(registry)
assert 'answers_total{path="first"} 1.0' in generate_latest(registry).decode()
"""


@pytest.mark.parametrize(("mode", "status"), [("allocated", 0), ("sparse", -signal.SIGBUS)])
def test_full_disk_does_not_kill_a_counting_process(tmp_path, mode, status):
    with small_disk(tmp_path / "disk", 1) as disk:
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(disk)}
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, mode],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "counting\n"
            fill(disk)
            process.communicate("go\n")
        assert process.returncode == status
