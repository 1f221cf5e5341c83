"""The pipeline of a request: the embedding of its image, and runs of the decoder for its prompts.

Labels of points are those of `orchestrator.tensors`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.arrays import Array, Floats, Labels
from orchestrator.embeddings import Embeddings, EncodedImage
from orchestrator.networks import RunDecoder, decode, mask_inputs
from orchestrator.problems import INVALID_REQUEST, Rejected, rejected
from orchestrator.regions import Box, full_image
from orchestrator.stages import Stage, Stages
from orchestrator.tensors import BOX_BOTTOM_RIGHT, BOX_TOP_LEFT, NEGATIVE, NO_POINT, POSITIVE

Step = TypeVar("Step")

MAX_POINTS = 512
"""Points in one run of the decoder, all prompts together: its attention needs memory for each."""
MAX_ERRORS = 20
"""Offending points that an error lists."""

PROMPTS = ("points", "boxes", "masks")
"""Kinds of prompts: clicks, boxes, earlier masks."""


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
    prompts: Collection[str] = PROMPTS
    """Prompts that the weights accept."""

    def check_accepted(self, labels: Labels, mask_objects: Array | None = None) -> None:
        """Check that the weights accept these prompts.

        Args:
            labels: (N, P) int32.
            mask_objects: as in `decode`.

        Raises:
            Rejected: they do not; the first point is named `points[object][index]`, or the first
                mask `masks[object]`.
        """
        prompts = {
            "points": np.argwhere(np.isin(labels, (NEGATIVE, POSITIVE))),
            "boxes": np.argwhere(np.isin(labels, (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT))),
            "masks": np.reshape([] if mask_objects is None else mask_objects, (-1, 1)),
        }
        for kind, indices in prompts.items():
            if len(indices) and kind not in self.prompts:
                accepted = " or ".join(self.prompts)
                expected = f"{accepted}, as these weights were trained for nothing else"
                name = "masks" if kind == "masks" else "points"
                path = "".join(f"[{index}]" for index in indices[0])
                raise rejected(INVALID_REQUEST, name + path, expected, kind)

    def decode(
        self,
        image: EncodedImage,
        points_xy: Array,
        labels: Array,
        earlier_masks: Array | None = None,
        mask_objects: Array | None = None,
        *,
        candidates: bool,
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
        """Run the decoder on N prompts, in batches.

        Args:
            image: the image.
            points_xy: (N, P, 2) float32, x then y, pixels of the whole displayed image.
            labels: (N, P) int32.
            earlier_masks: (M, 256, 256) float32 logits of earlier answers.
            mask_objects: (M,) int32, index of the prompt that each mask belongs to.
            candidates: whether to return three candidates for each prompt instead of a single mask.

        Yields:
            Logits (K, 256, 256) and predicted IoU (K,) of each prompt, both float32 and finite, K =
            3 or 1.

        Raises:
            DecoderError: the decoder returned values that are not finite.
        """
        points_xy = points_xy - np.array(image.origin_xy, np.float32)
        mask_input, has_mask_input = mask_inputs(earlier_masks, mask_objects, len(labels))
        mask_per_prompt = len(has_mask_input) > 1
        counts = count_points(labels)

        def run_timed(inputs: dict[str, Array], outputs: list[str]) -> Sequence[Array]:
            with self.stages(Stage.DECODER):
                return self.run_decoder(inputs, outputs)

        def run(batch: slice) -> tuple[Floats, Floats]:
            masks = mask_input, has_mask_input
            if mask_per_prompt:
                masks = mask_input[batch], has_mask_input[batch]
            points = slice(0, max(counts[batch]))
            return decode(
                run_timed,
                image.entry.embedding,
                points_xy[batch, points],
                labels[batch, points],
                size_hw=image.size_hw,
                frame_hw=image.frame_hw,
                masks=masks,
                candidates=candidates,
            )

        max_prompts = self.decoder_batch
        if candidates:
            # There are four masks per prompt; those of half a batch fit into the initial shared
            # memory.
            max_prompts = max(1, self.decoder_batch // 2)
        for logits, scores in prefetch(run, batches(counts, max_prompts)):
            yield from zip(logits, scores, strict=True)


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
