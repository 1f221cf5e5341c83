"""`SamPredictor` and `SamAutomaticMaskGenerator` with the signatures of Segment Anything, answered by the service.

from mobile_sam_client import Client
from mobile_sam_client.compat import SamPredictor

predictor = SamPredictor(Client())
predictor.set_image(image)
masks, scores, logits = predictor.predict(point_coords=point_coords, point_labels=point_labels)

Scores are rounded to four decimals, and points must be inside the image. There are no tensors: what needs PyTorch or
the image's embedding raises `NotImplementedError`.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from mobile_sam_client._client import Client
from mobile_sam_client._prompts import MASK_SHAPE
from mobile_sam_client._results import Embedding, MaskResult

__all__ = ["SamAutomaticMaskGenerator", "SamPredictor"]

FRAME = 1024
"""Longest side of an image as the model sees it."""
NO_TENSORS = "the service returns no tensors and no embeddings; use set_image and predict"

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


class SamPredictor:
    """Segment Anything's predictor. As there, an image is encoded once and then prompted."""

    def __init__(self, sam_model: Client) -> None:
        """Create a predictor; `sam_model` is a client of the service."""
        self.model = sam_model
        self._photo: Embedding | None = None

    def set_image(self, image: npt.NDArray[np.uint8], image_format: str = "RGB") -> None:
        """Encode an image for `predict`.

        Args:
            image: (H, W, 3) uint8.
            image_format: order of the channels, `RGB` or `BGR`.

        Raises:
            ValueError: the image has another shape or type, or the format is unknown.
            MobileSamError: the service cannot answer.
        """
        if image_format not in {"RGB", "BGR"}:
            raise ValueError(f"image_format: expected RGB or BGR, got {image_format!r}")
        if image.shape[2:] != (3,):
            raise ValueError(f"image: expected (H, W, 3) uint8, got shape {image.shape}")
        self.reset_image()
        self._photo = self.model.embed(image[..., ::-1] if image_format == "BGR" else image)

    def predict(  # noqa: PLR0917 (the parameters of Segment Anything)
        self,
        point_coords: Array | None = None,
        point_labels: Array | None = None,
        box: Array | None = None,
        mask_input: Array | None = None,
        multimask_output: bool = True,
        return_logits: bool = False,
    ) -> tuple[Array, Floats, Floats]:
        """Return the masks for a prompt on the current image.

        Args:
            point_coords: (N, 2) points, x then y, in pixels of the image.
            point_labels: (N,) labels: 1 positive, 0 negative.
            box: (4,) or (1, 4): x0, y0, x1, y1.
            mask_input: (1, 256, 256) logits of an earlier prediction.
            multimask_output: True for the model's three candidates, False for its single mask.
            return_logits: True for logits in place of masks.

        Returns:
            masks: (C, H, W) bool, or float32 logits.
            scores: (C,) float32, the model's estimates of the masks' IoU.
            low_res_masks: (C, 256, 256) float32 logits.

        Raises:
            RuntimeError: no image is set.
            ValueError: the prompt has the wrong shape, or points without labels.
            MobileSamError: the service cannot answer.
        """
        photo = self._current_photo()
        if point_coords is not None and point_labels is None:
            raise ValueError("point_labels: expected one label per point, got None")
        found = self.model.segment(
            photo,
            pos_coords=point_coords,
            labels=None if point_coords is None else point_labels,
            box=None if box is None else np.reshape(box, 4),
            mask_input=None if mask_input is None else np.reshape(mask_input, MASK_SHAPE),
            multimask_output=multimask_output,
            segmented_image="none",
            low_res_mask=True,
        )
        results = sorted(found.candidates, key=lambda candidate: candidate.candidate_index) or [found]
        low_res = np.stack([result.low_res_mask for result in results if result.low_res_mask is not None])
        if return_logits:
            masks: list[Array] = [_upsampled(plane, self.original_size) for plane in low_res]
        else:
            masks = [result.mask for result in results]
        return np.stack(masks), np.array([result.score for result in results], np.float32), low_res

    def reset_image(self) -> None:
        """Forget the current image."""
        self._photo = None

    @property
    def is_image_set(self) -> bool:
        """True after `set_image`."""
        return self._photo is not None

    @property
    def original_size(self) -> tuple[int, int]:
        """Height and width of the current image."""
        photo = self._current_photo()
        return photo.height, photo.width

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the current image as the model sees it: its longest side is 1024."""
        return _input_hw(self.original_size)

    @property
    def features(self) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_TENSORS)

    def set_torch_image(self, transformed_image: Any, original_image_size: tuple[int, ...]) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_TENSORS)

    def predict_torch(  # noqa: PLR0917 (the parameters of Segment Anything)
        self,
        point_coords: Any,
        point_labels: Any,
        boxes: Any = None,
        mask_input: Any = None,
        multimask_output: bool = True,
        return_logits: bool = False,
    ) -> NoReturn:
        """Not available. `Client.segment_many` answers several prompts at once."""
        raise NotImplementedError(f"{NO_TENSORS}, or Client.segment_many for several prompts at once")

    def get_image_embedding(self) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_TENSORS)

    def _current_photo(self) -> Embedding:
        if self._photo is None:
            raise RuntimeError("no image is set; call set_image before")
        return self._photo


class SamAutomaticMaskGenerator:
    """Segment Anything's generator of masks for a whole image."""

    def __init__(  # noqa: PLR0917 (the parameters of Segment Anything)
        self,
        model: Client,
        points_per_side: int | None = 32,
        points_per_batch: int = 64,  # noqa: ARG002
        pred_iou_thresh: float = 0.88,
        stability_score_thresh: float = 0.95,
        stability_score_offset: float = 1.0,
        box_nms_thresh: float = 0.7,
        crop_n_layers: int = 0,
        crop_nms_thresh: float = 0.7,
        crop_overlap_ratio: float = 512 / 1500,
        crop_n_points_downscale_factor: int = 1,
        point_grids: list[Array] | None = None,
        min_mask_region_area: int = 0,
        output_mode: str = "binary_mask",
    ) -> None:
        """Create a generator; `Client.everything` describes the parameters.

        Args:
            model: client of the service.
            points_per_batch: not used: the service chooses the size of its batches.
            point_grids: not available.
            output_mode: type of `segmentation`: `binary_mask`, `uncompressed_rle` or `coco_rle`.

        Raises:
            NotImplementedError: `point_grids` is given, or `points_per_side` is None.
            ValueError: the output mode is unknown.
        """
        if point_grids is not None or points_per_side is None:
            raise NotImplementedError("the service takes no point_grids; pass points_per_side")
        if output_mode not in SEGMENTATIONS:
            raise ValueError(f"output_mode: expected {', '.join(SEGMENTATIONS)}, got {output_mode!r}")
        self.predictor = SamPredictor(model)
        self.output_mode = output_mode
        self._parameters: dict[str, Any] = {
            "points_per_side": points_per_side,
            "pred_iou_thresh": pred_iou_thresh,
            "stability_score_thresh": stability_score_thresh,
            "stability_score_offset": stability_score_offset,
            "box_nms_thresh": box_nms_thresh,
            "crop_n_layers": crop_n_layers,
            "crop_nms_thresh": crop_nms_thresh,
            "crop_overlap_ratio": crop_overlap_ratio,
            "crop_n_points_downscale_factor": crop_n_points_downscale_factor,
            "min_mask_region_area": min_mask_region_area,
        }

    def generate(self, image: npt.NDArray[np.uint8]) -> list[dict[str, Any]]:
        """Return a record for each mask in an image.

        Args:
            image: (H, W, 3) uint8 RGB.

        Returns:
            Dicts with `segmentation` ((H, W) bool or RLE), `area`, `bbox` (x, y, width, height), `predicted_iou`,
            `point_coords`, `stability_score` and `crop_box` (x, y, width, height).

        Raises:
            MobileSamError: the service cannot answer.
        """
        found = self.predictor.model.everything(image, **self._parameters)
        segmentation = SEGMENTATIONS[self.output_mode]
        return [{**record.as_sam(), "segmentation": segmentation(record)} for record in found]


