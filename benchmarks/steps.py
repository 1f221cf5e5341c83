"""Steps of a long check. Each prints what it finds at once and keeps it in a file, so that a later
call goes on where the last one has ended.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

Report = Callable[[str], None]
"""Prints a text and adds it to the step's file."""
Step = Callable[[Report], bool]
"""Does the work of a step and returns whether all is well."""

PASSED, FAILED = "passed", "failed"


def run_steps(steps: Mapping[str, Step], folder: Path) -> bool:
    """Run the steps that have not passed yet; return whether all have passed now.

    Args:
        steps: the steps by name, in order.
        folder: folder with a file for each step that has run.
    """
    failed = []
    for name, step in steps.items():
        if has_passed(name, folder):
            print(f"{name}: {PASSED} before, see {file_of(name, folder)}", flush=True)
        elif not run_step(name, step, folder):
            failed.append(name)
    if failed:
        print(f"{FAILED}: {', '.join(failed)}", flush=True)
    return not failed


def run_step(name: str, step: Step, folder: Path) -> bool:
    """Run a step and return whether it passed; an exception is reported like all it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with file_of(name, folder).open("w", encoding="utf-8") as file:

        def report(text: str) -> None:
            print(text, flush=True)
            file.write(f"{text}\n")
            file.flush()

        report(f"== {name}")
        try:
            is_passed = step(report)
        except Exception:  # the other steps run nevertheless
            report(traceback.format_exc())
            is_passed = False
        report(f"{_verdict(name, is_passed=is_passed)} after {time.monotonic() - began:.0f} s")
    return is_passed


def has_passed(name: str, folder: Path) -> bool:
    """Return whether a step has passed: its file's last line says so."""
    file = file_of(name, folder)
    if not file.is_file():
        return False
    lines = file.read_text(encoding="utf-8").splitlines()
    return bool(lines) and lines[-1].startswith(_verdict(name, is_passed=True))


def file_of(name: str, folder: Path) -> Path:
    """Return the file with what a step has printed."""
    return folder / f"{name}.txt"


def _verdict(name: str, *, is_passed: bool) -> str:
    return f"{name}: {PASSED if is_passed else FAILED}"
