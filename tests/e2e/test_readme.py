"""The README's code runs, and what it shows is what comes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from PIL import Image, ImageDraw

from tests.e2e.server import ROOT

pytestmark = pytest.mark.e2e

README = (ROOT / "README.md").read_text()
URL = "http://127.0.0.1:3000"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def keys(value):
    """The shape of a JSON value: names and kinds without the values."""
    if isinstance(value, dict):
        return {name: keys(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [keys(entry) for entry in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


@pytest.fixture
def folder(tmp_path):
    """A folder with a photo.jpg, as the README's reader has one."""
    picture = Image.new("RGB", (1024, 683), (90, 140, 70))
    ImageDraw.Draw(picture).ellipse([440, 260, 900, 490], fill=(230, 190, 60))
    picture.save(tmp_path / "photo.jpg")
    return tmp_path


def run(folder, *command) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_call_prints_what_the_readme_shows(server, folder):
    (code,) = blocks("python")
    (shown,) = blocks("json")
    printed = run(folder, sys.executable, "-c", code.replace(URL, server.url))
    assert keys(json.loads(printed)) == keys(json.loads(shown))


def test_the_script_writes_both_files(server, folder):
    line = next(line for block in blocks("sh") for line in block.splitlines() if "client/request.py" in line)
    program, script, *arguments = line.split()
    assert program == ".venv/bin/python"
    run(folder, sys.executable, ROOT / script, *arguments, "--url", server.url)
    assert (folder / "mask.png").is_file()
    assert (folder / "segmented_image.png").is_file()


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines() if line[:4] == "make"])
def test_every_make_target_exists(line):
    target = line.split("#")[0].split()[1]
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
