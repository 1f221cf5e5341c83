"""The parts of an answer, built object by object."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from orchestrator import images
from orchestrator.call import Part
from orchestrator.costs import Workload
from orchestrator.embeddings import EncodedImage
from orchestrator.masks import Mask, MaskPart, area_and_box, json_list, upsample
from orchestrator.pictures import Picture
from orchestrator.problems import answer_too_large
from orchestrator.stages import MASK, PICTURE, UPSAMPLE


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
