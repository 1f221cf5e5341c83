"""The real Label Studio with the service as the model of its projects."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from benchmarks.fleet import SMALL
from benchmarks.objects import iou
from harness import ROOT, Server, free_ports, serving
from harness.browser import chromium, find_chromium
from tests.integrations.conftest import KEY, own_answer
from tests.integrations.label_studio_page import click_image, open_task
from tests.skips import missing
from tests.unit.utils.integrations.test_label_studio import decoded_brush
from tools.try_label_studio import CONFIG, LEGACY_TOKEN, LabelStudioServer, label_studio

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(700)]

PHOTO = ROOT / "page" / "samples" / "balloons.jpg"
BALLOON, SKY = (903, 310), (600, 60)
BOX = (774, 172, 1034, 570)
EVERYTHING = CONFIG.replace('name="brush"', 'name="everything"')
SCORE = re.compile(r"^0\.\d\d$")


@pytest.fixture(scope="session")
def studio(
    tool_environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LabelStudioServer]:
    tool_environment("label-studio")
    with label_studio(tmp_path_factory.mktemp("label-studio"), *free_ports(1)) as running:
        yield running


@pytest.fixture(scope="session")
def service(
    studio: LabelStudioServer, builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("service") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_API_KEYS=f"tools:{KEY}",
        MOBILE_SAM_INTEGRATIONS="label-studio",
        MOBILE_SAM_LABEL_STUDIO_URL=studio.url,
        MOBILE_SAM_LABEL_STUDIO_API_KEY=studio.access_token(),
        **SMALL,
    ) as running:
        yield running


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A picture that the service has not seen."""
    pixels = np.array(Image.open(PHOTO))
    pixels[:4, :4] = np.frombuffer(np.random.default_rng().bytes(48), np.uint8).reshape(4, 4, 3)
    path = tmp_path / "photo.png"
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def connected(
    studio: LabelStudioServer, service: Server, photo: Path
) -> Callable[..., tuple[int, int, int]]:
    """Return a function that makes a project with `photo`; it returns the ids of project, task
    and model.
    """

    def connect(config: str = CONFIG) -> tuple[int, int, int]:
        project, (task,) = studio.project("Balloons", config, [photo])
        return project, task["id"], studio.connect(project, service.url, KEY)

    return connect


def mask_of(result: dict[str, Any]) -> np.ndarray:
    """Return the mask of a brush region, (H, W) bool."""
    pixels = decoded_brush(bytes(result["value"]["rle"]))
    return pixels.reshape(result["original_height"], result["original_width"], 4)[..., 3] > 0


def drawn(kind: str, name: str, percent: dict[str, float], **more: Any) -> dict[str, Any]:
    """Return a region as Label Studio's page sends it."""
    value = {**percent, f"{kind}labels": ["Object"], "labels": ["Object"]}
    size = {"original_width": 1280, "original_height": 853, "image_rotation": 0}
    return {
        "id": name,
        "type": f"{kind}labels",
        "from_name": name,
        "to_name": "image",
        "value": value,
        **size,
        **more,
    }


def point(x: float, y: float, *, positive: bool = True) -> dict[str, Any]:
    return drawn(
        "keypoint", "point", {"x": x / 12.8, "y": y / 8.53, "width": 0.3}, is_positive=positive
    )


def box(x0: float, y0: float, x1: float, y1: float) -> dict[str, Any]:
    percent = {
        "x": x0 / 12.8,
        "y": y0 / 8.53,
        "width": (x1 - x0) / 12.8,
        "height": (y1 - y0) / 8.53,
    }
    return drawn("rectangle", "box", {**percent, "rotation": 0})


def click(
    studio: LabelStudioServer, model: int, task: int, *regions: dict[str, Any]
) -> dict[str, Any]:
    body = {"task": task, "context": {"result": list(regions)}}
    data: dict[str, Any] = studio.call("POST", f"ml/{model}/interactive-annotating", json=body)[
        "data"
    ]
    return data


def reference(service: Server, photo: Path, **fields: Any) -> np.ndarray:
    """Return the mask of `/mobile_sam`."""
    answer = own_answer(service, photo.read_bytes(), **fields)
    mask: np.ndarray = coco.decode(answer["masks"][0]["rle"]).astype(bool)
    return mask


