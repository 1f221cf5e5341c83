"""Test of a running service against its OpenAPI document: `python -m tests.fuzz.contract http://127.0.0.1:3000`.

Schemathesis sends requests that fit the document and requests that do not, and checks every answer: no 5xx, and no
status, content type or JSON that the document does not declare. Needs schemathesis.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
)


def main(arguments: list[str] | None = None) -> int:
    """Run Schemathesis; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="URL of the service")
    parser.add_argument("--examples", type=int, default=100, help="maximum number per phase and operation")
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")
    parser.add_argument("--seconds", type=int, default=600, help="time limit")
    options = parser.parse_args(arguments)
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        f"{options.url.rstrip('/')}/docs.json",
        "--url",
        options.url,
        "--checks",
        ",".join(CHECKS),
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        str(options.examples),
        "--seed",
        str(options.seed),
        "--max-time",
        str(options.seconds),
        "--request-timeout",
        "60",
        "--continue-on-failure",
        "--warnings",
        "off",
        "--suppress-health-check",
        "all",
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.fuzz.contract_hooks", "PYTHONPATH": str(ROOT)}
    folder = ROOT / ".cache"  # Schemathesis stores its examples in the working directory
    folder.mkdir(exist_ok=True)
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
