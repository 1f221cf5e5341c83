"""The pipeline of a request: the embedding of its image, and runs of the decoder for its prompts.

Labels of points are those of `orchestrator.tensors`.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from orchestrator.arrays import Array, Floats, Labels, Logits
from orchestrator.cache import Embedding
from orchestrator.embeddings import Embeddings, EncodedImage
from orchestrator.found import (
    FoundMask,
    StableMask,
    masks_of_bits,
    masks_of_logits,
    stable_masks_of_bits,
    stable_masks_of_logits,
)
from orchestrator.networks import (
    CANDIDATE_OUTPUTS,
    SINGLE_OUTPUT,
    MaskRule,
    RunDecoder,
    decode,
    decode_masks,
    mask_inputs,
)
from orchestrator.problems import INVALID_REQUEST, Rejected, rejected
from orchestrator.regions import Box, full_image
from orchestrator.stages import Stage, Stages
from orchestrator.tensors import (
    AREAS,
    BOX_BOTTOM_RIGHT,
    BOX_TOP_LEFT,
    BOXES_XYXY,
    COLUMN_BITS,
    MASK_BITS,
    MASK_INDICES,
    MASK_LOGITS,
    MASK_SIDE,
    NEGATIVE,
    NO_POINT,
    POSITIVE,
    SCORES,
    STABILITY_SCORES,
    Tensor,
)

Step = TypeVar("Step")

MAX_POINTS = 512
"""Points in one run of the decoder, all prompts together: its attention needs memory for each."""
MAX_ERRORS = 20
"""Offending points that an error lists."""

PROMPTS = ("points", "boxes", "masks")
"""Kinds of prompts: clicks, boxes, earlier masks."""
BYTES_PER_MASK_PIXEL = 16
"""Memory of a decoder that makes masks, for each pixel of them: logits and pixels in float32, and
bytes."""


@dataclass(frozen=True)
class Prompts:
    """The prompts of N objects."""

    points_xy: Array
    """(N, P, 2) float32, x then y, pixels of the whole displayed image."""
    labels: Labels
    """(N, P) int32."""
    earlier_masks: Array | None = None
    """(M, 256, 256) float32 logits of earlier answers."""
    mask_objects: Array | None = None
    """(M,) int32, index of the object that each mask belongs to."""


@dataclass
class Pipeline:
    """One set of weights with its embeddings and its decoder, wherever they run."""

    run_decoder: RunDecoder
    embeddings: Embeddings
    stages: Stages
    identity: dict[str, Any]
    """`weights`, `engine` and `model_version`, as answers name them."""
    thresholds: dict[str, float]
    """Defaults of `/everything`: `pred_iou_thresh` and `stability_score_thresh`."""
    max_answer_bytes: int
    decoder_batch: int
    """Largest number of prompts in one run of the decoder."""
    accepted: Collection[str] = PROMPTS
    """Prompts that the weights accept."""
    makes_masks: bool = False
    """Whether the decoder makes the image's masks itself."""
    mask_memory_bytes: int = 0
    """Memory of such a decoder for the masks of one run."""
    keep_embedding: Callable[[str, Embedding], Mapping[str, Any]] | None = None
    """Returns an embedding on the decoder's device, where it is kept by its image's cache key; None
    if the decoder takes it from the host's memory."""

    def check_accepted(self, labels: Labels, mask_objects: Array | None = None) -> None:
        """Check that the weights accept these prompts.

        Args:
            labels: (N, P) int32.
            mask_objects: as in `Prompts`.

        Raises:
            Rejected: they do not; the first point is named `points[object][index]`, or the first
                mask `masks[object]`.
        """
        if all(kind in self.accepted for kind in PROMPTS):
            return
        prompts = {
            "points": np.argwhere(np.isin(labels, (NEGATIVE, POSITIVE))),
            "boxes": np.argwhere(np.isin(labels, (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT))),
            "masks": np.reshape([] if mask_objects is None else mask_objects, (-1, 1)),
        }
        for kind, indices in prompts.items():
            if len(indices) and kind not in self.accepted:
                accepted = " or ".join(self.accepted)
                expected = f"{accepted}, as these weights were trained for nothing else"
                name = "masks" if kind == "masks" else "points"
                path = "".join(f"[{index}]" for index in indices[0])
                raise rejected(INVALID_REQUEST, name + path, expected, kind)

    def decode(
        self, image: EncodedImage, prompts: Prompts, *, candidates: bool
    ) -> Iterator[tuple[Logits, Floats]]:
        """Run the decoder on N prompts, in batches.

        Args:
            image: the image.
            prompts: the prompts.
            candidates: whether to return three candidates for each prompt instead of a single mask.

        Yields:
            Logits (K, 256, 256) and predicted IoU (K,) of each prompt, both float32 and finite, K =
            3 or 1.

        Raises:
            DecoderError: the decoder returned values that are not finite.
        """
        if self.makes_masks:
            rule = MaskRule(CANDIDATE_OUTPUTS if candidates else SINGLE_OUTPUT)
            for _, outputs in self._decode_masks(image, prompts, rule, (MASK_LOGITS, SCORES)):
                shape = -1, rule.count, MASK_SIDE, MASK_SIDE
                logits = outputs[MASK_LOGITS.name].reshape(shape)
                yield from zip(logits, outputs[SCORES.name].reshape(shape[:2]), strict=True)
            return

        # There are four masks per prompt; those of half a batch fit into the initial shared memory.
        max_prompts = max(1, self.decoder_batch // 2) if candidates else self.decoder_batch
        decode_run = functools.partial(decode, self._run_timed, candidates=candidates)
        for _, (logits, scores) in self._in_runs(decode_run, image, prompts, max_prompts):
            yield from zip(logits, scores, strict=True)

    def masks(
        self,
        image: EncodedImage,
        prompts: Prompts,
        *,
        candidates: bool,
        threshold: float,
        low_res: bool,
    ) -> Iterator[FoundMask]:
        """Yield the masks of N prompts.

        Args:
            image: the image.
            prompts: the prompts.
            candidates: as for `decode`.
            threshold: logit above which a pixel is inside.
            low_res: whether the masks need their logits.

        Raises:
            DecoderError: as `decode`.
        """
        if not self.makes_masks:
            decoded = self.decode(image, prompts, candidates=candidates)
            yield from masks_of_logits(image, decoded, threshold)
            return
        rule = MaskRule(
            CANDIDATE_OUTPUTS if candidates else SINGLE_OUTPUT,
            image.region_hw,
            image.preprocessing.valid_hw(image.size_hw),
            threshold,
        )
        outputs: tuple[Tensor, ...] = (SCORES, AREAS, BOXES_XYXY, MASK_BITS)
        if low_res:
            outputs = *outputs, MASK_LOGITS
        yield from masks_of_bits(
            image, self._decode_masks(image, prompts, rule, outputs), rule.count
        )

    def stable_masks(
        self, crop: EncodedImage, points_xy: Floats, options: Mapping[str, Any]
    ) -> Iterator[StableMask]:
        """Yield the masks of clicks that reach the thresholds of automatic masks.

        Args:
            crop: the crop of the image, or all of it.
            points_xy: (N, 2) float32, x then y, pixels of the whole displayed image.
            options: `pred_iou_thresh`, below each score; `stability_score_thresh`, the least
                stability score, and `stability_score_offset`, in logits, above 0.

        Raises:
            DecoderError: as `decode`.
        """
        prompts = Prompts(points_xy[:, None], np.full((len(points_xy), 1), POSITIVE, np.int32))
        min_score, min_stability, offset = (
            float(options[name])
            for name in ("pred_iou_thresh", "stability_score_thresh", "stability_score_offset")
        )
        if not self.makes_masks:
            decoded = self.decode(crop, prompts, candidates=True)
            yield from stable_masks_of_logits(crop, decoded, min_score, offset, min_stability)
            return
        rule = MaskRule(
            CANDIDATE_OUTPUTS,
            crop.region_hw,
            crop.preprocessing.valid_hw(crop.size_hw),
            0.0,
            offset,
            min_score,
            min_stability,
        )
        outputs = MASK_INDICES, SCORES, STABILITY_SCORES, AREAS, BOXES_XYXY, COLUMN_BITS
        runs = self._decode_masks(crop, prompts, rule, outputs)
        yield from stable_masks_of_bits(crop, runs, rule.count)

    def _decode_masks(
        self, image: EncodedImage, prompts: Prompts, rule: MaskRule, outputs: Sequence[Tensor]
    ) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield the outputs of each run of a decoder that makes masks, after the index of the run's
        first prompt.
        """
        pixels = rule.size_hw[0] * rule.size_hw[1]
        masks_that_fit = self.mask_memory_bytes // (pixels * BYTES_PER_MASK_PIXEL)
        max_prompts = max(1, min(self.decoder_batch, masks_that_fit // rule.count))
        decode_run = functools.partial(decode_masks, self._run_timed, rule=rule, outputs=outputs)
        return self._in_runs(decode_run, image, prompts, max_prompts)

    def _in_runs(
        self,
        decode_run: Callable[..., Any],
        image: EncodedImage,
        prompts: Prompts,
        max_prompts: int,
    ) -> Iterator[tuple[int, Any]]:
        """Yield what `decode_run` returns for each run of the decoder, after the index of the run's
        first prompt.
        """
        points_xy: Floats = prompts.points_xy - np.array(image.origin_xy, np.float32)
        labels = prompts.labels
        mask_input, has_mask_input = mask_inputs(
            prompts.earlier_masks, prompts.mask_objects, len(labels)
        )
        mask_per_prompt = len(has_mask_input) > 1
        counts = count_points(labels)
        embedding: Mapping[str, Any] = image.entry.embedding
        if self.keep_embedding:
            embedding = self.keep_embedding(image.key, image.entry.embedding)

        def run(batch: slice) -> tuple[int, Any]:
            masks = mask_input, has_mask_input
            if mask_per_prompt:
                masks = mask_input[batch], has_mask_input[batch]
            points = slice(0, max(counts[batch]))
            answer = decode_run(
                embedding,
                points_xy[batch, points],
                labels[batch, points],
                size_hw=image.size_hw,
                frame_hw=image.frame_hw,
                masks=masks,
            )
            return batch.start, answer

        yield from prefetch(run, batches(counts, max_prompts))

    def _run_timed(self, inputs: dict[str, Array], outputs: list[str]) -> Sequence[Array]:
        with self.stages(Stage.DECODER):
            return self.run_decoder(inputs, outputs)


def prefetch(work: Callable[[Step], Any], steps: Sequence[Step]) -> Iterator[Any]:
    """Yield `work(step)` for each step.

    A thread works on the next step while the caller uses the result.
    """
    if len(steps) == 1:
        yield work(steps[0])
        return
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(work, steps[0])
        for step in steps[1:]:
            current, upcoming = upcoming, thread.submit(work, step)
            yield current.result()
        yield upcoming.result()


def check_inside(
    points_xy: Floats,
    labels: Labels,
    size_hw: tuple[int, int],
    region: Box | None = None,
    hint: str = "",
) -> None:
    """Check that all points are inside the image, or a region of it.

    Args:
        points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
        labels: (N, P) int32.
        size_hw: height and width of the displayed image.
        region: x0, y0, x1, y1 in pixels of the displayed image; None: all of it.
        hint: end of the sentence that says what is expected.

    Raises:
        Rejected: some are not; the first of them are named `points[object][index]`.
    """
    name, (x0, y0, x1, y1) = ("region", region) if region else ("image", full_image(size_hw))
    inside = (points_xy >= np.array([x0, y0])) & (points_xy <= np.array([x1, y1]))
    outside = ~inside.all(axis=2) & (labels != NO_POINT)
    errors = [
        {
            "field": f"points[{item}][{index}]",
            "expected": f"a point inside the {name}: {x0} <= x <= {x1}, {y0} <= y <= {y1}{hint}",
            "got": "[{:g}, {:g}]".format(*points_xy[item, index]),
        }
        for item, index in np.argwhere(outside)[:MAX_ERRORS].tolist()
    ]
    if errors:
        raise Rejected(*INVALID_REQUEST, errors)


def clip(
    points_xy: Floats, labels: Labels, size_hw: tuple[int, int]
) -> tuple[Floats, list[tuple[int, int]]]:
    """Move points to the nearest place in the image; corners of a box cut it to the image.

    Args:
        points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
        labels: (N, P) int32.
        size_hw: height and width of the displayed image.

    Returns:
        The points, and the object and the index of each that was moved.

    Raises:
        Rejected: nothing is left of a box; its first corner is named `points[object][index]`.
    """
    x0, y0, x1, y1 = full_image(size_hw)
    inside = np.clip(points_xy, (x0, y0), (x1, y1), dtype=np.float32)
    moved = (inside != points_xy).any(axis=2) & (labels != NO_POINT)
    for item in np.flatnonzero(moved.any(axis=1)).tolist():
        corners = [
            np.flatnonzero(labels[item] == label) for label in (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT)
        ]
        for first, last in zip(*corners, strict=False):
            is_cut = moved[item, first] or moved[item, last]
            if is_cut and not (inside[item, first] < inside[item, last]).all():
                expected = f"a box with a part inside the image of {x1} x {y1} pixels"
                box = [*points_xy[item, first], *points_xy[item, last]]
                got = "[{:g}, {:g}, {:g}, {:g}]".format(*box)
                raise rejected(INVALID_REQUEST, f"points[{item}][{first}]", expected, got)
    return inside, [(item, index) for item, index in np.argwhere(moved).tolist()]


def extents(points_xy: Floats, labels: Labels) -> Floats:
    """Return the boxes around the points of each object: (N, 4), x0, y0, x1, y1.

    Arguments as for `check_inside`.
    """
    absent = (labels == NO_POINT)[..., None]
    low, high = (
        np.where(absent, np.inf, points_xy).min(axis=1),
        np.where(absent, -np.inf, points_xy).max(axis=1),
    )
    return np.concatenate([low, high], axis=1)


def count_points(labels: Labels) -> list[int]:
    """Return the number of points of each object, up to its last one, from labels (N, P) int32."""
    trailing = (labels[:, ::-1] != NO_POINT).argmax(axis=1)
    counts: list[int] = (labels.shape[1] - trailing).tolist()
    return counts


def batches(counts: Sequence[int], max_prompts: int) -> list[slice]:
    """Split the objects into runs of the decoder, in order.

    All objects of a run are padded to the one with the most points, so an object with many points
    gets its own run.

    Args:
        counts: points of each object.
        max_prompts: objects in one run.
    """
    runs: list[slice] = []
    start, longest = 0, 0
    for index, count in enumerate(counts):
        longest = max(longest, count)
        together = index + 1 - start
        if index > start and (together > max_prompts or together * longest > MAX_POINTS):
            runs.append(slice(start, index))
            start, longest = index, count
    return [*runs, slice(start, len(counts))]
