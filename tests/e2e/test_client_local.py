"""`local` of the Python client, blocking and asyncio: masks decoded in this process equal those
of the service.
"""

import asyncio
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import AsyncClient, Client, InvalidRequest, Prompt
from mobile_sam_client._wire import Wire
from mobile_sam_client.compat import SamPredictor, sam_model_registry
from tests.e2e.pictures import scene
from tests.unit.client.mobile_sam_client.fake_service import Awaited

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {"pos_coords": (240, 160)}
REQUESTS: dict[str, dict[str, Any]] = {
    "click": CLICK,
    "clicks": {"pos_coords": [(240, 160), (30, 300)], "neg_coords": [(100, 20)]},
    "labels": {"pos_coords": [(240, 160), (100, 20), (90, 60), (400, 290)], "labels": [1, 0, 2, 3]},
    "box": {"box": (150, 90, 330, 250)},
    "box and click": {"box": (150, 90, 330, 250), **CLICK},
    "candidates": {**CLICK, "multimask_output": True, "low_res_mask": True},
    "threshold": {**CLICK, "mask_threshold": 0.7},
    "smoothing": {**CLICK, "min_mask_region_area": 400, "mask_threshold": 1},
    "region": {
        "pos_coords": (250.5, 160),
        "region": (190, 101, 301, 219),
        "min_mask_region_area": 50,
    },
}


@pytest.fixture(autouse=True)
def paths(monkeypatch) -> list[str]:
    """Paths that clients ask for, in order."""
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)
    asked, send = [], Wire.send

    async def recorded(wire: Wire, method: str, path: str, *more: Any):
        asked.append(path.partition("?")[0].replace("/", " ").split()[0])
        return await send(wire, method, path, *more)

    monkeypatch.setattr(Wire, "send", recorded)
    return asked


@pytest.fixture(params=[Client, AsyncClient])
def make(request, builtin_server):
    """Return a factory of clients of either kind."""
    opened = []

    def client(**settings: Any) -> Any:
        made = request.param(builtin_server.url, **settings)
        opened.append(Awaited(made) if isinstance(made, AsyncClient) else made)
        return opened[-1]

    yield client
    for each in opened:
        each.close()


def check_equal(here: Any, there: Any, least_iou: float = 0.999) -> None:
    assert (here.mask & there.mask).sum() >= least_iou * (here.mask | there.mask).sum() > 0
    assert here.score == pytest.approx(there.score, abs=2e-3)
    assert (here.low_res_mask is None) == (there.low_res_mask is None)
    for name in (
        "image_id",
        "width",
        "height",
        "weights",
        "engine",
        "model_version",
        "region",
        "candidate_index",
    ):
        assert getattr(here, name) == getattr(there, name), name
    rows, columns = np.nonzero(here.mask)
    assert here.area == len(rows)
    assert here.box_xyxy == (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert len(here.candidates) == len(there.candidates)
    for one, other in zip(here.candidates[1:], there.candidates[1:], strict=True):
        check_equal(one, other)


def test_masks_equal_those_of_the_service_which_is_asked_once_for_each_image(make, paths):
    local, remote = make(local=True), make()
    photo = scene(920)
    for name, request in REQUESTS.items():
        there = remote.segment(photo, **request, segmented_image="none")
        before = len(paths)
        for _ in range(2):
            check_equal(local.segment(photo, **request), there)
        first = (
            ["embed", "embeddings", "info", "decoder.onnx"]
            if name == "click"
            else ["embed", "embeddings"]
        )
        assert paths[before:] == (first if name in {"click", "region"} else [])
    logits = remote.segment(photo, **CLICK, low_res_mask=True).low_res_mask
    refined = Prompt(pos_coords=[(240, 160), (250, 170)], mask_input=logits)
    prompts = [Prompt(**CLICK), Prompt(box=(150, 90, 330, 250)), refined]
    there, before = remote.segment_many(photo, prompts, multimask_output=True), len(paths)
    for pair in zip(local.segment_many(photo, prompts, multimask_output=True), there, strict=True):
        check_equal(*pair)
    assert len(paths) == before


def test_images_that_are_sent_smaller_have_masks_as_fine_as_they_are(make):
    photo = scene(921, (2400, 1600))
    local, remote = (make(max_side=1200, local=here) for here in (True, False))
    for name in ("box and click", "region", "smoothing"):
        fields = ("pos_coords", "box", "region")
        request = {
            name: np.multiply(value, 5) if name in fields else value
            for name, value in REQUESTS[name].items()
        }
        there = remote.segment(photo, **request, segmented_image="none")
        check_equal(local.segment(photo, **request), there, 0.98)


@pytest.mark.parametrize(
    "request_",
    [{"segmented_image": "overlay"}, {"region": "auto"}],
    ids=["picture", "automatic region"],
)
def test_service_answers_what_is_not_decoded_here(make, paths, request_):
    found = make(local=True).segment(scene(920), **CLICK, **request_)
    assert paths == ["mobile_sam"]
    assert (found.image is None) == ("region" in request_)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"pos_coords": (500, 160)}, "pos_coords[0]"),
        ({"box": (150, 90, 130, 250)}, "box"),
        ({}, "pos_coords"),
        ({**CLICK, "labels": [1, 1]}, "labels"),
        ({"pos_coords": [CLICK["pos_coords"]], "labels": [4]}, "labels[0]"),
        ({**CLICK, "mask_threshold": float(99)}, "mask_threshold"),
        ({**CLICK, "min_mask_region_area": -1}, "min_mask_region_area"),
        ({**CLICK, "region": (0, 0, 64, 64)}, "pos_coords[0]"),
        ({**CLICK, "region": (0, 0, 999, 64)}, "region"),
    ],
    ids=[
        "outside",
        "inverted box",
        "no prompt",
        "labels",
        "label",
        "threshold",
        "area",
        "outside region",
        "region",
    ],
)
def test_invalid_request_is_rejected_by_the_service(make, request_, field):
    with pytest.raises(InvalidRequest) as raised:
        make(local=True).segment(scene(920), **request_)
    assert raised.value.errors[0]["field"] == field


def test_concurrent_calls_fetch_an_image_once(builtin_server, paths):
    async def clicks() -> list[Any]:
        async with AsyncClient(builtin_server.url, local=True) as client:
            photo = await client.embed(scene(922))
            return await asyncio.gather(*(client.segment(photo, **CLICK) for _ in range(4)))

    first, *others = asyncio.run(clicks())
    for other in others:
        check_equal(first, other)
    assert (paths.count("embeddings"), paths.count("decoder.onnx")) == (1, 1)


def test_notebook_loop_of_a_predictor_asks_the_service_for_its_image_only(
    builtin_server, paths, monkeypatch
):
    monkeypatch.setenv("MOBILE_SAM_URL", builtin_server.url)
    with sam_model_registry["vit_t"]() as sam:
        predictor = SamPredictor(sam)
        predictor.set_image(np.asarray(Image.open(io.BytesIO(scene(923)))))
        for x in range(1, 101):
            masks, scores, logits = predictor.predict(
                np.array([[x, 160]]), np.array([1]), multimask_output=False
            )
    assert (masks.shape, scores.shape, logits.shape) == ((1, 320, 480), (1,), (1, 256, 256))
    assert paths == ["embed", "embed", "embeddings", "info", "decoder.onnx"]
