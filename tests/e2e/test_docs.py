"""The code on the documentation pages runs and prints what they show; links, settings and
messages exist.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from PIL import Image
from pycocotools import mask as coco

from benchmarks.objects import iou
from harness import ROOT
from tests.e2e import pages
from tests.e2e.answers import segmentation
from tests.e2e.pages import Reader
from tests.skips import missing, require
from utils.api import responses
from utils.api.openapi import examples
from utils.settings import PREFIX, Settings

TEXTS = {page: (ROOT / page).read_text() for page in pages.pages()}
BLOCKS = {page: pages.blocks(page, text) for page, text in TEXTS.items()}
PAGES_WITH_CODE = [page for page, found in BLOCKS.items() if any(block.runs for block in found)]
MAKE_COMMAND, MAKE_SPAN = re.compile(r"\bmake +([^#|&\n]+)"), re.compile(r"`make ([^`]+)`")
LINK, CODE_SPAN = re.compile(r"\]\(([^)\s]+)\)"), re.compile(r"`[^`\n]+`")
VARIABLE = re.compile(r"\bMOBILE_SAM_[A-Z_]*[A-Z]\b")
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}
PATH = re.compile(r"(?:`|<!-- not run: (?:from )?)([\w.-]+/[\w./-]+)")
NAME_IN_FILE = re.compile(r"`(\w+)` \(`([\w./-]+\.py)`\)")
GENERATED = re.compile(
    r"^(\.venv|build|out)/|^model_repository/\w+/\d+/(model\.onnx|weights\.json)$"
)
every_page = pytest.mark.parametrize("page", TEXTS)


@every_page
def test_every_code_block_runs_or_says_why_not(page):
    unaccounted = [
        str(block) for block in BLOCKS[page] if not (block.runs or block.only_make or block.not_run)
    ]
    assert unaccounted == []


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_of_a_page_runs_and_prints_what_the_page_shows(page, official_server, tmp_path):
    # So that commands for whole folders take seconds.
    reader = Reader(tmp_path, official_server.url, pictures=2)
    runnable = [block for block in BLOCKS[page] if block.runs]
    for block in (block for block in runnable if block.program):
        printed = reader.run(block)
        if block.shows:
            assert pages.matches(block.shows, printed), (
                f"{block.shows} differs from the output:\n{printed}"
            )
    if absent := {pages.COMMANDS[block.language][0] for block in runnable if not block.program}:
        pytest.skip(f"all other blocks passed; {missing(*sorted(absent))}")


@pytest.mark.e2e
@pytest.mark.slow
def test_cells_of_the_notebook_run_one_after_another_and_print_what_it_shows(
    official_server, tmp_path
):
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    reader = Reader(tmp_path, official_server.url)
    printed = reader.run_command([sys.executable, "-c", code], "docs/notebook.ipynb")
    shown = "".join(
        "".join(output.get("text", "")) for cell in cells for output in cell.get("outputs", [])
    )
    assert pages.same_text(shown, printed), printed
    with Image.open(tmp_path / "boat_mask.png") as mask:
        assert mask.size == (1280, 853)


@pytest.mark.e2e
@pytest.mark.slow
def test_openapi_examples_and_models_match_the_real_responses(official_server):
    segmented = segmentation(official_server.post(**{**examples.EXAMPLE, "mask_format": "npy"}))
    everything = official_server.post(
        "/everything", **examples.REQUESTS["everything"]["grid"]["value"]
    ).json()
    info = requests.get(f"{official_server.url}/info", timeout=60).json()
    for model, shown, real in (
        (responses.Result, examples.RESULT, segmented.result),
        (responses.Everything, examples.EVERYTHING, everything),
        (responses.Info, examples.INFO, info),
    ):
        assert pages.same_json(shown, real), real
        model.model_validate_json(json.dumps(real), strict=True, extra="forbid")
    for mask_format in ("rle", "polygon", "png", "json"):
        fields = {
            **examples.EXAMPLE,
            "mask_format": mask_format,
            "segmented_image": "overlay",
            "low_res_mask": True,
        }
        answer = requests.post(
            f"{official_server.url}/mobile_sam",
            json=fields,
            headers={"Accept": "application/json"},
            timeout=60,
        )
        found = responses.Document.model_validate_json(answer.content, strict=True, extra="forbid")
        assert found.segmented_image
        assert found.masks[0].model_fields_set > {
            "low_res_mask",
            "rows" if mask_format == "json" else mask_format,
        }
    assert iou(segmented.masks, coco.decode(examples.RUN_LENGTHS).astype(bool)) > 0.98
    assert len(everything["masks"]) == len(examples.EVERYTHING["masks"])


@every_page
def test_make_commands_use_targets_and_variables_of_the_makefile(page):
    makefile = (ROOT / "Makefile").read_text()
    lines = re.findall(r"^([\w /-]+?)( \?=|:)", makefile, re.MULTILINE)
    defined = {name + sign[2:] for names, sign in lines for name in names.split()}
    code = "\n".join(block.code for block in BLOCKS[page] if block.language == "sh")
    words = " ".join(MAKE_COMMAND.findall(code) + MAKE_SPAN.findall(TEXTS[page])).split()
    assert {re.sub("=.*", "=", word) for word in words} <= defined


@every_page
def test_every_link_has_a_target(page):
    for link in LINK.findall(CODE_SPAN.sub("", TEXTS[page])):
        path, _, anchor = link.partition("#")
        if not path.startswith(("https:", "http:")):
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@every_page
def test_every_path_of_the_repository_exists(page):
    top = {entry.name for entry in ROOT.iterdir()}
    paths = {
        path
        for path in PATH.findall(TEXTS[page])
        if path.split("/")[0] in top and not GENERATED.match(path)
    }
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
    assert [
        name
        for name, file in NAME_IN_FILE.findall(TEXTS[page])
        if name not in (ROOT / file).read_text()
    ] == []


def anchors(file: Path) -> set[str]:
    """Return the link anchors of a page's headings, formed as GitHub does, or the functions of a
    Python file.
    """
    text = file.read_text()
    if file.suffix == ".py":
        return set(re.findall(r"^(?:async )?def (\w+)\(", text, re.MULTILINE))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_settings_are_complete():
    _, _, section = TEXTS["docs/deployment.md"].partition("## Settings")
    listed = [
        name
        for line in re.findall(r"^- (.+)$", section, re.MULTILINE)
        for name in VARIABLE.findall(line)
    ]
    assert set(listed) >= SETTINGS
    assert len(listed) == len(set(listed))


def test_systemd_unit_is_valid(tmp_path):
    unit = (ROOT / "deploy" / "systemd" / "mobile-sam.service").read_text()
    program = tmp_path / ".venv" / "bin" / "bentoml"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    file = tmp_path / "mobile-sam.service"
    file.write_text(unit.replace("/opt/mobile-sam/current", str(tmp_path)))
    checked = subprocess.run(
        [require("systemd-analyze"), "verify", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
