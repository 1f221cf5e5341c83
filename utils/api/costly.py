"""Costly segmentation requests, which are refused before they are parsed while too many of them
wait.
"""

from orchestrator.costs import MIN_COSTLY_OBJECTS
from utils.api.request_body import BYTE_ORDER_MARK, has_more_than
from utils.errors import Overloaded
from utils.inference.triton_segmenter import TritonSegmenter

MARGIN = b" \t\r\n" + BYTE_ORDER_MARK
"""Bytes that may come before a JSON object."""


def check_room(segmenter: TritonSegmenter, body: bytes) -> None:
    """Reject a costly segmentation request if too many wait.

    Parsing a body of many objects would take longer than refusing it. So the braces of a JSON body
    are counted as objects; base64 images have none.

    Raises:
        Overloaded: the request is costly, and too many wait.
    """
    try:
        segmenter.check_costly_room()
    except Overloaded:
        is_object = body[:100].lstrip(MARGIN).startswith(b"{")
        if is_object and has_more_than(MIN_COSTLY_OBJECTS, b"{", body):
            raise
