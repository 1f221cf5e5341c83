"""Encodings of label files."""

import pytest

from mobile_sam_client._datasets.texts import decode, decode_xml
from mobile_sam_client._datasets.values import DatasetError

TEXT = "box\nb\u00f6t\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_text_is_utf8_or_what_its_mark_tells(encoding):
    assert decode(TEXT.encode(encoding)) == TEXT


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be"])
def test_both_byte_orders_have_marks(mark):
    assert decode("\ufeff".encode(mark) + TEXT.encode(mark)) == TEXT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            TEXT.encode("latin-1"),
            r"byte 5 \(0xf6\) is not UTF-8: tried UTF-8, and UTF-16 by its byte order mark",
        ),
        ("ok".encode("utf-16-le"), "byte 1 is NUL: tried UTF-8, and UTF-16"),
        (b"\xff\xfea", r"byte 0 \(0x61\) is not utf-16-le, which the file says"),
    ],
    ids=["Latin-1", "UTF-16 without a mark", "half a character"],
)
def test_other_text_is_refused_with_its_place(content, message):
    with pytest.raises(DatasetError, match=message):
        decode(content)


@pytest.mark.parametrize(
    "name", ["unicode_escape", "punycode", "idna", "utf-7", "base64", "x-mine", "", " ", "\u00e9"]
)
def test_xml_in_a_codec_that_is_no_encoding_is_refused(name):
    with pytest.raises(DatasetError):
        decode_xml(f'<?xml version="1.0" encoding="{name}"?><a>\u00f6</a>'.encode("latin-1"))