def test_click_is_the_mask_of_mobile_sam(studio, service, connected, photo):
    _, task, model = connected()
    before = service.embeddings()["encoded"]
    (result,) = click(studio, model, task, point(*BALLOON))["result"]
    assert (result["type"], result["from_name"], result["value"]["brushlabels"]) == (
        "brushlabels",
        "brush",
        ["Object"],
    )
    assert iou(mask_of(result), reference(service, photo, pos_coords=[BALLOON])) == 1
    regions = [point(*BALLOON), point(*SKY, positive=False), box(*BOX)]
    (refined,) = click(studio, model, task, *regions)["result"]
    fields = {"pos_coords": [BALLOON], "neg_coords": [SKY], "box": BOX}
    assert iou(mask_of(refined), reference(service, photo, **fields)) == 1
    assert service.embeddings()["encoded"] == before + 1


def predictions(studio: LabelStudioServer, project: int) -> list[dict[str, Any]]:
    """Ask for the predictions of a project as the page does."""
    body = {"selectedItems": {"all": True, "excluded": []}, "project": project}
    studio.call("POST", f"dm/actions?id=retrieve_tasks_predictions&project={project}", json=body)
    found: list[dict[str, Any]] = studio.call("GET", f"predictions?project={project}")
    return found


def test_predictions_are_the_objects_in_the_boxes_of_a_task(studio, service, connected, photo):
    project, task, _ = connected()
    assert predictions(studio, project) == []
    encoded = service.embeddings()["encoded"]
    studio.call("POST", f"tasks/{task}/annotations/", json={"result": [box(*BOX)]})
    (prediction,) = predictions(studio, project)
    (result,) = prediction["result"]
    assert iou(mask_of(result), reference(service, photo, box=BOX)) == 1
    # The image was encoded by the first, empty answer.
    assert service.embeddings()["encoded"] == encoded


def test_predictions_of_everything_need_a_tag_of_that_name(studio, connected):
    project, *_ = connected(EVERYTHING)
    (prediction,) = predictions(studio, project)
    assert len(prediction["result"]) > 3
    assert {result["from_name"] for result in prediction["result"]} == {"everything"}


def test_images_of_a_project_are_encoded_ahead_of_the_first_click(
    studio, service, connected, photo
):
    project, task, model = connected()
    settings = {
        "MOBILE_SAM_API_KEY": KEY,
        "LABEL_STUDIO_API_KEY": LEGACY_TOKEN,
        "PYTHONPATH": str(ROOT / "client"),
    }
    command = [sys.executable, "-m", "mobile_sam_client", "embed", "--url", service.url]
    done = subprocess.run(
        [*command, "--label-studio", studio.url, "--project", str(project)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert photo.name in done.stdout
    encoded = service.embeddings()["encoded"]
    assert click(studio, model, task, point(*BALLOON))["result"]
    assert service.embeddings()["encoded"] == encoded


def test_person_clicks_and_submits_a_mask(studio, service, connected, photo):
    if find_chromium() is None:
        pytest.skip(missing("chromium"))
    project, task, _ = connected()
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 800})
        page.set_default_timeout(120_000)
        open_task(page, studio.url, project, task)
        click_image(page, 0.7, 0.36)
        page.get_by_text("1 suggestions").wait_for()
        page.keyboard.press("2")  # the label of the points
        page.keyboard.down("Alt")
        with page.expect_response(
            lambda response: "interactive-annotating" in response.url
        ) as sent:
            click_image(page, 0.7, 0.1)
        page.keyboard.up("Alt")
        page.locator(".lsf-auto-accept__action_type_accept").click()
        page.get_by_text(SCORE).wait_for()
        page.get_by_role("button", name="Submit current annotation").click()
        page.get_by_text("Annotation saved successfully").first.wait_for()
        regions = json.loads(sent.value.request.post_data or "")["context"]["result"]
    (annotation,) = studio.call("GET", f"tasks/{task}/annotations/")
    (mask,) = [result for result in annotation["result"] if result["type"] == "brushlabels"]
    positive, negative = (
        [12.8 * region["value"]["x"], 8.53 * region["value"]["y"]] for region in regions
    )
    expected = reference(service, photo, pos_coords=[positive], neg_coords=[negative])
    assert iou(mask_of(mask), expected) == 1
