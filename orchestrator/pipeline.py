"""The pipeline of a request: the embedding of its image, and runs of the decoder for its prompts."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator import images, prompts
from orchestrator.call import Call
from orchestrator.embeddings import Embeddings, EncodedImage
from orchestrator.stages import DECODER, Stages

Array = npt.NDArray[Any]
Step = TypeVar("Step")

SINGLE, CANDIDATES = slice(0, 1), slice(1, 4)
"""The decoder's outputs for unambiguous and for ambiguous prompts."""


class DecoderError(Exception):
    """The decoder returned something that cannot be a mask."""


@dataclass
class Pipeline:
    """One set of weights with its embeddings and its decoder, wherever they run."""

    run_decoder: Callable[[dict[str, Array], list[str]], list[Array]]
    """Runs the decoder: takes inputs by name and the names of the outputs."""
    embeddings: Embeddings
    stages: Stages
    identity: dict[str, Any]
    """`weights`, `engine` and `model_version`, as answers name them."""
    thresholds: dict[str, float]
    """Defaults of `/everything`: `pred_iou_thresh` and `stability_score_thresh`."""
    max_answer_bytes: int
    decoder_batch: int
    """Largest number of prompts in one run of the decoder."""

    def find(
        self,
        call: Call,
        check: Callable[[tuple[int, int]], None] = lambda _: None,
        check_cost: Callable[[tuple[int, int], bool], None] = lambda *_: None,
    ) -> EncodedImage:
        """Return the image of a request with its embedding; checks as in `Embeddings.find`."""
        file, image_id = call.read_file(), call.image_id
        if file is not None and not (image_id and call.from_service):
            image_id = hashlib.sha256(file).hexdigest()
        return self.embeddings.find(file, image_id or "", check, call.owner, check_cost)

    def decode(
        self,
        image: EncodedImage,
        points_xy: Array,
        labels: Array,
        mask_input: Array,
        has_mask: Array,
        *,
        candidates: bool,
    ) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
        """Run the decoder on N prompts, in batches.

        Args:
            image: the image.
            points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
            labels: (N, P) int32.
            mask_input: (M, 1, 256, 256) float32 logits, M = N or 1.
            has_mask: (M,) float32, 1 where there is an earlier mask.
            candidates: whether to return three candidates for each prompt instead of a single mask.

        Yields:
            Logits (K, 256, 256) and predicted IoU (K,) of each prompt, both float32 and finite, K = 3 or 1.

        Raises:
            DecoderError: the decoder returned values that are not finite.
        """
        frame_hw = images.frame_size_hw(image.size_hw)
        counts = prompts.count_points(labels)
        mask_per_prompt = len(has_mask) > 1
        output = "low_res_masks" if candidates else "single_masks"

        def run(part: slice) -> list[Array]:
            points = slice(0, max(counts[part]))
            coords, decoder_labels = prompts.to_frame(
                points_xy[part, points], labels[part, points], image.size_hw, frame_hw
            )
            inputs: dict[str, Array] = {
                "image_embeddings": image.entry.embedding,
                "point_coords": coords,
                "point_labels": decoder_labels,
                "mask_input": mask_input[part] if mask_per_prompt else mask_input,
                "has_mask_input": has_mask[part] if mask_per_prompt else has_mask,
            }
            # `single_masks` is a quarter of the bytes of all masks.
            with self.stages(DECODER):
                masks, scores = self.run_decoder(inputs, [output, "iou_predictions"])
            answers = [masks[:, CANDIDATES] if candidates else masks, scores[:, CANDIDATES if candidates else SINGLE]]
            if not all(np.isfinite(array).all() for array in answers):
                raise DecoderError("mobile_sam_decoder: expected finite logits and scores")
            return answers

        # With candidates there are four masks per prompt; half a batch of these fits into the initial shared memory.
        max_prompts = max(1, self.decoder_batch // 2) if candidates else self.decoder_batch
        for masks, scores in prefetch(run, prompts.batches(counts, max_prompts)):
            yield from zip(masks, scores, strict=True)


def prefetch(work: Callable[[Step], Any], steps: Sequence[Step]) -> Iterator[Any]:
    """Yield `work(step)` for each step; a thread works on the next step while the caller uses the result."""
    if len(steps) == 1:
        yield work(steps[0])
        return
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(work, steps[0])
        for step in steps[1:]:
            current, upcoming = upcoming, thread.submit(work, step)
            yield current.result()
        yield upcoming.result()
