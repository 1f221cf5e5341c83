"""Bodies just beyond each bound, for every work path of every adapter."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from tests.unit.utils.integrations.test_label_studio import CONFIG, drawn
from tests.unit.utils.integrations.test_roboflow import POINT
from tests.fake_segmenter import FakeSegmenter
from utils.api.errors import InvalidRequest, Problem
from utils.api.inputs import MAX_TOTAL_POINTS
from utils.api.received import MAX_VALUES
from utils.api.requests import MAX_OBJECTS, MAX_POINTS
from utils.edge.admission import Admission
from utils.edge.middleware import Limits
from utils.integrations import ADAPTERS, label_studio
from utils.integrations.adapter import MAX_TEXT_CHARS, Adapters, Service, ToolRequest
from utils.integrations.cvat import INTERACTOR
from utils.settings import Settings

MAX_BYTES = 400_000
MAX_DEPTH = 200
SETTINGS = Settings(label_studio_url="http://localhost:8080", label_studio_api_key="token", max_body_bytes=MAX_BYTES)
PATHS = [path for adapter in ADAPTERS for path in adapter.work]
MODELS = {path: work[0] for adapter in ADAPTERS for path, work in adapter.work.items() if isinstance(work, tuple)}
POINTS = [[1, 2]] * (MAX_POINTS + 1)
MARKS = [{"type": "point", "data": [1, 2]}] * 30 + [{"type": "rectangle", "data": [1, 2, 3, 4]}] * 200
TASK = {"data": {"img": "data:image/png;base64,AAAA"}}
PROMPTS: dict[str, Any] = {
    "/v1/predict": {"model": "mobile_sam", "image": "AAAA", "params": {"marks": MARKS}},
    "/sam2/segment_image": {"image_id": "id", "prompts": [{"points": [POINT]}] * (MAX_OBJECTS + 1)},
    "/sam2/embed_image": None,
    "/sam/segment_image": {"image_id": "id", "point_coords": POINTS, "point_labels": [1] * len(POINTS)},
    "/sam/embed_image": None,
    "/api/function_invocations": {"image": "AAAA", "pos_points": POINTS},
    "/sam/": {"b64img": "AAAA", "point_coords": POINTS},
    "/sam": {"b64img": "AAAA", "point_coords": POINTS},
    "/sam/automask/": {"b64img": "AAAA", "points_per_side": 65},
    "/label-studio/setup": None,
    "/label-studio/predict": {
        "tasks": [TASK],
        "label_config": CONFIG,
        "params": {"context": {"result": [drawn(x=1, y=1)] * (MAX_POINTS + 1)}},
    },
}
"""Bodies with prompts beyond the limits of `/mobile_sam` or `/everything`; None: the path has no prompts."""


class Tools(Http, FakeSegmenter):
    """All adapters behind the edge, with a fake segmenter."""

    def __init__(self) -> None:
        FakeSegmenter.__init__(self)
        self.counts = FakeCounts()
        self.adapters = Adapters(ADAPTERS, Service(lambda: self, SETTINGS))
        options: dict[str, Any] = {"limits": Limits(MAX_BYTES, 1, 9), "admission": Admission(1, MAX_BYTES)}
        edge = make_edge(
            self.adapters,
            work_paths=frozenset(PATHS),
            adapters=self.adapters,
            counts=self.counts,
            **options,
        )
        Http.__init__(self, edge)

    def ask(self, path: str, body: bytes, content_type: str = "application/json") -> str:
        """Return the answer to a request that must be refused in the form of the tool."""
        headers = {"content-type": content_type, "x-nuclio-function-name": INTERACTOR}
        answer = self.post(path, content=body, headers=headers)
        ((_, status, reason),) = self.counts.answers
        form = self.adapters.work_error(path, Problem(status, reason, "", "what is wrong"))
        assert (answer.status_code, answer.headers["content-type"]) == (form.status_code, form.headers["content-type"])
        return answer.text
