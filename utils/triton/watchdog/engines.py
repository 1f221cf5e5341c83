"""Check of the encoder and the decoder at start-up: an engine that runs without an error may still be wrong.

A half-precision build has been seen to give the same embedding for every image.
"""

from array import array
from collections.abc import Mapping

from utils.triton.versions import DECODER, ENCODER
from utils.triton.watchdog.probes import FRAME_SIDE_PIXELS, ProbeError, decoder_probe, encoder_probe, run_probe

SIDE = FRAME_SIDE_PIXELS
MARGIN = b"\0" * (3 * SIDE // 4)
SQUARE = MARGIN + b"\xff" * (3 * SIDE // 2) + MARGIN
BLANK = bytes(3 * SIDE * SIDE)
SCENE = bytes(3 * SIDE * (SIDE // 4)) + SQUARE * (SIDE // 2) + bytes(3 * SIDE * (SIDE // 4))
"""A white square in the middle of a black frame."""


class EngineError(ProbeError):
    """The encoder or the decoder computes something that cannot be right."""


def check_engines(key_header: Mapping[str, str], port: int, timeout_s: float, version: int | None = None) -> None:
    """Check that two images have different embeddings, and that a click on a white square has a mask.

    Args:
        key_header: header with the key of Triton's restricted APIs.
        port: port of the local Triton's HTTP.
        timeout_s: time for each of the three inferences.
        version: version of the models; default: the newest.

    Raises:
        EngineError: they do not.
        ProbeError: an inference failed.
        OSError: Triton cannot be reached, or timed out.
    """
    blank, scene = (
        run_probe(encoder_probe(frame), key_header, port, timeout_s, version)["image_embeddings"]
        for frame in (BLANK, SCENE)
    )
    if blank == scene:
        raise EngineError(f"{ENCODER} returned the same embedding for two different images")
    masks = run_probe(decoder_probe(scene, "low_res_masks"), key_header, port, timeout_s, version)["low_res_masks"]
    if not any(logit > 0 for logit in array("f", masks)):
        raise EngineError(f"{DECODER} returned no mask for a click on a white square")
