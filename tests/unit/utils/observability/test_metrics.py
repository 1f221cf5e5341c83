"""The memory of metrics files."""

import os
import subprocess
import sys
from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

from tests.small_disk import fill, small_disk
from utils.observability import metrics

COUNT = """
import sys
from utils.observability.metrics import prepare_files
prepare_files()
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
counter = Counter("answers", "of a test", ["path"])
counter.labels("first").inc()
print("counting", flush=True)
sys.stdin.readline()
for number in range(190):
    counter.labels(f"{number:0500d}").inc()
MultiProcessCollector(registry := CollectorRegistry())
assert 'answers_total{path="first"} 1.0' in generate_latest(registry).decode()
"""


def test_full_shared_memory_kills_no_counting_process(tmp_path):
    with small_disk(tmp_path / "disk", 2) as disk:
        process = subprocess.Popen(
            [sys.executable, "-c", COUNT],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(disk)},
            cwd=Path(__file__).resolve().parents[4],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "counting\n"
        fill(disk)
        process.communicate("go\n")
        assert process.returncode == 0


def test_no_room_for_metrics_files_is_a_warning(tmp_path, monkeypatch, log):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "nowhere"))
    metrics.prepare_files()
    assert {level for level, _ in log()} == {"WARNING"}


def test_files_of_dead_workers_lose_their_gauges_and_reserved_memory_but_no_count(
    tmp_path, monkeypatch
):
    gone, alive = 2**22 + 1, os.getpid()
    for pid in (gone, alive):
        for kind in ("counter", "gauge_livesum"):
            with (tmp_path / f"{kind}_{pid}.db").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 2**16)
            values = MmapedDict(str(tmp_path / f"{kind}_{pid}.db"))
            values.write_value("a", 3.0, 0.0)
            values.close()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    metrics.prepare_files()
    sizes = {entry.name: entry.stat().st_size for entry in tmp_path.iterdir()}
    own = {f"{kind}_{alive}.db" for kind in ("counter", "gauge_livesum", "histogram")}
    assert sizes.keys() == {f"counter_{gone}.db", *own}
    assert sizes[f"counter_{gone}.db"] < 100 < sizes[f"counter_{alive}.db"]
    (count,) = MmapedDict.read_all_values_from_file(tmp_path / f"counter_{gone}.db")
    assert count[:2] == ("a", 3.0)


COUNT_BY_KEY = """
import sys
from utils.observability.context import KEY_NAME
from utils.observability.metrics import Counts
from prometheus_client import REGISTRY
names = None if sys.argv[1] == "off" else ["first", "second", "first"]
counts = Counts(names)
for name in ["", "first", "second", *(f"later-{number}" for number in range(200)), "first"]:
    KEY_NAME.set(name)
    counts.count_answer("/embed", 200, "ok")
for metric in REGISTRY.collect():
    for sample in metric.samples:
        if sample.name == "mobile_sam_answers_total":
            print(sample.labels.get("key", "no label"), sample.value)
"""


def counted(setting: str) -> dict[str, float]:
    """Return the counts by key of 204 answers to 203 callers, one of them without a key."""
    command = [sys.executable, "-c", COUNT_BY_KEY, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rows = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {key: float(value) for key, _, value in rows}


def test_answers_are_counted_by_key_with_a_bounded_number_of_names():
    by_key = counted("on")
    assert len(by_key) == metrics.MAX_KEYS + 2
    assert (by_key[""], by_key["first"], by_key["second"], by_key["later-97"]) == (1, 2, 1, 1)
    assert by_key["other"] == 102
    assert sum(by_key.values()) == 204


def test_answers_have_no_key_by_default():
    assert counted("off") == {"no label": 204}
