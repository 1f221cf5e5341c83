"""Fields of a request in the query of its URL."""

from collections.abc import Iterable
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request

from orchestrator.regions import AUTO
from utils.api.names import unknown_field
from utils.api.requests import MAX_POINTS
from utils.errors import invalid

NOT_IN_A_QUERY = {
    "input_image",
    "image_id",
    "pos_coords",
    "neg_coords",
    "mask_input",
    "prompts",
    "images",
    "image_ids",
}
IN_JSON = "this field in JSON: in the body, or in the part request of a form"
EXPECTED_INSTEAD = {"pos_coords": "x and y, such as x=903&y=310, or this field in JSON"}
"""What is expected in place of a parameter in `NOT_IN_A_QUERY`, unless it is `IN_JSON`."""
MAX_PARAMETERS = 2 * MAX_POINTS + 100
"""Maximum number of parameters in a query, in which each point has two."""
QUERY_LISTS = ("box", "labels", "region")
"""Fields that are comma-separated numbers in a query."""

Model = TypeVar("Model", bound=BaseModel)


def parameters_of(request: Request) -> list[tuple[str, str]]:
    """Return the query parameters of a request.

    Raises:
        InvalidRequest: there are more than `MAX_PARAMETERS`.
    """
    if request.scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise invalid("query", f"at most {MAX_PARAMETERS} parameters", "more")
    return request.query_params.multi_items()


def query_fields(
    parameters: Iterable[tuple[str, str]],
    model: type[BaseModel],
    **fields: Any,
) -> bytes:
    """Return the fields of a query, and further ones, as JSON.

    `x=903&y=310` is a point of `pos_coords` and can be repeated; other fields have their names:
    `box=0,0,9,9`.

    Raises:
        InvalidRequest: an unknown or repeated parameter, or numbers of x and y that differ.
    """
    points: dict[str, list[Any]] = {"x": [], "y": []} if "pos_coords" in model.model_fields else {}
    known = [*points, *(name for name in model.model_fields if name not in NOT_IN_A_QUERY)]
    # With a field in the path, the request has no JSON.
    in_json = set() if fields else NOT_IN_A_QUERY & model.model_fields.keys()
    for name, value in parameters:
        if name in in_json:
            raise invalid(name, EXPECTED_INSTEAD.get(name, IN_JSON), "a query parameter")
        if name not in known:
            raise unknown_field(name, known, "query parameter")
        if name in points:
            points[name].append(_number_or_text(value))
        elif name in fields:
            raise invalid(name, "one query parameter of this name", "several")
        elif name in QUERY_LISTS and value != AUTO:
            fields[name] = [_number_or_text(item) for item in value.split(",", MAX_POINTS)]
        else:
            fields[name] = _number_or_text(value)
    if points and len(points["x"]) != len(points["y"]):
        raise invalid("x", "as many x as y", f"{len(points['x'])} and {len(points['y'])}")
    if points and points["x"]:
        fields["pos_coords"] = list(zip(points["x"], points["y"], strict=True))
    return orjson.dumps(fields)


def with_queried(fields: Model, queried: Model) -> Model:
    """Return the fields of a body together with those of the query.

    Raises:
        InvalidRequest: a field is in both.
    """
    for name in type(fields).model_fields:
        if name in fields.model_fields_set & queried.model_fields_set:
            raise invalid(name, "this field once", "one in the query and one in the body")
    update = {name: getattr(queried, name) for name in queried.model_fields_set}
    return fields.model_copy(update=update)


def _number_or_text(value: str) -> Any:
    """Return `3`, `0.5` and `true` as what they are in JSON, other values as text: `null` too."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return value if parsed is None else parsed
