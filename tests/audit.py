"""Known vulnerabilities in the locked requirements: `make audit`.

pip-audit asks a public service what is known of each version. Where that cannot be reached nothing is found out, which
is no fault of the requirements: one line says so, and the exit status is 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement

from utils.environment import MAX_PYTHON, MIN_PYTHON, ROOT

FILES = [ROOT / "requirements" / f"{name}.txt" for name in ("cpu", "gpu", "dev", "uv")]
EXCEPTIONS: dict[str, str] = {}
"""Vulnerabilities that may stay: id or alias of each (`CVE-...`), and why it does no harm here or cannot be helped."""

Pin = tuple[str, str]
"""Name and version."""
CANARY: Pin = ("jinja2", "2.4.1")
"""Of 2010, with vulnerabilities known for years. A mirror that has packages but knows nothing of them finds none here
either; pip-audit itself takes that for an answer."""
UNREACHED = re.compile(r"requests\.exceptions\.\w+|ServiceError|your network may be blocking this service")
"""What pip-audit says when the service does not answer, or not as it should."""
PATIENCE = 600
"""Seconds for one run of pip-audit."""


class Unreachable(Exception):
    """Nobody who knows of vulnerabilities can be asked."""


def pins(texts: Iterable[str]) -> set[Pin]:
    """What requirements install on this platform, with any of the Pythons that the service runs on."""
    minors = range(MIN_PYTHON[1], MAX_PYTHON[1] + 1)
    pythons = [{"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in minors]
    found = set()
    for line in "\n".join(texts).splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            if requirement.marker is None or any(requirement.marker.evaluate(python) for python in pythons):
                found.add((requirement.name, str(requirement.specifier).removeprefix("==")))
    return found


def rounds(all_pins: Iterable[Pin]) -> list[dict[str, str]]:
    """The pins in as few parts as have no package twice, which pip-audit refuses."""
    parts: list[dict[str, str]] = []
    for name, version in sorted(all_pins):
        part = next((part for part in parts if name not in part), None)
        if part is None:
            part = {}
            parts.append(part)
        part[name] = version
    return parts


def ask(part: dict[str, str]) -> list[dict[str, Any]]:
    """What pip-audit says of each version.

    Raises:
        Unreachable: it could not ask.
        SystemExit: it failed for another reason.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(f"{name}=={version}\n" for name, version in part.items()))
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pip_audit", "--requirement", str(file), *options],
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"no answer within {PATIENCE} s") from None
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        unreached = UNREACHED.search(done.stderr)
        if unreached:
            raise Unreachable(unreached.group()) from None
        words = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise SystemExit(f"error: pip-audit: {words}") from None
    return dependencies


def ask_all(files: Iterable[Path]) -> list[dict[str, Any]]:
    """What is known of all versions in the files.

    Raises:
        Unreachable: nothing can be.
    """
    if not any(known.get("vulns") for known in ask(dict([CANARY]))):
        raise Unreachable(f"what answers knows of none, not even of {' '.join(CANARY)}")
    parts = rounds(pins(file.read_text() for file in files))
    return [dependency for part in parts for dependency in ask(part)]


def main() -> int:
    """Report what is found; the exit status is 1 where that is not all among the exceptions."""
    try:
        dependencies = ask_all(FILES)
    except Unreachable as reason:
        print(f"audit: not done, no service that knows of vulnerabilities can be reached from here ({reason})")
        return 0
    applied: set[str] = set()
    refused = 0
    for dependency in dependencies:
        if "skip_reason" in dependency:
            print(f"not audited: {dependency['skip_reason']}")
        for vulnerability in dependency.get("vulns", []):
            names = [vulnerability["id"], *vulnerability["aliases"]]
            excepted = EXCEPTIONS.keys() & names
            applied |= excepted
            if not excepted:
                refused += 1
                fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
                print(f"{dependency['name']} {dependency['version']}: {', '.join(names)}; fixed in {fixed}")
                print(f"    {vulnerability['description'][:300]}")
    for name in EXCEPTIONS.keys() - applied:
        print(f"the exception {name} no longer applies: remove it from {Path(__file__).relative_to(ROOT)}")
    print(f"audit: {len(dependencies)} versions; vulnerabilities: {refused}; exceptions that apply: {len(applied)}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
