"""A typed client that openapi-python-client generates from the service's OpenAPI document works with the service."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import requests

from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="openapi-python-client needs Python 3.11"),
]

PACKAGE = "generated_client"
IMAGE = as_base64(scene(1))


@pytest.fixture(scope="module")
def models(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate the client; return its models. Its other modules can be imported while the fixture lives."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "docs.json").write_bytes(requests.get(f"{server.url}/docs.json", timeout=60).content)
    (folder / "config.json").write_text('{"post_hooks": []}')
    command = ["generate", "--path", "docs.json", "--config", "config.json", "--meta", "none", "--output-path", PACKAGE]
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module(f"{PACKAGE}.models")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def client(models: ModuleType, server: Server) -> Iterator[Any]:
    accept = {"Accept": "application/json"}
    with importlib.import_module(PACKAGE).Client(base_url=server.url, headers=accept) as opened:
        yield opened


def operation(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.api.{name}")


def test_info_and_readiness_are_parsed(client, models):
    info = operation("operation.info").sync(client=client)
    assert isinstance(info, models.Info)
    assert info.key_needed is False
    assert info.limits.max_image_pixels == 25_000_000
    assert isinstance(info.weights, models.Weights)
    assert operation("operation.readyz").sync(client=client) == "ready\n"


def test_everything_is_parsed(client, models):
    request = models.EverythingRequest(
        input_image=IMAGE, points_per_side=2, pred_iou_thresh=0, stability_score_thresh=0, box_nms_thresh=1
    )
    found = operation("segmentation.everything").sync(client=client, body=request)
    assert isinstance(found, models.Everything)
    assert found.masks
    for record in found.masks:
        assert isinstance(record, models.Record)
        assert record.segmentation.size == [320, 480]
        assert record.crop_box == [0, 0, 480, 320]


def test_embedded_image_and_segmentation_of_objects_are_parsed(client, models):
    image = operation("segmentation.embed").sync(client=client, body=models.EmbedRequest(input_image=IMAGE))
    assert isinstance(image, models.Image)
    assert (image.width, image.height) == (480, 320)
    assert isinstance(image.weights, models.Weights)
    assert image.engine.encoder
    request = models.SegmentRequest(
        image_id=image.image_id,
        prompts=[models.ObjectFields(pos_coords=[[240, 160]]), models.ObjectFields(box=[10, 10, 200, 200])],
    )
    document = operation("segmentation.mobile_sam").sync(client=client, body=request)
    assert isinstance(document, models.Document)
    assert [each.object_ for each in document.masks] == [0, 1]
    assert all(np.shape(each.json) == (320, 480) for each in document.masks)  # the generated client sends all defaults


@pytest.mark.parametrize("name", ["embed", "everything", "mobile_sam"])
def test_error_is_parsed_as_a_problem(client, models, name):
    kind = {"embed": "EmbedRequest", "everything": "EverythingRequest", "mobile_sam": "SegmentRequest"}[name]
    request = getattr(models, kind)(input_image=IMAGE, image_id="another")
    if name == "mobile_sam":
        request.pos_coords = [[1, 1]]
    answer = operation(f"segmentation.{name}").sync_detailed(client=client, body=request)
    assert answer.status_code == 422
    assert isinstance(answer.parsed, models.Problem)
    assert answer.parsed.type_ == "urn:mobile-sam:invalid-request"
    (error,) = answer.parsed.errors
    assert (error.field, error.got) == ("input_image", "both")
