"""The orchestrator: finds the image's embedding, runs the decoder, encodes the answer.

This module reads Triton's tensors and calls the steps; the steps are in the `mobile_sam_*` modules beside it.
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
from mobile_sam_costs import Workload
from mobile_sam_embeddings import EncodedImage
from mobile_sam_masks import Mask, MaskPart, area_and_box, json_list, upsample
from mobile_sam_models import Models
from mobile_sam_pictures import Picture
from mobile_sam_problems import CostlyRequest, answer_too_large
from mobile_sam_stages import MASK, PICTURE, UPSAMPLE
from mobile_sam_warm_up import warm_up

OUTPUTS = ("mask", "picture", "result")


class TritonPythonModel:
    """One process of the orchestrator; it works on one request at a time."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the settings and warm up."""
        # Pillow's warnings about callers' files would fill the log.
        warnings.simplefilter("ignore")
        self.models = Models(args)
        warm_up()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; a failure of one does not affect the others."""
        return [self.models.answer(request, OUTPUTS, self._segment) for request in requests]

    def _segment(self, call: Call) -> tuple[Part, Part, Part]:
        """Return the bodies of the parts `mask`, `segmented_image` and `result`."""
        points_xy, labels = call.read("point_coords"), call.read("point_labels")
        candidates = bool(call.read_one("multimask_output", False))
        objects = 0 if points_xy is None or labels is None else len(points_xy)
        workload = Workload(
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
            workload.check(size_hw, self.models.max_answer_bytes)
            if call.light and not workload.is_light(size_hw[0] * size_hw[1], new=new):
                raise CostlyRequest

        image = self.models.find(call, check, check_cost)
        result = {
            "image_id": image.image_id,
            "width": image.size_hw[1],
            "height": image.size_hw[0],
            "weights": self.models.weights,
            "engine": self.models.engine,
            "model_version": self.models.version,
        }
        if points_xy is None or labels is None:
            return [], [], [orjson.dumps(result)]
        mask_inputs = prompts.mask_inputs(call.read("mask_input"), call.read("mask_input_object"), objects)
        answer = AnswerBuilder(image, workload, self.models.max_answer_bytes)
        decoded = self.models.decode(image, points_xy, labels, *mask_inputs, candidates=candidates)
        for index, (logits, scores) in enumerate(decoded):
            answer.add(index, logits, scores)
        return answer.encode(result)


class AnswerBuilder:
    """Builder of an answer's parts, object by object."""

    def __init__(self, image: EncodedImage, workload: Workload, max_bytes: int) -> None:
        """Begin an answer.

        Args:
            image: the image.
            workload: formats and number of the masks.
            max_bytes: largest size of the answer.

        Raises:
            Rejected: the masks do not fit into the format.
        """
        self._size_hw, self._frame_hw = image.size_hw, images.frame_size_hw(image.size_hw)
        self._mask = MaskPart(workload.mask_format, image.size_hw, None if workload.masks == 1 else workload.masks)
        self._stages = image.stages
        self._picture = None if workload.style == "none" else self._begin(image.pixels(), workload.style)
        self._low_res = workload.low_res
        self._records: list[bytes] = []
        self._bytes_left = self._max_bytes = max_bytes

    def add(self, index: int, logits: npt.NDArray[np.float32], scores: npt.NDArray[np.float32]) -> None:
        """Add the masks of an object, and draw the best of them.

        Args:
            index: index of the object.
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
            record: dict[str, Any] = {"object": index, "score": round(float(score), 4), "area": area, "box": box}
            if self._low_res:
                record["low_res_mask"] = npy_base64(low_res)
            self._records.append(orjson.dumps(record))
            self._reserve(size + len(self._records[-1]))
            if self._picture is not None and number == best:
                with self._stages(PICTURE):
                    self._picture.add(mask)

    def encode(self, result: dict[str, Any]) -> tuple[Part, Part, Part]:
        """Return the bodies of the parts; `result` holds the fields other than `masks`."""
        picture = []
        if self._picture is not None:
            with self._stages(PICTURE):
                picture = [self._picture.encode()]
            self._reserve(len(picture[0]))
        with self._stages(MASK):
            mask = self._mask.encode()
        return mask, picture, [orjson.dumps(result)[:-1], b',"masks":', *json_list(self._records), b"}"]

    def _reserve(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise answer_too_large(self._max_bytes)

    def _begin(self, pixels: images.RGB, style: str) -> Picture:
        with self._stages(PICTURE):
            return Picture(pixels, style)


def npy_base64(array: npt.NDArray[Any]) -> str:
    """Return an array as base64 of a NumPy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")
