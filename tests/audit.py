"""Audit of the locked requirements for known vulnerabilities: `make audit`.

pip-audit queries a public service. If that is unreachable, the audit prints one line and exits with status 0.
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
"""Accepted vulnerabilities: id or alias (`CVE-...`), and why it does no harm here or cannot be fixed."""

Pin = tuple[str, str]
"""Name and version."""
CANARY: Pin = ("jinja2", "2.4.1")
"""Version with known vulnerabilities. A package mirror without vulnerability data reports none even for this one."""
UNREACHABLE = re.compile(r"requests\.exceptions\.\w+|ServiceError|your network may be blocking this service")
"""Errors of pip-audit when the service does not answer, or not as expected."""
TIMEOUT_S = 600
"""Time limit for one run of pip-audit."""


class Unreachable(Exception):
    """Vulnerability data is not available."""


def pins(texts: Iterable[str]) -> set[Pin]:
    """Return the versions that requirements install on this platform with any supported Python."""
    minors = range(MIN_PYTHON[1], MAX_PYTHON[1] + 1)
    pythons = [{"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in minors]
    found = set()
    for line in "\n".join(texts).splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            if requirement.marker is None or any(requirement.marker.evaluate(python) for python in pythons):
                found.add((requirement.name, str(requirement.specifier).removeprefix("==")))
    return found


def split(all_pins: Iterable[Pin]) -> list[dict[str, str]]:
    """Split pins into parts without duplicate packages, which pip-audit rejects."""
    parts: list[dict[str, str]] = []
    for name, version in sorted(all_pins):
        part = next((part for part in parts if name not in part), None)
        if part is None:
            part = {}
            parts.append(part)
        part[name] = version
    return parts


def audit(part: dict[str, str]) -> list[dict[str, Any]]:
    """Return pip-audit's report on each version.

    Raises:
        Unreachable: pip-audit cannot reach the service.
        SystemExit: pip-audit failed for another reason.
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
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"no answer within {TIMEOUT_S} s") from None
    try:
        dependencies: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = UNREACHABLE.search(done.stderr)
        if reason:
            raise Unreachable(reason.group()) from None
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"error: pip-audit: {message}") from None
    return dependencies


def audit_files(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Return pip-audit's report on all versions in the files.

    Raises:
        Unreachable: vulnerability data is not available.
    """
    if not any(report.get("vulns") for report in audit(dict([CANARY]))):
        raise Unreachable(f"the index knows no vulnerabilities, not even of {' '.join(CANARY)}")
    parts = split(pins(file.read_text() for file in files))
    return [dependency for part in parts for dependency in audit(part)]


def main() -> int:
    """Print the vulnerabilities; return 1 unless all are accepted."""
    try:
        dependencies = audit_files(FILES)
    except Unreachable as reason:
        print(f"audit: skipped, no source of vulnerability data is reachable ({reason})")
        return 0
    applied: set[str] = set()
    open_count = 0
    for dependency in dependencies:
        if "skip_reason" in dependency:
            print(f"not audited: {dependency['skip_reason']}")
        for vulnerability in dependency.get("vulns", []):
            names = [vulnerability["id"], *vulnerability["aliases"]]
            excepted = EXCEPTIONS.keys() & names
            applied |= excepted
            if not excepted:
                open_count += 1
                fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
                print(f"{dependency['name']} {dependency['version']}: {', '.join(names)}; fixed in {fixed}")
                print(f"    {vulnerability['description'][:300]}")
    for name in EXCEPTIONS.keys() - applied:
        print(f"the exception {name} no longer applies: remove it from {Path(__file__).relative_to(ROOT)}")
    print(f"audit: {len(dependencies)} versions; vulnerabilities: {open_count}; exceptions that apply: {len(applied)}")
    return 1 if open_count else 0


if __name__ == "__main__":
    sys.exit(main())
