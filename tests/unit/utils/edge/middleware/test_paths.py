"""Heads, paths and methods that the service accepts."""

import pytest

from tests.unit.utils.edge.middleware.calls import PATHS, Application, ask
from utils.edge.connections import MAX_FIELDS, MAX_HEAD_BYTES
from utils.edge.middleware.paths import HeadLimitMiddleware, KnownPathsMiddleware
from utils.errors import HeadTooLarge, MalformedRequest, UnknownPath, WrongMethod


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        pytest.param([(b"a", b"b")] * MAX_FIELDS, None, id="fields"),
        pytest.param([(b"a", b"b")] * (MAX_FIELDS + 1), HeadTooLarge, id="too-many-fields"),
        pytest.param([(b"a", b"b" * (MAX_HEAD_BYTES - 6))], None, id="bytes"),
        pytest.param([(b"a", b"b" * (MAX_HEAD_BYTES - 5))], HeadTooLarge, id="too-many-bytes"),
        pytest.param(
            [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
            MalformedRequest,
            id="two-lengths",
        ),
    ],
)
async def test_head_is_limited_in_fields_and_bytes_and_has_one_length(headers, error):
    app = Application()
    step = HeadLimitMiddleware(app)
    if error is None:
        await ask(step, "/work", headers=headers)
        assert app.requests
        return
    with pytest.raises(error):
        await ask(step, "/work", headers=headers)
    assert not app.requests


@pytest.mark.parametrize(
    ("path", "method", "error", "message"),
    [
        pytest.param("/no", "GET", UnknownPath, "there is no path", id="unknown-path"),
        pytest.param("/v1/tool", "POST", UnknownPath, "tool in MOBILE_SAM_INTEGRATIONS", id="off"),
        pytest.param("/work", "GET", WrongMethod, "expected POST for /work", id="wrong-method"),
    ],
)
async def test_unknown_path_and_method_are_refused(path, method, error, message):
    app = Application()
    with pytest.raises(error, match=message):
        await ask(KnownPathsMiddleware(app, PATHS), path, method)
    assert not app.requests


async def test_known_path_and_method_pass():
    app = Application()
    await ask(KnownPathsMiddleware(app, PATHS), "/page", "HEAD")
    assert [request.route for request in app.requests] == ["/page"]
