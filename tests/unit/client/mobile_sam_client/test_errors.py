"""Error classes and their texts."""

import inspect
import pickle

import pytest

from mobile_sam_client import _errors
from mobile_sam_client._errors import MAX_TEXT_LENGTH, MobileSamError, problem_from_document

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
    assert (problem.slug, problem.title, problem.status) == ("invalid-request", "The request is not valid", 422)
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
        (408, "slow-body", "Problem"),
        (413, "body-too-large", "BodyTooLarge"),
        (413, "image-too-large", "InvalidImage"),
        (415, "unsupported-image-format", "InvalidImage"),
        (422, "invalid-image", "InvalidImage"),
        (422, "invalid-request", "InvalidRequest"),
        (422, "answer-too-large", "InvalidRequest"),
        (422, "something-new", "InvalidRequest"),
        (429, "too-many-requests", "TooManyRequests"),
        (500, "inference-failed", "Problem"),
        (503, "inference-unavailable", "Unavailable"),
        (503, "overloaded", "Unavailable"),
        (503, "stopping", "Unavailable"),
        (504, "inference-timeout", "Unavailable"),
    ],
)
def test_problem_class_depends_on_slug_and_status(status, slug, kind):
    assert type(problem_from_document({"type": f"urn:mobile-sam:{slug}", "status": status})).__name__ == kind


def test_problem_can_be_pickled():
    problem = problem_from_document(DOCUMENT, "the-request", 2.0)
    copy = pickle.loads(pickle.dumps(problem))
    assert type(copy) is type(problem)
    assert (str(copy), vars(copy)) == (str(problem), vars(problem))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"type": "https://a.example/problems/teapot", "status": 418, "detail": ""},
            "418 teapot: The request is not valid",
        ),
        ({"detail": "x" * 10_000}, f"422 invalid-request: {'x' * (MAX_TEXT_LENGTH - 21)}..."),
    ],
    ids=["foreign type without detail", "long detail"],
)
def test_problem_is_shown_in_one_short_line(changes, text):
    assert str(problem_from_document(DOCUMENT | changes)) == text


def test_error_tree_in_the_docstring_is_complete():
    drawn = [line.split("── ")[1].split()[0] for line in _errors.__doc__.splitlines() if "── " in line]
    classes = dict(inspect.getmembers(_errors, inspect.isclass))
    errors = [name for name, kind in classes.items() if issubclass(kind, MobileSamError) and kind is not MobileSamError]
    assert sorted(drawn) == sorted(errors)
