"""Multipart answers."""

import pytest
from urllib3.fields import RequestField
from urllib3.filepost import encode_multipart_formdata

from utils.api.answers import MASK_PARTS, problem_of, segmentation_response
from utils.api.errors import InvalidRequest
from utils.api.jobs import Segmentation
from utils.api.received import FORM


def by_urllib3(boundary: str, *parts: tuple[str, bytes, str, str | None]) -> bytes:
    fields = []
    for name, data, content_type, filename in parts:
        field = RequestField(name, data, filename)
        field.make_multipart(content_type=content_type)
        fields.append(field)
    return encode_multipart_formdata(fields, boundary)[0]


@pytest.mark.parametrize("mask_format", MASK_PARTS)
@pytest.mark.parametrize("picture", [None, bytes(range(256)) * 10])
def test_multipart_answer_equals_urllib3s_encoding(mask_format, picture):
    response = segmentation_response(Segmentation(b"the \r\n mask", picture, b'{"masks": []}'), mask_format, FORM)
    kind, boundary = response.headers["content-type"].split("; boundary=")
    parts = [("mask", b"the \r\n mask", *MASK_PARTS[mask_format])]
    if picture is not None:
        parts.append(("segmented_image", picture, "image/png", "segmented_image.png"))
    parts.append(("result", b'{"masks": []}', "application/json", None))
    assert kind == "multipart/form-data"
    assert response.body == by_urllib3(boundary, *parts)


def test_each_answer_has_its_own_boundary():
    answers = [segmentation_response(Segmentation(b"", None, b""), "json", FORM) for _ in range(2)]
    assert answers[0].headers["content-type"] != answers[1].headers["content-type"]


def test_reported_error_releases_the_frames_it_passed():
    def fail(body: bytes) -> None:
        try:
            raise TimeoutError
        except TimeoutError:
            raise InvalidRequest("a detail") from None

    with pytest.raises(InvalidRequest) as caught:
        fail(b"a large body")
    problem_of(caught.value)
    assert (caught.value.__traceback__, caught.value.__context__, caught.value.__cause__) == (None, None, None)