def _uncompressed_rle(result: MaskResult) -> dict[str, Any]:
    """Return the lengths of the runs of 0 and 1 in turn, column by column, beginning with 0."""
    pixels = result.mask.ravel(order="F")
    edges = np.flatnonzero(np.diff(pixels, prepend=False))
    return {"size": list(result.mask.shape), "counts": np.diff(edges, prepend=0, append=pixels.size).tolist()}


SEGMENTATIONS: dict[str, Callable[[MaskResult], Any]] = {
    "binary_mask": lambda result: result.mask,
    "uncompressed_rle": _uncompressed_rle,
    "coco_rle": lambda result: result.rle,
}
"""Conversions of a mask by `output_mode`."""


def _input_hw(size_hw: tuple[int, int]) -> tuple[int, int]:
    scale = FRAME / max(size_hw)
    height, width = (max(1, int(side * scale + 0.5)) for side in size_hw)
    return height, width


def _upsampled(logits: Floats, size_hw: tuple[int, int]) -> Floats:
    """Scale (256, 256) float32 logits to the size of an image, in Segment Anything's steps."""
    height, width = _input_hw(size_hw)
    return _bilinear(_bilinear(logits, (FRAME, FRAME))[:height, :width], size_hw)


def _bilinear(plane: Floats, size_hw: tuple[int, int]) -> Floats:
    """Scale (H, W) float32 without anti-aliasing, as PyTorch and OpenCV do."""
    for axis, length in enumerate(size_hw):
        last = plane.shape[axis] - 1
        position = np.clip((np.arange(length) + 0.5) * (plane.shape[axis] / length) - 0.5, 0, last)
        low = position.astype(int)
        weight = np.expand_dims((position - low).astype(np.float32), 1 - axis)
        plane = plane.take(low, axis) * (1 - weight) + plane.take(np.minimum(low + 1, last), axis) * weight
    return plane
