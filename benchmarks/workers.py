"""Processes that run functions on demand and time them, each with memory of its own."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.stats import seconds

ENCODE, CLICK = "encode", "click"
"""Work of the models: an image's embedding, and one click's mask on the last embedding."""


def serve(work: Mapping[str, Callable[[], object]]) -> None:
    """Run the functions whose names come on standard input, one a line, and print the seconds of each."""
    for line in sys.stdin:
        print(seconds(work[line.strip()]), flush=True)


class Worker:
    """Process of a command that calls `serve`; the end of a `with` block ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._folder = Path(f"/proc/{self._process.pid}")

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, name: str) -> float:
        """Return the seconds of one run; raise OSError or ValueError if the process has ended."""
        assert self._process.stdin
        assert self._process.stdout
        print(name, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def forget_peak(self) -> None:
        """Begin to observe `peak_bytes` anew."""
        (self._folder / "clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """Return the highest resident memory; shared pages count."""
        (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", (self._folder / "status").read_text())
        return 1024 * int(kilobytes)
