"""Error classes and their problem documents."""

import json

import pytest

from utils.api import errors
from utils.api.errors import FieldError, InvalidRequest, ServiceError


def all_errors(base: type[ServiceError] = ServiceError) -> list[type[ServiceError]]:
    return [base, *(deeper for cls in base.__subclasses__() for deeper in all_errors(cls))]


def test_module_docstring_names_every_error():
    for cls in all_errors():
        assert cls.__name__ in str(errors.__doc__)


@pytest.mark.parametrize("cls", [cls for cls in all_errors() if cls is not errors.RejectedByModel])
def test_error_becomes_a_problem_document(cls):
    problem = cls("what happened").problem()
    document = json.loads(problem.encode())
    assert document["status"] == cls.status == problem.status
    assert document["type"] == f"urn:mobile-sam:{cls.slug}"
    assert document["title"] == cls.title
    assert document["detail"] == "what happened"
    assert "errors" not in document


def test_problem_lists_its_fields():
    error = InvalidRequest.of([FieldError(f"field{i}", "this", "that") for i in range(5)])
    document = json.loads(error.problem().encode())
    assert document["errors"][4] == {"field": "field4", "expected": "this", "got": "that"}
    assert document["detail"].startswith("field0: expected this, got that; field1")
    assert document["detail"].endswith("(and 2 more)")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(errors.Stopping(""), "5"), (errors.Overloaded(""), "1"), (errors.TooManyRequests("", 7), "7")],
)
def test_temporary_problem_has_retry_after(error, seconds):
    assert error.problem().headers == {"Retry-After": seconds}


def test_rejection_by_the_model_keeps_its_document():
    problem = errors.Problem(422, "too-much-work", "a title", "a detail")
    assert errors.RejectedByModel(problem).problem() is problem
