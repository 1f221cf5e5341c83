"""What the page exports, imported into the real Label Studio, exported there and read again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from PIL import Image

from harness import free_ports
from tests.unit.page.formats import project_of, read, sizes_of, write
from tools.try_label_studio import LEGACY_TOKEN, LabelStudioServer, label_studio

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(700)]


@pytest.fixture
def project(tmp_path: Path) -> dict[str, Any]:
    """A project whose export, with black images, is unpacked in the folder `set`."""
    document = project_of()
    for image in document["images"]:
        path = tmp_path / "set" / "images" / image["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (image["width"], image["height"])).save(path)
    for name, content in write("label-studio", document).items():
        (tmp_path / "set" / name).write_bytes(content)
    return document


@pytest.fixture
def studio(
    tool_environment: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LabelStudioServer]:
    """Label Studio that serves the files in the folder `set`."""
    tool_environment("label-studio")
    monkeypatch.setenv("LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED", "true")
    monkeypatch.setenv("LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT", str(tmp_path / "set"))
    (tmp_path / "studio").mkdir()
    with label_studio(tmp_path / "studio", *free_ports(1)) as running:
        yield running


def test_objects_come_back_from_label_studio_as_they_were(project, studio, tmp_path):
    folder = tmp_path / "set"
    config = (folder / "label_config.xml").read_text()
    number, _ = studio.project("Masks", config, [])
    storage = {"project": number, "path": str(folder / "images"), "use_blob_urls": True}
    studio.call("POST", "storages/localfiles", json=storage)
    tasks = json.loads((folder / "tasks.json").read_text())
    studio.call("POST", f"projects/{number}/import", json=tasks)

    for task, image in zip(tasks, project["images"], strict=True):
        answer = requests.get(
            studio.url + task["data"]["image"],
            headers={"Authorization": f"Token {LEGACY_TOKEN}"},
            timeout=60,
        )
        assert answer.content == (folder / "images" / image["name"]).read_bytes()

    options = {"exportType": "JSON", "download_all_tasks": "true"}
    exported = studio.call("GET", f"projects/{number}/export", params=options)
    files = {"export.json": json.dumps(exported), "label_config.xml": config}
    again, warnings = read(files, sizes_of(project))
    assert warnings == []
    assert again["classes"] == project["classes"]
    by_name = {image["name"]: image for image in again["images"]}
    for image in project["images"]:
        assert by_name[image["name"]]["objects"] == image["objects"]
