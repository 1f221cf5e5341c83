"""The masks that the decoder finds, at the size of the image.

Most decoders return logits, which are scaled here. The one that GPUs run (`sam_onnx.masks`) makes
the masks itself, as bits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.arrays import Array, Logits
from orchestrator.embeddings import EncodedImage
from orchestrator.masks import BitMask, ColumnMask, Mask, PixelMask, area_and_box
from orchestrator.stages import Stage
from orchestrator.tensors import (
    AREAS,
    BOXES_XYXY,
    COLUMN_BITS,
    MASK_BITS,
    MASK_INDICES,
    MASK_LOGITS,
    SCORES,
    STABILITY_SCORES,
)

Decoded = Iterable[tuple[Logits, npt.NDArray[np.float32]]]
"""Logits (K, 256, 256) and predicted IoU (K,) of each object, both float32."""


@dataclass
class FoundMask:
    """One of the masks of an object."""

    object: int
    """Index of the object."""
    is_best: bool
    """Whether it has the highest score of the object's masks."""
    score: float
    """Predicted IoU."""
    mask: Mask
    """The mask of the whole image."""
    logits: Logits | None
    """(256, 256) float32; None if the decoder was not asked for them."""


@dataclass
class StableMask:
    """A mask that hardly depends on the threshold."""

    point: int
    """Index of the point that it was found by."""
    score: float
    """Predicted IoU."""
    stability: float
    """Stability score."""
    mask: Mask
    """A part of the crop, with all of the mask's pixels."""
    corner_xy: tuple[int, int]
    """First pixel of that part in the crop."""


def masks_of_logits(image: EncodedImage, decoded: Decoded, threshold: float) -> Iterator[FoundMask]:
    """Yield the masks of objects whose logits were decoded."""
    for index, (logits, scores) in enumerate(decoded):
        best = int(scores.argmax())
        for number, (low_res, score) in enumerate(zip(logits, scores, strict=True)):
            with image.stages(Stage.UPSAMPLE):
                inside = image.mask(low_res, threshold)
            yield FoundMask(index, number == best, float(score), PixelMask(inside), low_res)


def masks_of_bits(
    image: EncodedImage, runs: Iterable[tuple[int, Mapping[str, Array]]], count: int
) -> Iterator[FoundMask]:
    """Yield the masks that a decoder has made.

    Args:
        image: the image.
        runs: outputs of the decoder's runs by name, each after the index of its first object.
        count: masks of each object; none are left out.
    """
    _, width = image.region_hw
    for first, outputs in runs:
        scores = outputs[SCORES.name].reshape(-1, count)
        logits = outputs.get(MASK_LOGITS.name)
        columns = (outputs[tensor.name] for tensor in (MASK_BITS, AREAS, BOXES_XYXY))
        for index, (bits, area, box) in enumerate(zip(*columns, strict=True)):
            item, number = divmod(index, count)
            bit_mask = BitMask(bits, width, int(area), tuple(box.tolist()))
            mask: Mask = bit_mask
            if image.part_of:
                with image.stages(Stage.UPSAMPLE):
                    mask = PixelMask(image.placed(bit_mask.inside))
            yield FoundMask(
                first + item,
                number == int(scores[item].argmax()),
                float(scores[item, number]),
                mask,
                None if logits is None else logits[index],
            )


def stable_masks_of_logits(
    crop: EncodedImage, decoded: Decoded, min_score: float, offset: float, min_stability: float
) -> Iterator[StableMask]:
    """Yield the masks that reach the thresholds, of points whose logits were decoded.

    Args:
        crop: the crop of the image, or all of it.
        decoded: logits and scores of each point.
        min_score: a mask needs a higher predicted IoU.
        offset: distance of both thresholds of the stability score from 0, in logits.
        min_stability: the least stability score.
    """
    for point, (masks, scores) in enumerate(decoded):
        for low_res, score in zip(masks, scores, strict=True):
            if score <= min_score:
                continue
            with crop.stages(Stage.UPSAMPLE):
                logits = crop.upsample(low_res)
            with crop.stages(Stage.RECORD):
                # Only a part of the crop is looked at again: where the lower threshold's mask is.
                larger, (x0, y0, x1, y1) = area_and_box(logits > -offset)
                part = logits[y0:y1, x0:x1]
                stability = np.count_nonzero(part > offset) / larger if larger else 0.0
                if not larger or stability < min_stability:
                    continue
                mask = PixelMask(part > 0)
                if not mask.area:
                    continue
            yield StableMask(point, float(score), stability, mask, (x0, y0))


def stable_masks_of_bits(
    crop: EncodedImage, runs: Iterable[tuple[int, Mapping[str, Array]]], count: int
) -> Iterator[StableMask]:
    """Yield the masks that a decoder has made and not left out.

    Args:
        crop: the crop of the image, or all of it.
        runs: as for `masks_of_bits`.
        count: masks of each point, those that were left out among them.
    """
    for first, outputs in runs:
        names = MASK_INDICES, SCORES, STABILITY_SCORES, COLUMN_BITS, AREAS, BOXES_XYXY
        height, _ = crop.region_hw
        for index, score, stability, columns, area, box in zip(
            *(outputs[tensor.name] for tensor in names), strict=True
        ):
            if not area:
                continue
            mask = ColumnMask(columns, height, int(area), tuple(box.tolist()))
            point = first + int(index) // count
            yield StableMask(point, float(score), float(stability), mask, (0, 0))
