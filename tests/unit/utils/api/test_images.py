"""Decoding of base64 variants, and image sources."""

import base64

import pytest

from utils.api.errors import FieldError, InvalidRequest
from utils.api.images import decode_base64, image_source
from utils.api.requests import EmbedRequest

DATA = bytes(range(256))
TEXT = base64.b64encode(DATA).decode()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT, id="plain"),
        pytest.param("data:image/png;base64," + TEXT, id="data URL"),
        pytest.param("DATA:image/png;BASE64," + TEXT, id="data URL in capitals"),
        pytest.param("data:;base64," + TEXT, id="data URL without a type"),
        pytest.param(base64.encodebytes(DATA).decode(), id="lines of 76"),
        pytest.param(base64.encodebytes(DATA).decode().replace("\n", "\r\n"), id="lines of 76 with CRLF"),
        pytest.param(f" {TEXT}\n", id="surrounding whitespace"),
    ],
)
def test_base64_is_decoded(text):
    assert decode_base64(text, "field", "something") == DATA


@pytest.mark.parametrize(
    ("text", "got"),
    [
        pytest.param("", "an empty string", id="empty"),
        pytest.param(" \n", "an empty string", id="whitespace"),
        pytest.param("data:image/png;base64,", "an empty string", id="empty data URL"),
        pytest.param("data:image/png,abc", "without ;base64", id="data URL without base64"),
        pytest.param("data:", "without ;base64", id="truncated data URL"),
        pytest.param("https://example.org/a.png", "not base64", id="URL"),
        pytest.param("ÄÖÜ", "not base64", id="not ASCII"),
        pytest.param("A" * 4000 + "\u0660", "not base64", id="not ASCII after long base64"),
        pytest.param("AAA", "not base64", id="missing padding"),
        pytest.param(TEXT[:-3], "not base64", id="truncated"),
        pytest.param(TEXT.replace("A", "-"), "not base64", id="URL alphabet"),
    ],
)
def test_invalid_base64_is_rejected_with_the_field_name(text, got):
    with pytest.raises(InvalidRequest) as caught:
        decode_base64(text, "prompts[1].mask_input", "something")
    (error,) = caught.value.errors
    assert (error.field, error.expected) == ("prompts[1].mask_input", "something")
    assert got in error.got
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        ({}, "neither"),
        ({"input_image": None, "image_id": None}, "neither"),
        ({"input_image": TEXT, "image_id": "an id"}, "both"),
        ({"input_image": "", "image_id": ""}, "both"),
    ],
)
def test_image_source_requires_exactly_one_of_file_and_id(fields, got):
    with pytest.raises(InvalidRequest) as caught:
        image_source(EmbedRequest(**fields))
    assert caught.value.errors == (FieldError("input_image", "exactly one of input_image and image_id", got),)
