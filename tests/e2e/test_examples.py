"""The example script runs and writes its contact sheet."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from harness import ROOT
from tests.e2e.pages import SAMPLES, Reader

SCRIPT = "examples/segment_folder.py"


@pytest.mark.e2e
@pytest.mark.slow
def test_segment_folder_writes_a_contact_sheet(server, tmp_path):
    reader = Reader(tmp_path, server.url)
    reader.run_command([sys.executable, SCRIPT, str(SAMPLES), "sheet.png"], SCRIPT)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (4 * 320, 2 * 240)
        tiles = np.asarray(sheet).reshape(2, 240, 4, 320, 3).any(axis=(1, 3, 4)).ravel()
    assert tiles.tolist() == [True] * 6 + [False] * 2


def test_segment_folder_without_pictures_prints_its_usage(tmp_path):
    for arguments in ([], [tmp_path, "sheet.png"]):
        done = subprocess.run(
            [sys.executable, ROOT / SCRIPT, *arguments],
            env={"PYTHONPATH": str(ROOT / "client")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 1
        assert f"{SCRIPT} photos sheet.jpg" in done.stderr
