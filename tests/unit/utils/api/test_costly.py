"""Costly requests that are refused unparsed."""

import pytest

from orchestrator import tensors
from orchestrator.costs import MIN_COSTLY_OBJECTS
from tests.unit.utils.inference.test_triton_segmenter import Client, segmenter_of
from utils import errors
from utils.api.costly import check_room
from utils.inference.triton_segmenter import MAX_COSTLY_WAITING


async def test_check_room_rejects_costly_requests_while_the_queue_is_full():
    segmenter = segmenter_of(Client(), mobile_sam_costly=1)
    few, several = (
        b'{"prompts": [' + b"{}," * count for count in (MIN_COSTLY_OBJECTS - 1, MIN_COSTLY_OBJECTS)
    )
    check_room(segmenter, several)
    turns = segmenter._turns[tensors.SEGMENT_COSTLY]
    assert turns._room
    turns._room.take("unknown", MAX_COSTLY_WAITING, lambda: pytest.fail("lost"))
    check_room(segmenter, few)
    with pytest.raises(
        errors.Overloaded, match="costly requests that wait: a caller's share is 6, this one has 8"
    ):
        check_room(segmenter, several)
