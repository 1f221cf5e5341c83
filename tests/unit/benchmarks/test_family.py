"""Processes of the comparison of the SAM family: their turns and their memory."""

import sys

from benchmarks.family import measured
from benchmarks.workers import Worker
from harness import ROOT
from harness.repository import make_repository

COUNTING = """
from benchmarks.workers import serve
serve({"encode": lambda: bytearray(2**28), "click": list})
"""


def test_turns_of_processes_give_their_shortest_times_and_highest_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    repository = make_repository(tmp_path / "repository", "builtin")
    graphs = [sys.executable, "-m", "benchmarks.raw", str(repository), *["onnxruntime f32"] * 2]
    with Worker([sys.executable, "-c", COUNTING]) as other, Worker(graphs) as ours:
        (image_ms, click_ms, memory_gb), (our_image_ms, our_click_ms, _) = measured([other, ours], 2, "turns")
    assert 0 < click_ms < image_ms
    assert 0 < our_click_ms < our_image_ms
    assert 2**28 / 1e9 < memory_gb < 2**29 / 1e9
