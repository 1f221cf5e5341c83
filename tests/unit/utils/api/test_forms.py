"""Bounds of forms: few parts reach the parser, whatever a body has."""

import pytest
from python_multipart.multipart import MultipartParser

from utils.api.forms import (
    MAX_CONTENT_TYPE_CHARS,
    MAX_PADDING_BYTES,
    MAX_PARTS,
    PIECE_BYTES,
    form_parts,
)
from utils.api.requests import MAX_IMAGES
from utils.errors import InvalidRequest, MalformedForm

HEAD = b"Content-Disposition: form-data; name="
IMAGE = HEAD + b'"image"; filename="a"'


def form(*parts: bytes, boundary: bytes = b"b") -> bytes:
    """Return a form of parts with their headers."""
    return (
        b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts)
        + b"--"
        + boundary
        + b"--\r\n"
    )


def read(body: bytes, boundary: str = "b", **options: int) -> dict[str, list[bytes]]:
    return form_parts(body, f"multipart/form-data; boundary={boundary}", **options)


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """Return the parser's calls."""
    calls: list[str] = []
    callback = MultipartParser.callback

    def counting(self, name, *given):
        calls.append(name)
        callback(self, name, *given)

    monkeypatch.setattr(MultipartParser, "callback", counting)
    return calls


def test_full_list_of_images_is_read_and_one_more_is_refused(parsed):
    parts = [IMAGE + b"\r\n\r\n%d" % number for number in range(MAX_IMAGES)]
    request = HEAD + b'"request"\r\n\r\n{}'
    found = read(form(*parts, request), max_images=MAX_IMAGES)
    assert found["image"] == [b"%d" % number for number in range(MAX_IMAGES)]
    assert found["request"] == [b"{}"]
    with pytest.raises(
        InvalidRequest, match=f"image: expected at most {MAX_IMAGES} files, got more"
    ):
        read(form(*parts, IMAGE + b"\r\n\r\n"), max_images=MAX_IMAGES)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(form(*[IMAGE + b"\r\n\r\n"] * (MAX_PARTS + 1)), id="parts"),
        pytest.param(form(*[HEAD + b'"x"\r\n\r\n'] * 50_000), id="many-parts"),
        pytest.param(form(IMAGE + b"\r\n\r\n" + b"\r\n--bX" * 50_000), id="lines-like-a-boundary"),
        pytest.param(b"\r\n--b" * 50_000, id="boundaries-only"),
    ],
)
def test_form_with_too_many_parts_is_refused_before_it_is_parsed(parsed, body):
    with pytest.raises(InvalidRequest, match=f"body: expected at most {MAX_PARTS} parts, got more"):
        read(body, max_images=MAX_IMAGES)
    assert not parsed


def test_second_image_is_refused_before_its_content(parsed):
    body = form(*[IMAGE + b"\r\n\r\n" + b"x"] * 200)
    with pytest.raises(InvalidRequest, match="image: expected one part of this name, got two"):
        read(body)
    assert parsed.count("part_data") == 1


def test_part_of_another_name_is_refused_before_its_content(parsed):
    with pytest.raises(InvalidRequest, match="unknown part"):
        read(form(HEAD + b'"x"\r\n\r\n' + b"x" * 100))
    assert "part_data" not in parsed


@pytest.mark.parametrize("blank", [b" ", b"\t", b" \t"])
def test_long_padding_of_a_boundary_is_refused_before_it_is_parsed(parsed, blank):
    body = form(IMAGE + b"\r\n\r\n").replace(
        b"--b\r\n", b"--b" + blank * (MAX_PADDING_BYTES + 1) + b"\r\n", 1
    )
    with pytest.raises(
        MalformedForm, match=f"more than {MAX_PADDING_BYTES} spaces after a boundary"
    ):
        read(body)
    assert not parsed


def test_short_padding_of_a_boundary_is_accepted():
    body = form(IMAGE + b"\r\n\r\n1", HEAD + b'"request"\r\n\r\n{}').replace(
        b"1\r\n--b\r\n", b"1\r\n--b  \r\n"
    )
    assert read(body) == {"image": [b"1"], "request": [b"{}"]}


@pytest.mark.parametrize("shift", range(-8, 3))
def test_boundary_between_two_pieces_is_found(shift):
    start = b"--b\r\n" + IMAGE + b"\r\n\r\n"
    content = b"x" * (PIECE_BYTES - len(start) + shift)
    more = [IMAGE + b"\r\n\r\n"] * MAX_PARTS
    assert read(start + content + b"\r\n--b--") == {"image": [content]}
    with pytest.raises(InvalidRequest, match="parts, got more"):
        read(start + content + b"\r\n" + form(*more))


def test_long_content_type_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.delattr("utils.api.forms.parse_options_header")
    with pytest.raises(MalformedForm, match="a Content-Type of 1022 characters"):
        form_parts(b"", "multipart/form-data; x" + ";" * MAX_CONTENT_TYPE_CHARS)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"\r\n" + b"X: y\r\n" * 9, id="many"),
        pytest.param(b"\r\nX: " + b"y" * 10_000 + b"\r\n", id="long-value"),
        pytest.param(b"\r\n" + b"X" * 10_000 + b": y\r\n", id="long-name"),
        pytest.param(b'; x="' + b";" * 10_000 + b'"\r\n', id="long-disposition"),
        pytest.param(b"\r\n" + b"X" * 10_000, id="endless"),
    ],
)
def test_part_with_many_or_long_headers_is_refused(headers):
    with pytest.raises(MalformedForm, match=r"Maximum header|invalid character|without its end"):
        read(form(IMAGE + headers + b"\r\n"))


def test_content_in_base64_is_decoded_and_in_other_encodings_refused():
    encoded = IMAGE + b"\r\nContent-Transfer-Encoding: %b\r\n\r\nZmls\r\nZQ=="
    assert read(form(encoded % b"BASE64"))["image"] == [b"file"]
    assert read(form(encoded % b"8bit"))["image"] == [b"Zmls\r\nZQ=="]
    with pytest.raises(
        MalformedForm, match="Content-Transfer-Encoding 'quoted-printable' in place of binary"
    ):
        read(form(encoded % b"quoted-printable"))
    with pytest.raises(MalformedForm):
        read(form(encoded.replace(b"ZQ==", b"ZQ=") % b"base64"))
