"""Error classes and their problem documents."""

import json
import re
from pathlib import Path

import pytest

from orchestrator import problems
from utils import errors
from utils.api.answers import problem_of
from utils.errors import FieldError, InvalidRequest, ServiceError

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
BASES = (errors.RejectedByModel, errors.Unavailable)
"""Classes that have no problem type of their own."""


def kinds(error: type[ServiceError] = ServiceError) -> list[type[ServiceError]]:
    """Return a class of errors and all that derive from it."""
    return [error, *(inner for kind in error.__subclasses__() for inner in kinds(kind))]


def test_page_lists_every_problem_with_its_status():
    rows = re.findall(
        r"^\| (\d{3}) \| `([a-z-]+)` \| \S.* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = [(int(status), slug) for status, slug in rows]
    of_errors = {(kind.status, kind.slug) for kind in kinds() if kind not in BASES}
    of_images = {
        value[:2]
        for name, value in vars(problems).items()
        if name.isupper() and isinstance(value, tuple)
    }
    assert len(of_images) > 5
    assert sorted(listed) == sorted(of_errors | of_images)


def test_error_becomes_a_problem_document_with_its_fields():
    error = InvalidRequest(errors=[FieldError(f"field{i}", "this", "that") for i in range(5)])
    document = json.loads(error.problem().encode())
    assert (document["type"], document["title"]) == (
        "urn:mobile-sam:invalid-request",
        "The request is not valid",
    )
    assert document["status"] == error.problem().status == 422
    assert document["errors"][4] == {"field": "field4", "expected": "this", "got": "that"}
    assert document["detail"].startswith("field0: expected this, got that; field1")
    assert document["detail"].endswith("(and 2 more)")
    assert "errors" not in json.loads(errors.SlowBody("a detail").problem().encode())


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (errors.Stopping(""), {"Retry-After": "5"}),
        (errors.Overloaded(""), {"Retry-After": "1"}),
        (errors.TooManyRequests("", 7), {"Retry-After": "7"}),
        (errors.WrongMethod("/embed", ["POST"], "GET"), {"Allow": "POST"}),
        (errors.Unauthorized(""), {"WWW-Authenticate": 'Bearer realm="mobile-sam"'}),
    ],
)
def test_problem_has_the_headers_of_its_status(error, headers):
    assert error.problem().headers == headers


def test_reported_error_releases_the_frames_it_passed():
    error = InvalidRequest("a detail")
    try:
        raise error from TimeoutError()
    except InvalidRequest:
        problem_of(error)
    assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
