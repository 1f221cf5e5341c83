"""The orchestrator: finds the image's embedding, asks the decoder, encodes the answer.

Nothing here but Triton's tensors and the order of the steps; the steps are in the `mobile_sam_*` modules beside it.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

import mobile_sam_images as images
import mobile_sam_prompts as prompts
import numpy as np
import numpy.typing as npt
import orjson
from mobile_sam_embeddings import Known
from mobile_sam_masks import Mask, MaskPart, area_and_box, upsample
from mobile_sam_models import Models, read, read_one
from mobile_sam_pictures import Picture
from mobile_sam_stages import MASK, PICTURE, UPSAMPLE
from mobile_sam_warm_up import warm_up

OUTPUTS = ("mask", "picture", "result")


class TritonPythonModel:
    """One process of the orchestrator; it works on one request at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings, and get ready."""
        # Pillow warns of oddities in callers' files, which would be lines in the log.
        warnings.simplefilter("ignore")
        self.models = Models(args)
        warm_up()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; a failure of one does not touch the others."""
        return [self.models.answer(request, OUTPUTS, self._segment) for request in requests]

    def _segment(self, request: Any) -> tuple[bytes, bytes, bytes]:
        """The bodies of the parts `mask`, `segmented_image` and `result`."""
        points_xy, labels = read(request, "point_coords"), read(request, "point_labels")

        def check(size_hw: tuple[int, int]) -> None:
            if points_xy is not None and labels is not None:
                prompts.check_inside(points_xy, labels, size_hw)

        known = self.models.find(request, check)
        result = {
            "image_id": known.image_id,
            "width": known.size_hw[1],
            "height": known.size_hw[0],
            "weights": self.models.weights,
            "engine": self.models.engine,
            "model_version": self.models.version,
        }
        if points_xy is None or labels is None:
            return b"", b"", orjson.dumps(result)
        earlier = prompts.earlier_masks(read(request, "mask_input"), read(request, "mask_input_object"), len(points_xy))
        candidates = bool(read_one(request, "multimask_output", False))
        count = len(points_xy) * (3 if candidates else 1)
        drawn = Answer(
            known,
            read_one(request, "mask_format", b"json").decode(),
            read_one(request, "segmented_image", b"none").decode(),
            # One object's one mask stands alone; several stand in a list.
            None if count == 1 else count,
            bool(read_one(request, "low_res_mask", False)),
        )
        answers = self.models.decode(known, points_xy, labels, *earlier, candidates=candidates)
        for index, (logits, scores) in enumerate(answers):
            drawn.add(index, logits, scores)
        return drawn.encode(result)


class Answer:
    """The parts of an answer, made object by object."""

    def __init__(self, known: Known, mask_format: str, style: str, count: int | None, low_res: bool) -> None:
        """Begin an answer.

        Args:
            known: the image.
            mask_format: of the `mask` part.
            style: of the picture.
            count: of the masks to come; None: a single one, outside of a list.
            low_res: whether `result` holds the low-resolution masks.
        """
        self._size_hw, self._frame_hw = known.size_hw, images.frame_size_hw(known.size_hw)
        self._mask = MaskPart(mask_format, known.size_hw, count)
        self._stages = known.stages
        self._picture = None if style == "none" else self._begin(known.pixels(), style)
        self._low_res = low_res
        self._described: list[dict[str, Any]] = []

    def add(self, index: int, logits: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> None:
        """Add an object's masks, and its best to the picture.

        Args:
            index: which object it is.
            logits: (K, 256, 256) float32.
            scores: (K,) float32, predicted IoU.
        """
        best = int(scores.argmax())
        for number, (low_res, score) in enumerate(zip(logits, scores, strict=True)):
            with self._stages(UPSAMPLE):
                mask: Mask = upsample(low_res, self._frame_hw, self._size_hw) > 0
            with self._stages(MASK):
                self._mask.add(mask)
                area, box = area_and_box(mask)
            described = {"object": index, "score": round(float(score), 4), "area": area, "box": box}
            if self._low_res:
                described["low_res_mask"] = npy_base64(low_res)
            self._described.append(described)
            if self._picture is not None and number == best:
                with self._stages(PICTURE):
                    self._picture.add(mask)

    def encode(self, result: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        """The bodies of the parts; `result` says what is not about the masks."""
        picture = b""
        if self._picture is not None:
            with self._stages(PICTURE):
                picture = self._picture.encode()
        with self._stages(MASK):
            mask = self._mask.encode()
        return mask, picture, orjson.dumps({**result, "masks": self._described})

    def _begin(self, pixels: images.RGB, style: str) -> Picture:
        with self._stages(PICTURE):
            return Picture(pixels, style)


def npy_base64(array: npt.NDArray[Any]) -> str:
    """An array as base64 of a NumPy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")
