"""Texts of adapters' errors: they name no options of other programs, and no fields of the
service's own requests.
"""

import asyncio
import base64
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orchestrator.costs import Workload, check_batch
from orchestrator.polygons import polygons
from orchestrator.problems import Rejected
from orchestrator.reduced import open_image
from tests.fake_segmenter import FakeSegmenter
from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import make_edge
from tests.unit.utils.integrations.test_label_studio import CONFIG, drawn
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.errors import (
    AnswerTooLarge,
    ImageNotCached,
    InferenceFailed,
    InferenceUnavailable,
    Overloaded,
    RejectedByModel,
    ServiceError,
)
from utils.inference.everything import result_of
from utils.inference.request import ImageSource
from utils.inference.triton_segmenter import _problem
from utils.integrations import ADAPTERS
from utils.integrations.adapter import Adapters
from utils.integrations.cvat import DETECTOR, INTERACTOR
from utils.integrations.service import MaskService
from utils.settings import Settings

OTHER_PROGRAMS = r"max_side|(^|\s)--\w|Client\(|curl|requests\.post|mobile-sam \w"
"""Options of other programs."""
OTHER_FIELDS = (
    r"mask_format|points_per_side|\bprogress\b|segmented_image|point_coords|min_mask_region_area|picture"
    r" none"
)
"""Fields and values of the service's own requests."""
MAX_BYTES = 100_000
SETTINGS = Settings(
    label_studio_url="http://localhost:8080", label_studio_api_key="token", max_body_bytes=MAX_BYTES
)
IMAGE = base64.b64encode(b"a photo").decode()
ROBOFLOW = {"image": {"type": "base64", "value": IMAGE}}
MARKS = {"marks": [{"type": "point", "data": [1, 2]}]}
CLICK = {"tasks": [{"data": {"img": f"data:image/png;base64,{IMAGE}"}}], "label_config": CONFIG}
BODIES: list[tuple[str, dict[str, Any], str]] = [
    (
        "/v1/predict",
        {"model": "mobile_sam", "image": IMAGE, "params": MARKS},
        "",
    ),
    (
        "/v1/predict",
        {"model": "mobile_sam", "image": IMAGE, "params": {"current_task": "everything"}},
        "",
    ),
    (
        "/sam2/segment_image",
        {**ROBOFLOW, "prompts": {"points": [{"x": 1, "y": 2}]}},
        "",
    ),
    ("/sam2/segment_image", ROBOFLOW, ""),
    ("/sam2/embed_image", ROBOFLOW, ""),
    (
        "/sam/segment_image",
        {**ROBOFLOW, "point_coords": [[1, 2]], "point_labels": [1]},
        "",
    ),
    ("/sam/embed_image", ROBOFLOW, ""),
    ("/api/function_invocations", {"image": IMAGE, "pos_points": [[1, 2]]}, INTERACTOR),
    ("/api/function_invocations", {"image": IMAGE}, DETECTOR),
    ("/sam/", {"b64img": IMAGE, "point_coords": [[1, 2]], "point_labels": [1]}, ""),
    ("/sam/automask/", {"b64img": IMAGE}, ""),
    ("/label-studio/predict", {**CLICK, "params": {"context": {"result": [drawn(x=1, y=1)]}}}, ""),
    ("/label-studio/predict", CLICK, ""),
]
"""A body that asks the segmenter for something, for each kind of work of each adapter."""
IDS = [f"{path} {number}" for number, (path, _, _) in enumerate(BODIES)]


def picture(file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (1000, 1000)).save(file, file_format, **options)
    return file.getvalue()


def rejected(call: Callable[[], Any]) -> RejectedByModel:
    with pytest.raises(Rejected) as caught:
        call()
    return RejectedByModel(
        _problem(asdict(caught.value), ImageSource(b"", None), [["prompts[0].box"] * 999] * 999)
    )


def timeout() -> ServiceError:
    async def steps() -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(10)
        yield {}

    with pytest.raises(ServiceError) as caught:
        asyncio.run(result_of(steps(), 0.01))
    return caught.value


