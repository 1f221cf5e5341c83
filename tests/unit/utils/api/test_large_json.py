"""Large JSON bodies: what is left for the parser."""

import base64
import json

import pytest

from utils.api.inputs import image_source, list_of_images
from utils.api.large_json import LARGE_BYTES, MAX_OTHER_BYTES, MAX_QUOTES, PIECE_BYTES, lightened
from utils.api.request_body import parse_body
from utils.api.requests import EmbedRequest
from utils.errors import InvalidRequest

FILE = bytes(range(256)) * (MAX_OTHER_BYTES // 256 + 99)
TEXT = base64.b64encode(FILE).decode()
LINES = base64.encodebytes(FILE).decode()


def body_of(text: str, name: str = "input_image") -> bytes:
    return json.dumps({name: text}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of(TEXT), id="plain"),
        pytest.param(body_of(f"data:image/png;base64,{TEXT}"), id="data-url"),
        pytest.param(
            body_of(f"data:image/png;base64,{LINES}").replace(b"/", rb"\/"), id="data-url-of-php"
        ),
        pytest.param(body_of(TEXT).replace(b"/", rb"\/"), id="php"),
        pytest.param(body_of(LINES), id="mime"),
        pytest.param(body_of(LINES.replace("\n", "\r\n")), id="mime-crlf"),
        pytest.param(body_of(LINES.replace("\n", " ")), id="spaces"),
        pytest.param(
            body_of(LINES[: PIECE_BYTES - 9] + "\n" * 20 + LINES[PIECE_BYTES - 9 :]),
            id="escapes-at-a-piece",
        ),
    ],
)
def test_image_of_a_large_body_is_read_from_plain_base64(body):
    light = lightened(body)
    assert b"\\" not in light
    assert b"\\n" not in light
    assert image_source(parse_body(light, EmbedRequest)).file == FILE


def test_list_of_many_small_images_is_read():
    texts = [base64.b64encode(FILE[:30_000] + bytes([n])).decode() for n in range(256)]
    body = json.dumps({"images": texts}).replace("/", r"\/").encode()
    assert len(body) > MAX_OTHER_BYTES
    sources = list_of_images(parse_body(lightened(body), EmbedRequest), [])
    assert [source.file for source in sources] == [base64.b64decode(text) for text in texts]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of("A" * 100 + "\u00e9" * MAX_OTHER_BYTES), id="escaped-letters"),
        pytest.param(
            json.dumps({"input_image": "\u00e9" * MAX_OTHER_BYTES}, ensure_ascii=False).encode(),
            id="letters",
        ),
        pytest.param(body_of("\\" * MAX_OTHER_BYTES), id="backslashes"),
        pytest.param(
            body_of("A" * 100 + '"' * 90_000 + "\\" * MAX_OTHER_BYTES), id="quotation-marks"
        ),
        pytest.param(b" " * MAX_OTHER_BYTES + b"{}", id="spaces"),
        pytest.param(b'{"labels": [' + b"1" * MAX_OTHER_BYTES + b"]}", id="digits"),
        pytest.param(body_of("1", "\u00e9" * MAX_OTHER_BYTES), id="name"),
        pytest.param(b'{"a": "' + b"*" * MAX_OTHER_BYTES, id="text-without-an-end"),
    ],
)
def test_large_body_of_something_else_is_refused_before_it_is_parsed(body):
    with pytest.raises(
        InvalidRequest,
        match=f"body: expected at most {MAX_OTHER_BYTES} bytes beside images in base64",
    ):
        lightened(body)


def test_large_body_of_many_texts_is_refused():
    with pytest.raises(InvalidRequest, match="names and texts, got more"):
        lightened(b'"' * max(MAX_QUOTES + 1, LARGE_BYTES + 1))


def test_small_body_and_other_texts_are_as_they_were():
    small = body_of("a\\/\n" * 1000)
    assert lightened(small) is small
    large = json.dumps({"a": r"\/ " + "\n/" * 40_000, "input_image": TEXT, "b": ["x\ty"]})
    assert json.loads(lightened(large.encode())) == json.loads(large)
