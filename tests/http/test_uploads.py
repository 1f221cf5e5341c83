"""Images sent as files: `multipart/form-data` and raw bodies."""

import base64
import json
from typing import Any

import pytest

from utils.api.requests import MAX_POINTS
from utils.inference.request import ImageSource

FILE = b"\xff\xd8 an image file \r\n--boundary {{{{{{{{{{{{{{{{"
CLICK = {"pos_coords": [[903, 310]]}
PATHS: dict[str, dict[str, Any]] = {
    "/mobile_sam": CLICK,
    "/embed": {},
    "/everything": {"points_per_side": 4},
}
each_path = pytest.mark.parametrize("path", PATHS)


@each_path
def test_form_with_image_and_request_reaches_the_segmenter(http, segmenter, path):
    form = {"image": ("photo.jpg", FILE, "image/jpeg"), "request": (None, json.dumps(PATHS[path]))}
    assert http.post(path, files=form).status_code == 200
    assert [(source.file, source.field) for source in segmenter.sources] == [(FILE, "image")]
    if path == "/mobile_sam":
        assert segmenter.jobs[0][1].inputs["point_coords"].tolist() == [CLICK["pos_coords"]]


def test_form_without_an_image_can_name_one(http, segmenter):
    request = json.dumps({"image_id": "an id", **CLICK})
    assert (
        http.post(
            "/mobile_sam", files={"request": ("r.json", request, "application/json")}
        ).status_code
        == 200
    )
    assert segmenter.sources == [ImageSource(None, "an id")]


@each_path
@pytest.mark.parametrize(
    "content_type", ["image/jpeg", "IMAGE/PNG; x=y", "application/octet-stream"]
)
def test_raw_image_reaches_the_segmenter(http, segmenter, path, content_type):
    query = "?x=903&y=310" if path == "/mobile_sam" else ""
    assert (
        http.post(path + query, content=FILE, headers={"content-type": content_type}).status_code
        == 200
    )
    assert [(source.file, source.field) for source in segmenter.sources] == [(FILE, "image")]


def test_query_has_points_box_and_options(http, segmenter):
    query = "x=1&y=2&x=3.5&y=4&labels=1,0&box=0,0,9,9&multimask_output=true&mask_format=rle&mask_threshold=0.5"
    raw = {"content": FILE, "headers": {"content-type": "image/png"}}
    assert http.post(f"/mobile_sam?{query}", **raw).status_code == 200
    ((_, job),) = segmenter.jobs
    assert job.inputs["point_coords"].tolist() == [[[1, 2], [3.5, 4], [0, 0], [9, 9]]]
    assert job.inputs["point_labels"].tolist() == [[1, 0, 2, 3]]
    assert (
        job.options | {"multimask_output": True, "mask_format": "rle", "mask_threshold": 0.5}
        == job.options
    )


@pytest.mark.parametrize(
    ("query", "region"),
    [
        ("/mobile_sam?x=1&y=2&region=auto", "auto"),
        ("/mobile_sam?x=1&y=2&region=1,2,40.5,60", (1, 2, 40.5, 60)),
        ("/embed?region=1,2,40.5,60", (1, 2, 40.5, 60)),
        ("/everything?region=1,2,40.5,60", (1, 2, 40.5, 60)),
    ],
)
def test_query_has_a_region(http, segmenter, query, region):
    assert http.post(query, content=FILE, headers={"content-type": "image/png"}).status_code == 200
    assert [source.region for source in segmenter.sources] == [region]


@pytest.mark.parametrize(
    ("query", "field", "got"),
    [
        ("x=1&y=2&mask_threshold=null", "mask_threshold", "'null'"),
        ("x=1&y=2&point_coords=3", "point_coords", "an unknown query parameter"),
        (
            "x=1&y=2&mask_formt=rle",
            "mask_formt",
            "an unknown query parameter (did you mean mask_format?)",
        ),
        ("x=1&y=2&mask_format=rle&mask_format=png", "mask_format", "several"),
        ("x=1&x=2&y=1", "x", "2 and 1"),
        ("x=left&y=1", "pos_coords[0][0]", "'left'"),
        ("x=NaN&y=1", "pos_coords[0][0]", "'NaN'"),
        ("box=1,2,3", "box", "a list of 3"),
        ("x=1&y=1&multimask_output=maybe", "multimask_output", "'maybe'"),
        ("", "pos_coords", "no prompt"),
        ("prompts=[]", "prompts", "a query parameter"),
        ("pos_coords=[[1,2]]", "pos_coords", "a query parameter"),
    ],
)
def test_bad_query_is_a_422_that_names_the_parameter(http, segmenter, query, field, got):
    response = http.post(
        f"/mobile_sam?{query}", content=FILE, headers={"content-type": "image/png"}
    )
    assert response.status_code == 422
    error = response.json()["errors"][0]
    assert (error["field"], error["got"]) == (field, got)
    assert not segmenter.calls


