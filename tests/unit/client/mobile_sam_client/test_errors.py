"""Error classes and their texts."""

import pytest

from mobile_sam_client._errors import MAX_TEXT_LENGTH, problem_from_document

DOCUMENT = {
    "type": "urn:mobile-sam:invalid-request",
    "title": "The request is not valid",
    "status": 422,
    "detail": "box: expected x,\n got y",
    "errors": [{"field": "box", "expected": "x", "got": "y", "more": 1}],
}


def test_problem_keeps_the_document():
    problem = problem_from_document(DOCUMENT, "the-request", 2.0)
    assert problem.type == "urn:mobile-sam:invalid-request"
    assert (problem.slug, problem.title, problem.status) == (
        "invalid-request",
        "The request is not valid",
        422,
    )
    assert problem.detail == "box: expected x,\n got y"
    assert problem.errors == [{"field": "box", "expected": "x", "got": "y"}]
    assert (problem.request_id, problem.retry_after) == ("the-request", 2.0)
    assert str(problem) == "422 invalid-request: box: expected x, got y (request the-request)"


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (400, "malformed-body", "InvalidRequest"),
        (401, "unauthorized", "Unauthorized"),
        (404, "image-not-cached", "ImageNotCached"),
        (404, "not-found", "Problem"),
        (413, "body-too-large", "BodyTooLarge"),
        (413, "image-too-large", "InvalidImage"),
        (422, "invalid-image", "InvalidImage"),
        (422, "answer-too-large", "InvalidRequest"),
        (422, "something-new", "InvalidRequest"),
        (429, "too-many-requests", "TooManyRequests"),
        (503, "inference-unavailable", "Unavailable"),
        (504, "inference-timeout", "Unavailable"),
    ],
)
def test_problem_class_depends_on_slug_and_status(status, slug, kind):
    assert (
        type(problem_from_document({"type": f"urn:mobile-sam:{slug}", "status": status})).__name__
        == kind
    )


def test_long_detail_is_cut():
    text = str(problem_from_document(DOCUMENT | {"detail": "x" * 10_000}))
    assert text == f"422 invalid-request: {'x' * (MAX_TEXT_LENGTH - 21)}..."
