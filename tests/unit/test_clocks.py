"""The clock that people and NTP set: it decides nothing but what is listed here."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "utils",
    "orchestrator",
    "sam_onnx",
    "client/mobile_sam_client",
    "triton_backends",
    "model_repository",
)
WALL_CLOCK = {
    "time": {"time", "time_ns"},
    "datetime": {"now", "utcnow", "today", "fromtimestamp"},
    "date": {"today", "fromtimestamp"},
}
"""Functions that read it, by their module or class."""
FILE_TIMES = {"st_mtime", "st_mtime_ns", "st_ctime", "getmtime"}
USES = {
    "orchestrator/cache_files.py": (
        "files by their last use; a time to come is replaced by the present one"
    ),
    "orchestrator/triton_io.py": "a metric; an unloaded model has 0 there",
    "utils/background/encoder.py": "the time of a file, which is set by the monotonic clock",
    "utils/inference/contents.py": "whether a file has changed",
    "utils/observability/logs.py": "the time of a log line",
    "utils/page_version.py": "whether a file has changed",
    "utils/triton/installation.py": "whether a file has changed",
    "utils/triton/snapshot.py": "whether a file has changed",
}


def wall_clock_uses(file: Path) -> int:
    """Return how often a file reads the wall clock, or a time by it."""
    uses = 0
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            uses += node.attr in FILE_TIMES or node.attr in WALL_CLOCK.get(owner, ())
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            uses += any(alias.name in WALL_CLOCK["time"] for alias in node.names)
    return uses


def test_durations_and_decisions_are_by_the_monotonic_clock():
    uses = Counter[str]()
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            uses[str(file.relative_to(ROOT))] += wall_clock_uses(file)
    assert {file for file, count in uses.items() if count} == set(USES)
