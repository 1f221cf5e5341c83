"""Label Studio's brush RLE on the page: equal to the client's, and bounded."""

import numpy as np
import pytest

from mobile_sam_client._brush_rle import brush_rle, read_brush_rle
from tests.unit.page.formats import decode, rle, run, shapes

SHAPES = shapes(160, 120)
MANY_SPANS = 10_000_000


def decode_all(rles: list, shape_hw: tuple[int, ...], max_spans: int = MANY_SPANS) -> list[dict]:
    height, width = shape_hw
    found: list[dict] = run(
        "decodeBrush", rles=rles, width=width, height=height, maxSpans=max_spans
    )
    return found


def test_masks_are_encoded_as_by_the_client():
    masks = [*SHAPES.values(), np.zeros((120, 160), bool)]
    encoded = run("encodeBrush", masks=[rle(mask) for mask in masks])
    assert encoded == [brush_rle(mask) for mask in masks]


@pytest.mark.parametrize("name", SHAPES)
def test_masks_of_the_client_are_decoded(name):
    (found,) = decode_all([brush_rle(SHAPES[name])], (120, 160))
    assert np.array_equal(decode(found), SHAPES[name])


def test_long_runs_over_many_rows_are_joined():
    mask = np.zeros((700, 900), bool)
    mask[3:600, 2:] = mask[650] = True
    (found,) = decode_all([brush_rle(mask)], mask.shape)
    assert np.array_equal(decode(found), mask)
    assert run("encodeBrush", masks=[rle(mask)]) == [brush_rle(mask)]


def test_random_bytes_are_a_mask_or_an_error_in_both_decoders():
    """Bytes after a sound header; both decoders agree on what is damaged, and on the masks."""
    random = np.random.default_rng(5)
    header = brush_rle(np.zeros((5, 7), bool))[:7]
    rles = [[*header, *random.integers(0, 256, 400).tolist()] for _ in range(300)]
    rles += [one[: random.integers(0, 40)] for one in rles]
    found = decode_all(rles, (5, 7))
    expected = [decoded_by_client(one) for one in rles]
    masks = [one for one in expected if isinstance(one, np.ndarray)]
    assert 0 < len(masks) < len(rles)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            assert one == {"error": other}
        else:
            assert np.array_equal(decode(one), other)


def decoded_by_client(one: list[int]) -> np.ndarray | str:
    """Return the mask of 5 x 7 pixels, or the message of the error."""
    try:
        return read_brush_rle(one, 7, 5)
    except ValueError as error:
        return str(error)


def test_stripes_that_would_become_too_many_spans_are_refused():
    stripes = np.zeros((100, 2000), bool)
    stripes[::2] = True
    encoded = brush_rle(stripes)
    (refused,) = decode_all([encoded], stripes.shape, max_spans=99_999)
    (found,) = decode_all([encoded], stripes.shape, max_spans=100_000)
    assert refused == {"error": "its mask has too many edges"}
    assert np.array_equal(decode(found), stripes)
