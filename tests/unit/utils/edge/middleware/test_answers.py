"""Headers, metrics and last pieces of answers."""

import pytest

from tests.unit.utils.edge.fakes import FakeCounts
from tests.unit.utils.edge.middleware.calls import PATHS, Application, ask, headers_of
from utils.edge.admission import SMALL_ANSWER_BYTES, Admission
from utils.edge.bodies import ClientDisconnected
from utils.edge.middleware.answers import (
    SECURITY_HEADERS,
    AnswerCountsMiddleware,
    AnswerHeadersMiddleware,
    LastPieceMiddleware,
)


async def test_every_answer_has_the_security_headers_and_keeps_its_own():
    own = [(b"referrer-policy", b"origin"), (b"content-type", b"text/plain")]
    step = AnswerHeadersMiddleware(Application(headers=own), PATHS, Admission(1, 1))
    headers = headers_of(await ask(step))
    assert headers["referrer-policy"] == "origin"
    assert headers["content-type"] == "text/plain"
    assert "x-request-id" in headers
    assert {name.lower() for name in SECURITY_HEADERS} <= headers.keys()


async def test_answers_of_work_are_not_cached():
    step = AnswerHeadersMiddleware(Application(), PATHS, Admission(1, 1))
    assert headers_of(await ask(step, "/work"))["cache-control"] == "no-store"
    assert "cache-control" not in headers_of(await ask(step, "/page", "GET"))


async def test_answers_of_a_stopping_worker_close_the_connection():
    admission = Admission(1, 1)
    step = AnswerHeadersMiddleware(Application(), PATHS, admission)
    assert "connection" not in headers_of(await ask(step))
    admission.stop(10)
    assert headers_of(await ask(step))["connection"] == "close"


async def test_counts_have_a_bounded_number_of_paths():
    counts = FakeCounts()
    step = AnswerCountsMiddleware(Application(status=204), counts, PATHS)
    for path in ("/work", "/static_content/a.css", "/unknown"):
        await ask(step, path)
    assert counts.answers == [
        ("/work", 204, "ok"),
        ("/static_content", 204, "ok"),
        ("other", 204, "ok"),
    ]


@pytest.mark.parametrize(
    ("pieces", "counted"),
    [
        pytest.param([], ("/work", 499, "caller-left"), id="before-the-answer"),
        pytest.param([b"a part"], ("/work", 200, "ok"), id="during-the-answer"),
    ],
)
async def test_counts_have_callers_who_left_once(pieces, counted):
    counts = FakeCounts()
    app = Application(pieces=pieces, error=ClientDisconnected())
    step = AnswerCountsMiddleware(app, counts, PATHS)
    await ask(step)
    assert counts.answers == [counted]


@pytest.mark.parametrize(
    ("size", "sizes"),
    [
        pytest.param(SMALL_ANSWER_BYTES, [SMALL_ANSWER_BYTES], id="small"),
        pytest.param(SMALL_ANSWER_BYTES + 1, [SMALL_ANSWER_BYTES + 1, 0], id="large"),
    ],
)
async def test_large_last_piece_is_followed_by_an_empty_one(size, sizes):
    answer = await ask(LastPieceMiddleware(Application(pieces=[b"x" * size])))
    assert [len(message["body"]) for message in answer[1:]] == sizes
    assert not answer[-1].get("more_body", False)
    assert all(message["more_body"] for message in answer[1:-1])


async def test_large_piece_before_the_last_one_is_sent_as_it_is():
    large = b"x" * (SMALL_ANSWER_BYTES + 1)
    answer = await ask(LastPieceMiddleware(Application(pieces=[large, b"end"])))
    assert [message["body"] for message in answer[1:]] == [large, b"end"]
