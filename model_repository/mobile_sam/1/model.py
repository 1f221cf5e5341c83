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
from mobile_sam_call import Call, Part
from mobile_sam_costs import Wish
from mobile_sam_embeddings import Known
from mobile_sam_masks import Mask, MaskPart, area_and_box, json_list, upsample
from mobile_sam_models import Models
from mobile_sam_pictures import Picture
from mobile_sam_problems import Costly, answer_too_large
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

    def _segment(self, call: Call) -> tuple[Part, Part, Part]:
        """The bodies of the parts `mask`, `segmented_image` and `result`."""
        points_xy, labels = call.read("point_coords"), call.read("point_labels")
        candidates = bool(call.read_one("multimask_output", False))
        objects = 0 if points_xy is None or labels is None else len(points_xy)
        wish = Wish(
            objects,
            objects * (3 if candidates else 1),
            call.read_one("mask_format", b"json").decode(),
            call.read_one("segmented_image", b"none").decode(),
            bool(call.read_one("low_res_mask", False)),
            0 if labels is None else sum(prompts.count_points(labels)),
        )

        def check(size_hw: tuple[int, int]) -> None:
            if points_xy is not None and labels is not None:
                prompts.check_inside(points_xy, labels, size_hw)

        def check_cost(size_hw: tuple[int, int], new: bool) -> None:
            wish.check(size_hw, self.models.max_answer_bytes)
            if call.light and not wish.is_light(size_hw[0] * size_hw[1], new=new):
                raise Costly

        known = self.models.find(call, check, check_cost)
        result = {
            "image_id": known.image_id,
            "width": known.size_hw[1],
            "height": known.size_hw[0],
            "weights": self.models.weights,
            "engine": self.models.engine,
            "model_version": self.models.version,
        }
        if points_xy is None or labels is None:
            return [], [], [orjson.dumps(result)]
        earlier = prompts.earlier_masks(call.read("mask_input"), call.read("mask_input_object"), objects)
        drawn = Answer(known, wish, self.models.max_answer_bytes)
        answers = self.models.decode(known, points_xy, labels, *earlier, candidates=candidates)
        for index, (logits, scores) in enumerate(answers):
            drawn.add(index, logits, scores)
        return drawn.encode(result)


class Answer:
    """The parts of an answer, made object by object."""

    def __init__(self, known: Known, wish: Wish, max_bytes: int) -> None:
        """Begin an answer.

        Args:
            known: the image.
            wish: what is asked for.
            max_bytes: that it may have.

        Raises:
            Rejected: its masks cannot be written in the format.
        """
        self._size_hw, self._frame_hw = known.size_hw, images.frame_size_hw(known.size_hw)
        # One object's one mask stands alone; several stand in a list.
        self._mask = MaskPart(wish.mask_format, known.size_hw, None if wish.masks == 1 else wish.masks)
        self._stages = known.stages
        self._picture = None if wish.style == "none" else self._begin(known.pixels(), wish.style)
        self._low_res = wish.low_res
        self._described: list[bytes] = []
        self._left = self._max_bytes = max_bytes

    def add(self, index: int, logits: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> None:
        """Add an object's masks, and its best to the picture.

        Args:
            index: which object it is.
            logits: (K, 256, 256) float32.
            scores: (K,) float32, predicted IoU.

        Raises:
            Rejected: the answer becomes too large.
        """
        best = int(scores.argmax())
        for number, (low_res, score) in enumerate(zip(logits, scores, strict=True)):
            with self._stages(UPSAMPLE):
                mask: Mask = upsample(low_res, self._frame_hw, self._size_hw) > 0
            with self._stages(MASK):
                size = self._mask.add(mask)
                area, box = area_and_box(mask)
            described: dict[str, Any] = {"object": index, "score": round(float(score), 4), "area": area, "box": box}
            if self._low_res:
                described["low_res_mask"] = npy_base64(low_res)
            self._described.append(orjson.dumps(described))
            self._take(size + len(self._described[-1]))
            if self._picture is not None and number == best:
                with self._stages(PICTURE):
                    self._picture.add(mask)

    def encode(self, result: dict[str, Any]) -> tuple[Part, Part, Part]:
        """The bodies of the parts; `result` says what is not about the masks."""
        picture = []
        if self._picture is not None:
            with self._stages(PICTURE):
                picture = [self._picture.encode()]
            self._take(len(picture[0]))
        with self._stages(MASK):
            mask = self._mask.encode()
        return mask, picture, [orjson.dumps(result)[:-1], b',"masks":', *json_list(self._described), b"}"]

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise answer_too_large(self._max_bytes)

    def _begin(self, pixels: images.RGB, style: str) -> Picture:
        with self._stages(PICTURE):
            return Picture(pixels, style)


def npy_base64(array: npt.NDArray[Any]) -> str:
    """An array as base64 of a NumPy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")