def sent_as(kind: str, **fields: Any) -> dict[str, Any]:
    """Return the options of a request with an image and these fields, as one of the types of
    body.
    """
    if kind == "json":
        return {"json": {"input_image": base64.b64encode(FILE).decode(), **fields}}
    if kind == "form":
        return {"files": {"image": FILE, "request": (None, json.dumps(fields))}}
    return {"content": FILE, "headers": {"content-type": "image/png"}}


each_kind = pytest.mark.parametrize("kind", ["json", "form", "file"])
USES = {
    "/mobile_sam": "x=1&y=2&mask_format=png&multimask_output=true",
    "/embed": "region=0,0,40,40",
    "/everything": "points_per_side=2&region=0,0,40,40",
}


@each_path
@each_kind
def test_query_is_honoured_with_every_type_of_body(http, segmenter, path, kind):
    response = http.post(f"{path}?{USES[path]}", **sent_as(kind))
    assert response.status_code == 200
    assert [source.file for source in segmenter.sources] == [FILE]
    if path == "/mobile_sam":
        ((_, job),) = segmenter.jobs
        assert job.inputs["point_coords"].tolist() == [[[1, 2]]]
        assert (job.options["mask_format"], job.options["multimask_output"]) == ("png", True)
    else:
        assert segmenter.sources[0].region == (0, 0, 40, 40)
    if path == "/everything":
        assert len(segmenter.batches[0][1].inputs["point_coords"]) == 4


@each_kind
def test_query_can_ask_for_progress_with_every_type_of_body(http, segmenter, kind):
    response = http.post("/everything?points_per_side=2&progress=true", **sent_as(kind))
    assert response.headers["content-type"] == "application/x-ndjson"
    assert json.loads(response.text.splitlines()[0])["done"] == 0


@each_path
@each_kind
def test_unknown_query_parameter_is_a_422_with_every_type_of_body(http, segmenter, path, kind):
    response = http.post(f"{path}?regoin=auto", **sent_as(kind, **PATHS[path]))
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert (error["field"], error["got"]) == (
        "regoin",
        "an unknown query parameter (did you mean region?)",
    )
    assert not segmenter.calls


@pytest.mark.parametrize("kind", ["json", "form"])
@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/mobile_sam?mask_format=rle", {**CLICK, "mask_format": "png"}, "mask_format"),
        ("/mobile_sam?mask_format=rle", {**CLICK, "mask_format": "rle"}, "mask_format"),
        ("/mobile_sam?x=1&y=2", CLICK, "pos_coords"),
        ("/mobile_sam?region=auto", {**CLICK, "region": None}, "region"),
        ("/embed?region=0,0,40,40", {"region": [0, 0, 40, 40]}, "region"),
        ("/everything?points_per_side=8", {"points_per_side": 4}, "points_per_side"),
    ],
)
def test_field_in_query_and_body_is_a_422_that_names_it(http, kind, path, fields, field):
    response = http.post(path, **sent_as(kind, **fields))
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {
            "field": field,
            "expected": "this field once",
            "got": "one in the query and one in the body",
        },
    ]


def test_query_and_body_can_have_different_fields_of_an_object(http, segmenter):
    response = http.post(
        "/mobile_sam?x=1&y=2", **sent_as("form", neg_coords=[[3, 4]], mask_format="rle")
    )
    assert response.status_code == 200
    ((_, job),) = segmenter.jobs
    assert job.inputs["point_coords"].tolist() == [[[1, 2], [3, 4]]]
    assert job.inputs["point_labels"].tolist() == [[1, 0]]


