"""Ids of a request, and what logs and metrics say of it."""

import pytest

from tests.unit.utils.edge.middleware.calls import PATHS, Application, ask
from utils.edge.admission import Admission
from utils.edge.middleware.context import ImageIdMiddleware, RequestContextMiddleware
from utils.edge.request import request_of
from utils.errors import InvalidRequest
from utils.inference.shares import Turns
from utils.observability.context import ADDRESS, IMAGE_ID, RECORD, REQUEST_ID, TARGET

IMAGE = b"a" * 64


class ContextReader:
    """An application that notes the context variables of a request."""

    def __init__(self) -> None:
        self.seen: dict[str, object] = {}

    async def __call__(self, scope, receive, send):
        record = RECORD.get()
        assert record
        self.seen = {
            "path": scope["path"],
            "route": request_of(scope).route,
            "recorded": record.path,
            "target": TARGET.get(),
            "address": ADDRESS.get(),
            "id": REQUEST_ID.get(),
        }


@pytest.mark.parametrize(
    ("path", "recorded"),
    [
        pytest.param("/work", "/work", id="known"),
        pytest.param("/v1/tool", "/v1/tool", id="off"),
        pytest.param("/a-secret", "other", id="unknown"),
    ],
)
async def test_request_context_has_only_known_paths(path, recorded):
    app = ContextReader()
    step = RequestContextMiddleware(app, PATHS, Turns(2, name="large bodies"))
    await ask(step, path, headers=[(b"x-request-id", b"an-id")], first=True)
    assert app.seen == {
        "path": path,
        "route": path,
        "recorded": recorded,
        "target": f"POST {recorded}",
        "address": "10.0.0.1",
        "id": "an-id",
    }


async def test_request_context_takes_the_path_out_of_an_absolute_form():
    app = ContextReader()
    step = RequestContextMiddleware(app, PATHS, Turns(2, name="large bodies"))
    await ask(step, "http://a-host:3000/work", first=True)
    assert (app.seen["path"], app.seen["route"]) == ("/work", "/work")


async def test_request_context_replaces_an_id_that_a_log_cannot_show():
    app = ContextReader()
    step = RequestContextMiddleware(app, PATHS, Turns(2, name="large bodies"))
    await ask(step, headers=[(b"x-request-id", b"a b")], first=True)
    assert len(str(app.seen["id"])) == 32


async def test_request_context_frees_the_body_of_a_request_that_fails():
    room = Admission(1, 1000).bodies

    async def failing(scope, receive, send):
        holding = room.take("10.0.0.1", 0, lambda: None)
        await request_of(scope).body.read(1000, 10, holding)
        assert room.held == {"10.0.0.1": 4}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ask(
            RequestContextMiddleware(failing, PATHS, Turns(2, name="large bodies")),
            body=[b"body"],
            first=True,
        )
    assert room.held == {}


async def test_image_id_is_known_to_the_work():
    seen: list[str] = []

    async def app(scope, receive, send):
        seen.append(IMAGE_ID.get())

    await ask(ImageIdMiddleware(app), headers=[(b"x-image-id", IMAGE)])
    await ask(ImageIdMiddleware(app))
    assert seen == [IMAGE.decode(), ""]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([b"A" * 64], id="upper-case"),
        pytest.param([b"a" * 63], id="short"),
        pytest.param([b""], id="empty"),
        pytest.param([IMAGE, IMAGE], id="repeated"),
    ],
)
async def test_image_id_that_a_proxy_may_read_otherwise_is_refused(values):
    app = Application()
    with pytest.raises(InvalidRequest):
        await ask(ImageIdMiddleware(app), headers=[(b"x-image-id", value) for value in values])
    assert not app.requests
