"""Images of requests with the header `X-Image-Id`, with a fake client."""

import asyncio
import hashlib

import pytest

from tests.unit.utils.inference.test_triton_segmenter import (
    ALL_CALLS,
    LARGE,
    NEW,
    Client,
    segmenter_of,
)
from utils.errors import InvalidRequest
from utils.inference.request import ImageSource
from utils.observability.context import IMAGE_ID

FILE_ID, OTHER = hashlib.sha256(b"file").hexdigest(), "0" * 64
BY_ID = ImageSource(None, FILE_ID)


@pytest.fixture
def header():
    """Return a function that sets the header."""
    tokens = []
    yield lambda image_id: tokens.append(IMAGE_ID.set(image_id))
    for token in reversed(tokens):
        IMAGE_ID.reset(token)


@ALL_CALLS
@pytest.mark.parametrize("image", [NEW, LARGE, BY_ID], ids=["file", "large file", "id"])
def test_header_that_names_another_image_is_refused_before_anything_is_asked(header, call, image):
    header(OTHER)
    client = Client(records=b"{}")
    with pytest.raises(InvalidRequest) as refused:
        call(client, image)
    (error,) = refused.value.errors
    actual = hashlib.sha256(image.file).hexdigest() if image.file else FILE_ID
    expected = f"the SHA-256 of the image, {actual}"
    assert (error.field, error.expected, error.got, client.calls) == (
        "X-Image-Id",
        expected,
        OTHER,
        [],
    )
    header(actual)
    call(client, image)
    assert {received.call.image_id for received in client.received} == {actual}


def test_queued_images_are_compared_as_a_list_and_not_again_one_by_one(header):
    header(OTHER)
    client = Client()
    asyncio.run(segmenter_of(client).embed(NEW, background=True))
    assert [received.call.image_id for received in client.received] == [FILE_ID]
