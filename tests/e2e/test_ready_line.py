"""The line that says where a started service is, once, with `bentoml serve` in another folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.server import ROOT, serving

pytestmark = pytest.mark.e2e


def test_last_line_of_a_start_says_where_the_service_is(builtin_repository: Path, tmp_path: Path):
    log = tmp_path / "log"
    elsewhere = ["env", "--chdir=/"]
    settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), "MOBILE_SAM_LOG_FORMAT": "console"}
    with serving(log, str(ROOT), elsewhere, **settings) as server:
        deadline = time.monotonic() + 5
        while "Ready" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        first, second = log.read_text().splitlines()
    assert first.startswith("Triton is ready after ")
    assert second.startswith(f"Ready: page {server.url}/ui, API {server.url}/, weights builtin, encoder ")
    assert second.endswith(" (Ctrl+C stops)")
