"""Bodies of work, and early ends."""

import asyncio

import pytest

from tests.unit.utils.edge.middleware.calls import Application, ask
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.edge.middleware.body import (
    STOPPED_WHILE_READING,
    BodyHeadersMiddleware,
    CostlyRoomMiddleware,
    EarlyEndMiddleware,
    ReadBodyMiddleware,
)
from utils.errors import (
    BodyTooLarge,
    Overloaded,
    SlowBody,
    Stopping,
    UnsupportedEncoding,
    UnsupportedMedia,
)

LIMITS = Limits(100, 60, lambda: 60)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        pytest.param((b"content-type", "text/ü".encode()), UnsupportedMedia, id="type"),
        pytest.param((b"content-encoding", b"gzip"), UnsupportedEncoding, id="encoding"),
    ],
)
async def test_body_that_nothing_can_read_is_refused_by_its_headers(header, error):
    app = Application()
    with pytest.raises(error):
        await ask(BodyHeadersMiddleware(app), headers=[header])
    assert not app.requests


async def test_plain_body_passes_by_its_headers():
    app = Application()
    headers = [(b"content-type", b"application/json"), (b"content-encoding", b"identity")]
    await ask(BodyHeadersMiddleware(app), headers=headers)
    assert app.requests


async def test_request_that_a_stop_ends_says_how_far_it_was():
    admission = Admission(1, 1)

    async def endless(scope, receive, send):
        admission.abort_in_flight()
        await asyncio.sleep(60)

    with pytest.raises(Stopping, match=STOPPED_WHILE_READING):
        await ask(EarlyEndMiddleware(endless, admission))
    with pytest.raises(Stopping, match=STOPPED_WHILE_READING):
        await ask(EarlyEndMiddleware(Application(), admission))


async def test_further_steps_have_the_whole_body():
    app = Application()
    await ask(ReadBodyMiddleware(app, Admission(1, 1000), LIMITS), body=[b"a", b"b"])
    assert app.contents == [b"ab"]


async def test_stop_after_the_body_says_that_the_request_could_not_be_finished():
    admission = Admission(1, 1000)

    async def endless(scope, receive, send):
        admission.abort_in_flight()
        await asyncio.sleep(60)

    reading = ReadBodyMiddleware(endless, admission, LIMITS)
    with pytest.raises(Stopping, match="could not finish this request in time"):
        await ask(EarlyEndMiddleware(reading, admission), body=[b"a"])


@pytest.mark.parametrize(
    ("body", "length", "error"),
    [
        pytest.param([b"a" * 60, b"a" * 60], None, BodyTooLarge, id="large"),
        pytest.param([b"a"], b"101", BodyTooLarge, id="announced-large"),
        pytest.param([], b"1", SlowBody, id="slow"),
    ],
)
async def test_body_beyond_a_limit_is_refused(body, length, error):
    app = Application()
    limits = Limits(100, 0.05, lambda: 60) if error is SlowBody else LIMITS
    headers = [] if length is None else [(b"content-length", length)]
    with pytest.raises(error):
        await ask(ReadBodyMiddleware(app, Admission(1, 1000), limits), headers=headers, body=body)
    assert not app.requests


async def test_body_for_which_others_leave_no_memory_is_refused():
    app, admission = Application(), Admission(1, 150)
    admission.bodies.take("10.0.0.2", 75, lambda: None)
    with pytest.raises(Overloaded, match="request bodies in memory"):
        await ask(ReadBodyMiddleware(app, admission, LIMITS), body=[b"a" * 90])
    assert not app.requests


async def test_costly_body_is_refused_on_its_path():
    bodies: list[bytes] = []

    def check_room(body: bytes) -> None:
        bodies.append(body)
        raise Overloaded("full")

    app = Application()
    checked = CostlyRoomMiddleware(app, {"/work": check_room})
    step = ReadBodyMiddleware(checked, Admission(1, 1000), LIMITS)
    with pytest.raises(Overloaded):
        await ask(step, "/work", body=[b"costly"])
    await ask(step, "/embed", body=[b"costly"])
    assert bodies == [b"costly"]
    assert [request.route for request in app.requests] == ["/embed"]
