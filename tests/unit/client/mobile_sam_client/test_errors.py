"""Problem documents become errors."""

from __future__ import annotations

import inspect
import pickle

import pytest

from mobile_sam_client import _errors
from mobile_sam_client._errors import LONGEST, MobileSamError, Problem, problem_of

DOCUMENT = {
    "type": "urn:mobile-sam:invalid-request",
    "title": "The request is not valid",
    "status": 422,
    "detail": "box: expected x,\n got y",
    "errors": [{"field": "box", "expected": "x", "got": "y", "more": 1}],
}


def test_a_problem_keeps_what_the_service_said():
    problem = problem_of(DOCUMENT, "the-request", 2.0)
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
def test_the_class_of_a_problem_says_what_to_do_about_it(status, slug, kind):
    assert type(problem_of({"type": f"urn:mobile-sam:{slug}", "status": status})).__name__ == kind


def test_a_problem_of_another_kind_has_the_end_of_its_address():
    problem = problem_of({"type": "https://a.example/problems/teapot", "status": 418, "title": "A teapot"})
    assert str(problem) == "418 teapot: A teapot"


def test_a_long_text_is_cut():
    assert len(str(problem_of({**DOCUMENT, "detail": "x" * 10_000}))) < LONGEST + 10


def test_errors_survive_the_way_to_another_process():
    problem = problem_of(DOCUMENT, "the-request", 2.0)
    copy = pickle.loads(pickle.dumps(problem))
    assert type(copy) is type(problem)
    assert (str(copy), copy.errors, copy.retry_after) == (str(problem), problem.errors, 2.0)


def test_the_tree_at_the_top_of_the_file_is_the_tree():
    drawn = [line.split("── ")[1].split()[0] for line in _errors.__doc__.splitlines() if "── " in line]
    classes = dict(inspect.getmembers(_errors, inspect.isclass))
    errors = [name for name, kind in classes.items() if issubclass(kind, MobileSamError) and kind is not MobileSamError]
    assert sorted(drawn) == sorted(errors)
    inner = [
        line.split("── ")[1].split()[0]
        for line in _errors.__doc__.splitlines()
        if line.startswith("        ├── ") or line.startswith("        └── ")
    ]
    assert {name for name in errors if classes[name].__base__ is Problem} == set(inner)