def form(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return (
        b"".join(b"--b\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
        + end
    )


IMAGE_PART = b'name="image"; filename="a"\r\n\r\nfile'


@pytest.mark.parametrize(
    ("body", "status", "got"),
    [
        pytest.param(
            form(b'name="request"\r\n\r\n{'), 400, "EOF while parsing", id="request-not-json"
        ),
        pytest.param(
            form(b'name="image"; filename="a"\r\n\r\n'), 422, "an empty file", id="empty-image"
        ),
        pytest.param(form(IMAGE_PART, end=b""), 400, "without its end", id="cut-off"),
        pytest.param(
            form(IMAGE_PART, IMAGE_PART, end=b""), 400, "without its end", id="second-part-cut-off"
        ),
        pytest.param(
            form(IMAGE_PART, *[b'name="request"\r\n\r\n{}'] * 2), 422, "two", id="two-requests"
        ),
        pytest.param(
            form(b'name="file"\r\n\r\n1'),
            422,
            "an unknown part (did you mean image?)",
            id="other-part",
        ),
        pytest.param(
            form(b'name="prompt"\r\n\r\n{}'),
            422,
            "an unknown part (did you mean request?)",
            id="prompt",
        ),
        pytest.param(
            form(b'name="image"\r\n\r\na b.jpg'),
            422,
            "the text 'a b.jpg' (with curl, put @",
            id="no-@",
        ),
        pytest.param(
            form(b'name="request"\r\n\r\na/b.json'),
            400,
            "'a/b.json' (with curl, put @",
            id="json-no-@",
        ),
        pytest.param(form(b"\r\n\r\n1"), 400, "Field name not found", id="part-without-name"),
        pytest.param(
            form(b'name="\xff\xfe"\r\n\r\n1'), 422, "an unknown part", id="name-not-utf-8"
        ),
        pytest.param(
            form(IMAGE_PART, b'name="request"\r\n\r\n{"image_id": "a"}'),
            422,
            "one in the body as well",
            id="two-sources",
        ),
        pytest.param(b"no form at all", 400, "", id="no-form"),
        pytest.param(b"", 400, "0 bytes without its end", id="empty"),
        pytest.param(form(), 422, "neither", id="no-parts"),
    ],
)
def test_bad_form_is_a_4xx_that_says_what_is_wrong(http, segmenter, body, status, got):
    response = http.post(
        "/embed", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert response.status_code == status
    assert got in response.json()["errors"][0]["got"]
    assert not segmenter.calls


def test_several_images_are_for_embed_only(http, segmenter):
    answer = http.post("/mobile_sam", files=[("image", FILE), ("image", FILE)])
    assert (answer.status_code, answer.json()["errors"][0]["got"]) == (422, "two")


def test_form_without_boundary_is_a_400(http, caplog):
    response = http.post(
        "/embed", content=form(IMAGE_PART), headers={"content-type": "multipart/form-data"}
    )
    assert (response.status_code, response.json()["type"]) == (400, "urn:mobile-sam:malformed-form")
    assert not [record for record in caplog.records if record.name.startswith("python_multipart")]


def test_url_in_place_of_an_image_says_that_urls_are_not_fetched(http):
    response = http.post("/embed", json={"input_image": "https://example.org/photo.jpg"})
    assert (response.status_code, "URLs are not fetched" in response.json()["detail"]) == (
        422,
        True,
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("points", "pos_coords"),
        ("image", "input_image"),
        ("point_labels", "labels"),
        ("pos_cords", "pos_coords"),
    ],
)
def test_unknown_field_suggests_the_one_that_is_meant(http, name, meant):
    response = http.post("/mobile_sam", json={"image_id": "an id", **CLICK, name: 1})
    assert response.json()["errors"][0]["got"] == f"an unknown field (did you mean {meant}?)"


@each_path
@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, identity", "identity, gzip"])
def test_compressed_body_is_a_415_that_says_what_came(http, segmenter, path, encoding):
    response = http.post(
        path,
        content=b"\x1f\x8b",
        headers={"content-encoding": encoding, "content-type": "image/png"},
    )
    assert (response.status_code, response.headers["accept-encoding"]) == (415, "identity")
    problem = response.json()
    assert problem["type"] == "urn:mobile-sam:unsupported-content-encoding"
    assert (
        problem["detail"]
        == f"expected a body without Content-Encoding, or with identity, got {encoding}"
    )
    assert not segmenter.calls


def test_body_with_the_encoding_identity_is_read(http, segmenter):
    headers = {"content-encoding": "Identity", "content-type": "image/png"}
    assert http.post("/embed", content=FILE, headers=headers).status_code == 200


def test_query_with_too_many_parameters_is_a_422_before_it_is_parsed(http, segmenter, monkeypatch):
    query = "&".join(["x=1&y=2"] * MAX_POINTS)
    raw = {"content": FILE, "headers": {"content-type": "image/png"}}
    assert http.post(f"/mobile_sam?{query}", **raw).status_code == 200
    monkeypatch.delattr("starlette.requests.HTTPConnection.query_params")
    response = http.post(f"/mobile_sam?{query}{'&' * 101}", **raw)
    (error,) = response.json()["errors"]
    assert (response.status_code, error["field"], error["got"]) == (422, "query", "more")


def test_long_list_in_a_query_is_cut_before_its_numbers_are_read(http, monkeypatch):
    read: list[str] = []

    def number(value: str) -> int:
        read.append(value)
        return 1

    monkeypatch.setattr("utils.api.query._number_or_text", number)
    response = http.post(
        f"/mobile_sam?x=1&y=2&labels={'1,' * 9000}1",
        content=FILE,
        headers={"content-type": "image/png"},
    )
    assert response.json()["errors"][0]["expected"] == f"at most {MAX_POINTS} items"
    assert len(read) < MAX_POINTS + 10
