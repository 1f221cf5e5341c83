"""What the networks answer for one image, a click on it and a grid of clicks: recorded once, for
`benchmarks.stand_ins`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engines import ONNX_RUNTIME, Array, load
from benchmarks.objects import Picture
from benchmarks.raw import descriptor_of, record_of
from orchestrator import images, tensors
from orchestrator.networks import (
    CANDIDATE_OUTPUTS,
    SINGLE_OUTPUT,
    MaskRule,
    decode_masks,
    decoder_inputs,
    encoder_inputs,
)
from orchestrator.regions import full_image
from utils.inference.everything import AutomaticMasks, grid
from utils.triton.plan import DECODER_BATCH_GPU
from utils.triton.versions import GPU_NETWORK_FILE

POINTS_PER_SIDE = round(DECODER_BATCH_GPU**0.5)
"""Side of the recorded grid, which is spread over the whole image: its points fill one run of the
decoder."""


@dataclass(frozen=True)
class Recording:
    """Answers of the networks."""

    embedding: dict[str, Array]
    """Tensors of the image by name."""
    low_res_masks: Array
    """(1 + G, 4, 256, 256) float32 logits: of the click, then of the G points of the grid."""
    iou_predictions: Array
    """(1 + G, 4) float32."""
    click_masks: dict[str, Array]
    """Outputs of the decoder that makes masks, for the click's single mask."""
    grid_masks: dict[str, Array]
    """The same for the candidates of the grid that reach the thresholds of automatic masks."""


def record(repository: Path, picture: Picture, click_xy: tuple[int, int]) -> Recording:
    """Run the networks of a repository on the CPU and return their answers.

    Args:
        repository: the model repository.
        picture: the image.
        click_xy: a pixel of it.
    """
    recorder = Recorder(repository, picture)
    size_hw = recorder.size_hw
    click = np.array([[click_xy]], np.float32)
    points = grid(full_image(size_hw), POINTS_PER_SIDE)[:, None]
    low_res_masks, iou_predictions = recorder.logits(np.concatenate([click, points]))
    thresholds = record_of(repository)["everything"]
    stable = MaskRule(
        CANDIDATE_OUTPUTS,
        size_hw,
        recorder.valid_hw,
        offset=float(AutomaticMasks.model_fields["stability_score_offset"].default),
        min_score=thresholds["pred_iou_thresh"],
        min_stability=thresholds["stability_score_thresh"],
    )
    return Recording(
        recorder.embedding,
        low_res_masks,
        iou_predictions,
        recorder.masks(click, MaskRule(SINGLE_OUTPUT, size_hw, recorder.valid_hw)),
        recorder.masks(points, stable),
    )


class Recorder:
    """The networks of a repository and an image with its embedding."""

    def __init__(self, repository: Path, picture: Picture) -> None:
        descriptor = descriptor_of(repository)
        preprocessing = images.Preprocessing(descriptor.side, descriptor.resize)
        self._repository = repository
        self.size_hw = picture.shape[0], picture.shape[1]
        self.valid_hw = preprocessing.valid_hw(self.size_hw)
        self._frame_hw = preprocessing.size_in_frame(self.size_hw)

        frame = preprocessing.frame(picture)
        encode = load(repository, "encoder", ONNX_RUNTIME)
        names = list(descriptor.embedding)
        answers = encode(names, encoder_inputs(frame.pixels, frame.size_hw))
        self.embedding = dict(zip(names, answers, strict=True))

    def logits(self, points_xy: Array) -> tuple[Array, Array]:
        """Return the logits of all masks of clicks (N, 1, 2), and their scores."""
        run = load(self._repository, "decoder", ONNX_RUNTIME)
        prompts = decoder_inputs(
            self.embedding,
            points_xy,
            _clicked(points_xy),
            size_hw=self.size_hw,
            frame_hw=self._frame_hw,
        )
        low_res_masks, scores = run(
            [tensors.LOW_RES_MASKS.name, tensors.IOU_PREDICTIONS.name], prompts
        )
        return low_res_masks, scores

    def masks(self, points_xy: Array, rule: MaskRule) -> dict[str, Array]:
        """Return the outputs of the decoder that makes masks, for clicks (N, 1, 2)."""
        run = load(self._repository, "decoder", ONNX_RUNTIME, GPU_NETWORK_FILE)
        return decode_masks(
            lambda inputs, names: run(names, inputs),
            self.embedding,
            points_xy,
            _clicked(points_xy),
            size_hw=self.size_hw,
            frame_hw=self._frame_hw,
            rule=rule,
            outputs=[
                tensor for tensor in tensors.GPU_DECODER_OUTPUTS if tensor != tensors.IS_FINITE
            ],
        )


def _clicked(points_xy: Array) -> Array:
    return np.full(points_xy.shape[:2], tensors.POSITIVE, np.int32)
