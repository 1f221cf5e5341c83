"""Bodies just beyond each bound, for every work path of every adapter."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fake_segmenter import FakeSegmenter
from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import make_edge
from tests.unit.utils.integrations.test_label_studio import CONFIG, drawn
from tests.unit.utils.integrations.test_roboflow import POINT
from utils.api.request_body import MAX_VALUES
from utils.api.requests import MAX_OBJECTS, MAX_POINTS
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.errors import Problem
from utils.integrations import ADAPTERS
from utils.integrations.adapter import MAX_TEXT_CHARS, Adapters
from utils.integrations.cvat import INTERACTOR
from utils.integrations.service import MaskService
from utils.settings import Settings

MAX_BYTES = 400_000
MAX_DEPTH = 200
SETTINGS = Settings(
    label_studio_url="http://localhost:8080", label_studio_api_key="token", max_body_bytes=MAX_BYTES
)
PATHS = [path for adapter in ADAPTERS for path in adapter.work]
MODELS = {
    path: work[0]
    for adapter in ADAPTERS
    for path, work in adapter.work.items()
    if isinstance(work, tuple)
}
POINTS = [[1, 2]] * (MAX_POINTS + 1)
MARKS = [{"type": "point", "data": [1, 2]}] * 30 + [
    {"type": "rectangle", "data": [1, 2, 3, 4]}
] * 200
TASK = {"data": {"img": "data:image/png;base64,AAAA"}}
PROMPTS: dict[str, Any] = {
    "/v1/predict": {"model": "mobile_sam", "image": "AAAA", "params": {"marks": MARKS}},
    "/sam2/segment_image": {"image_id": "id", "prompts": [{"points": [POINT]}] * (MAX_OBJECTS + 1)},
    "/sam2/embed_image": None,
    "/sam/segment_image": {
        "image_id": "id",
        "point_coords": POINTS,
        "point_labels": [1] * len(POINTS),
    },
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
"""Bodies with prompts beyond the limits of `/mobile_sam` or `/everything`; None: the path has no
prompts."""


def long_texts(schema: dict[str, Any], models: dict[str, Any]) -> Iterator[tuple[Any, int]]:
    """Yield values of a JSON schema, each with one text beyond its limit; and that limit."""
    if "$ref" in schema:
        schema = models[schema["$ref"].rpartition("/")[2]]
    for inner in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        yield from long_texts(inner, models)
    for name, inner in schema.get("properties", {}).items():
        yield from (({name: value}, limit) for value, limit in long_texts(inner, models))
    if "items" in schema:
        yield from (([value], limit) for value, limit in long_texts(schema["items"], models))
    limit = schema.get("maxLength", MAX_TEXT_CHARS)
    # Not an image.
    if schema.get("type") == "string" and not schema.keys() & {"enum", "const"} and limit < 2**30:
        yield "x" * (limit + 1), limit


LONG_TEXTS = [
    pytest.param(path, value, limit, id=f"{path} {json.dumps(value)[:60]}")
    for path, model in MODELS.items()
    for schema in [model.model_json_schema()]
    for value, limit in long_texts(schema, schema.get("$defs", {}))
]


class Tools(Http, FakeSegmenter):
    """All adapters behind the edge, with a fake segmenter."""

    def __init__(self) -> None:
        FakeSegmenter.__init__(self)
        self.adapters = Adapters(ADAPTERS, MaskService(self, SETTINGS))
        edge = make_edge(
            self.adapters,
            work_paths=frozenset(PATHS),
            adapters=self.adapters,
            limits=Limits(MAX_BYTES, 60, lambda: 60),
            admission=Admission(1, 2 * MAX_BYTES),
        )
        Http.__init__(self, edge)

    def refusal(
        self, path: str, body: bytes, *, status: int = 422, content_type: str = "application/json"
    ) -> str:
        """Return the error of a request that has to be refused, in the form of the path's tool,
        without any work.
        """
        headers = {"content-type": content_type, "x-nuclio-function-name": INTERACTOR}
        answer = self.post(path, content=body, headers=headers)
        # The edge, which bounds bytes, does not know the forms of single paths.
        form = (self.adapters.error_response if status == 413 else self.adapters.work_error)(
            path, Problem(status, "a-slug", "", "what is wrong")
        )
        expected = (form.status_code, form.headers.get("content-type"))
        assert (answer.status_code, answer.headers.get("content-type")) == expected
        assert self.calls == []
        return answer.text or answer.headers["location"].replace("-", " ")


@pytest.fixture
def tools() -> Tools:
    return Tools()


def test_paths_and_texts_were_found():
    assert len(MODELS) >= 10
    assert len(LONG_TEXTS) >= 15
    assert MODELS.keys() == PROMPTS.keys()


@pytest.mark.parametrize("path", PATHS)
def test_body_of_another_type_or_with_too_many_bytes_is_refused(tools, path):
    assert f"at most {MAX_BYTES} bytes" in tools.refusal(path, b" " * (MAX_BYTES + 1), status=413)
    for content_type in ("text/plain", "multipart/form-data", ""):
        assert "application/json" in tools.refusal(
            path, b"{}", status=415, content_type=content_type
        )


@pytest.mark.parametrize("path", MODELS)
def test_body_with_too_many_values_or_too_deep_is_refused(tools, path):
    many = b'{"a":[' + b'{"a":{}},' * (MAX_VALUES - 3) + b"0,0,0]}"
    assert f"at most {MAX_VALUES} values" in tools.refusal(path, many)
    deep = b'{"a":' * (MAX_DEPTH + 1) + b"0" + b"}" * (MAX_DEPTH + 1)
    assert "recursion limit exceeded" in tools.refusal(path, deep, status=400)


@pytest.mark.parametrize(("path", "body", "limit"), LONG_TEXTS)
def test_body_with_a_long_text_is_refused(tools, path, body, limit):
    assert f"at most {limit} characters" in tools.refusal(path, json.dumps(body).encode())


@pytest.mark.parametrize(("path", "body"), [(path, body) for path, body in PROMPTS.items() if body])
def test_body_with_too_many_prompts_is_refused(tools, path, body):
    assert re.search(
        r"at most \d+|less than or equal to \d+", tools.refusal(path, json.dumps(body).encode())
    )


@pytest.mark.parametrize("path", PATHS)
def test_compressed_body_is_refused_before_it_is_read(tools, path):
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = tools.post(path, content=b"\x1f\x8b", headers=headers)
    assert "expected a body without Content-Encoding, or with identity, got gzip" in answer.text
    assert tools.calls == []


@pytest.mark.parametrize("path", PATHS)
def test_query_with_too_many_parameters_is_refused(tools, path):
    answer = tools.post(
        f"{path}?{'&' * 1000}", content=b"{}", headers={"content-type": "application/json"}
    )
    assert re.search("query:.expected.at.most", answer.text or answer.headers["location"])
    assert tools.calls == []
