"""base64 in all the shapes that callers send it."""

from __future__ import annotations

import base64

import pytest

from utils.errors import InvalidRequest
from utils.images import decode_base64

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
        pytest.param(f" {TEXT}\n", id="white space around"),
    ],
)
def test_base64_is_decoded(text):
    assert decode_base64(text) == DATA


@pytest.mark.parametrize(
    ("text", "got"),
    [
        pytest.param("", "an empty string", id="empty"),
        pytest.param("data:image/png;base64,", "an empty string", id="empty data URL"),
        pytest.param("data:image/png,abc", "does not say base64", id="data URL without base64"),
        pytest.param("data:", "does not say base64", id="data URL cut off"),
        pytest.param("https://example.org/a.png", "not base64", id="a link"),
        pytest.param("ÄÖÜ", "not base64", id="no ASCII"),
        pytest.param("AAA", "not base64", id="padding missing"),
        pytest.param(TEXT[:-3], "not base64", id="cut off"),
        pytest.param(TEXT.replace("A", "-"), "not base64", id="URL alphabet"),
    ],
)
def test_what_is_not_base64_is_refused(text, got):
    with pytest.raises(InvalidRequest) as caught:
        decode_base64(text)
    assert caught.value.errors[0].field == "input_image"
    assert got in caught.value.errors[0].got
    assert len(caught.value.detail) < 300