LOAD = Workload(objects=2000, masks=6000, mask_format="json", document=True)
ERRORS: dict[str, Callable[[], ServiceError]] = {
    "jpeg": lambda: rejected(lambda: open_image(picture("JPEG"), 20_000)),
    "progressive jpeg": lambda: rejected(
        lambda: open_image(picture("JPEG", progressive=True), 20_000)
    ),
    "png": lambda: rejected(lambda: open_image(picture("PNG"), 20_000)),
    "webp": lambda: rejected(lambda: open_image(picture("WEBP"), 20_000)),
    "no image": lambda: rejected(lambda: open_image(b"a photo", 20_000)),
    "answer too large": lambda: rejected(lambda: LOAD.check((5000, 5000), 10**6)),
    "too much work": lambda: rejected(lambda: LOAD.check((5000, 5000), 10**15)),
    "batch": lambda: rejected(
        lambda: check_batch(999, (5000, 5000), (5000, 5000), remove_small_regions=True)
    ),
    "batch of one": lambda: rejected(
        lambda: check_batch(1, (50000, 50000), (50000, 50000), remove_small_regions=True)
    ),
    "rings": lambda: rejected(lambda: polygons(np.indices((9, 9)).sum(axis=0) % 4 == 0, 1)),
    "timeout": timeout,
    "answer of everything": lambda: AnswerTooLarge(10**6),
    "not cached": lambda: ImageNotCached("id"),
    "failed": lambda: InferenceFailed(
        "the model could not process this request; see the server's log"
    ),
    "unavailable": lambda: InferenceUnavailable(
        "the inference server is starting or restarting; retry later"
    ),
    "overloaded": lambda: Overloaded("too many requests"),
}


class Tools(Http, FakeSegmenter):
    """All adapters behind the edge, with a segmenter that fails."""

    def __init__(self, error: ServiceError | None = None) -> None:
        FakeSegmenter.__init__(self)
        self.error = error
        adapters = Adapters(ADAPTERS, MaskService(self, SETTINGS))
        paths = frozenset(path for adapter in ADAPTERS for path in adapter.work)
        limits, admission = Limits(MAX_BYTES, 60, lambda: 60), Admission(1, 2 * MAX_BYTES)
        edge = make_edge(
            adapters, work_paths=paths, adapters=adapters, limits=limits, admission=admission
        )
        Http.__init__(self, edge)

    def text(self, path: str, body: dict[str, Any], function: str) -> str:
        """Return the error that a request is answered with."""
        answer = self.post(path, json=body, headers={"x-nuclio-function-name": function})
        text = answer.text
        assert answer.status_code >= 400 or "error" in text
        return text


def check_words(text: str) -> None:
    assert not re.search(OTHER_PROGRAMS, text), text
    assert not re.search(OTHER_FIELDS, text), text


def test_every_adapter_is_asked():
    asked = {path for path, _, _ in BODIES}
    for adapter in ADAPTERS:
        assert asked & set(adapter.work), adapter.name


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_in_words_of_the_users_of_tools(error):
    text = Tools(ERRORS[error]()).text(*BODIES[0])
    check_words(text)
    if error in ("jpeg", "progressive jpeg", "png", "webp"):
        assert "replace the image by a smaller one" in text
    if error in ("answer too large", "too much work", "batch", "rings", "answer of everything"):
        assert "use fewer prompts, or a smaller image" in text


@pytest.mark.parametrize(("path", "body", "function"), BODIES, ids=IDS)
def test_every_adapter_translates_errors(path, body, function):
    text = Tools(ERRORS["too much work"]()).text(path, body, function)
    check_words(text)
    assert "use fewer prompts, or a smaller image" in text


@pytest.mark.parametrize(("path", "body", "function"), BODIES, ids=IDS)
def test_body_that_is_too_large_has_advice(path, body, function):
    text = Tools().text(path, {**body, "rest": "x" * MAX_BYTES}, function)
    check_words(text)
    assert (
        "use a smaller image, or ask the operator of this service to raise"
        " MOBILE_SAM_MAX_BODY_BYTES" in text
    )


def test_masks_of_too_many_outlines_are_refused_in_these_words():
    noise = np.indices((300, 400)).sum(axis=0) % 2 == 0
    service = MaskService(FakeSegmenter(), SETTINGS)
    document = {"masks": [{"box": [0, 0, 1, 1]}], "work_s": 0.0}
    with pytest.raises(ServiceError) as caught:
        asyncio.run(service.converted(document, lambda _: polygons(noise, 10)))
    assert "use fewer prompts" in str(caught.value)
    check_words(str(caught.value))


def test_bodies_are_valid():
    for path, body, function in BODIES:
        replay = Tools()
        replay.masks = []
        answer = replay.post(path, json=body, headers={"x-nuclio-function-name": function})
        assert replay.calls or answer.status_code == 200, (path, json.dumps(body)[:80], answer.text)
