"""Segment Anything's model, predictor and generator, answered by the service.

from mobile_sam_client.compat import SamPredictor, sam_model_registry

predictor = SamPredictor(sam_model_registry["vit_t"]())
predictor.set_image(image)
masks, scores, logits = predictor.predict(point_coords=point_coords, point_labels=point_labels)

Scores are rounded to four decimals. Points and boxes outside the image are an error, or moved to
its edge if `predictor.clip` is True; Segment Anything takes them as they are. Tensors are NumPy
arrays; what needs the image's embedding raises `NotImplementedError`.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from mobile_sam_client._client import Client
from mobile_sam_client._frames import Array, Floats, ResizeLongestSide, Tensor, tensor, upsampled
from mobile_sam_client._model import FRAME_SIDE, MASK_SHAPE
from mobile_sam_client._options import EverythingOptions, MaskOptions
from mobile_sam_client._prompts import Prompt
from mobile_sam_client._results import Embedding, MaskResult, Segmentation

__all__ = [
    "ResizeLongestSide",
    "Sam",
    "SamAutomaticMaskGenerator",
    "SamPredictor",
    "sam_model_registry",
]

NO_EMBEDDINGS = "the service returns no embeddings; use set_image with predict or predict_torch"


class Sam(Client):
    """Segment Anything's model: a client with the members that programs use.

    The service chooses the hardware.
    """

    device = "cpu"
    """Device of the arrays that are passed and returned."""
    mask_threshold = 0.0
    image_encoder = SimpleNamespace(img_size=FRAME_SIDE)

    def to(self, device: Any = None) -> "Sam":  # noqa: ARG002 (the parameters of PyTorch)
        """Return the model itself."""
        return self

    def eval(self) -> "Sam":
        """Return the model itself."""
        return self

    def __call__(
        self,
        batched_input: Sequence[dict[str, Any]],
        multimask_output: bool,
        return_logits: bool = False,
    ) -> list[dict[str, Tensor]]:
        """Segment objects in several images.

        Each image is a dict with `image`, (3, H, W) uint8 RGB with a longest side of 1024,
        `original_size`, and prompts as for `predict_torch`: `point_coords`, `point_labels`,
        `boxes`, `mask_inputs`. Returns per image `masks`, (B, C, H, W) in the original size,
        `iou_predictions`, (B, C), and `low_res_logits`, (B, C, 256, 256).
        """
        answers = []
        for image in batched_input:
            predictor = SamPredictor(self)
            predictor.set_image(np.asarray(image["image"]).transpose(1, 2, 0))
            _, scores, low_res = predictor.predict_torch(
                image.get("point_coords"),
                image.get("point_labels"),
                image.get("boxes"),
                image.get("mask_inputs"),
                multimask_output,
            )
            logits = tensor(predictor.upsampled_all(low_res, image["original_size"]))
            masks = logits if return_logits else tensor(logits > self.mask_threshold)
            answers.append({"masks": masks, "iou_predictions": scores, "low_res_logits": low_res})
        return answers


def _build_sam(checkpoint: object = None) -> Sam:
    if checkpoint is not None:
        reason = "the service answers with its own weights, see Client.info().weights"
        warnings.warn(f"{checkpoint} is not loaded: {reason}", stacklevel=2)
    can_decode = all(find_spec(package) for package in ("cv2", "onnxruntime"))
    return Sam(local=can_decode)


sam_model_registry: dict[str, Callable[..., Sam]] = dict.fromkeys(
    ("default", "vit_h", "vit_l", "vit_b", "vit_t"), _build_sam
)
"""Builders of a `Sam` by model type. The service's own model answers for all of them."""


class SamPredictor:
    """Segment Anything's predictor. As there, an image is encoded once and then prompted."""

    clip = False
    """True to move points and boxes outside the image to its edge, as `clip` of `MaskOptions`."""

    def __init__(self, sam_model: Client) -> None:
        """Create a predictor; `sam_model` is a client of the service, such as a `Sam`."""
        self.model = sam_model
        self.transform = ResizeLongestSide()
        self._photo: Embedding | None = None

    @property
    def device(self) -> str:
        """Device of the arrays that are passed and returned."""
        return Sam.device

    def set_image(self, image: npt.NDArray[np.uint8], image_format: str = "RGB") -> None:
        """Encode an image for `predict`.

        Args:
            image: (H, W, 3) uint8.
            image_format: order of the channels, `RGB` or `BGR`.

        Raises:
            TypeError: the image is no array, such as a path.
            ValueError: the image has another shape or type, or the format is unknown.
            MobileSamError: the service cannot answer.
        """
        if image_format not in {"RGB", "BGR"}:
            raise ValueError(f"image_format: expected RGB or BGR, got {image_format!r}")
        if not isinstance(image, np.ndarray):
            example = "numpy.asarray(PIL.Image.open(path).convert('RGB'))"
            raise TypeError(
                f"image: expected (H, W, 3) uint8, such as {example}, got {str(image)[:80]!r}"
            )
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
        prompt = _prompt(point_coords, point_labels, box, mask_input)
        masks, scores, low_res = self._predict([prompt], multimask_output, return_logits)
        return masks[0], scores[0], low_res[0]

    def predict_torch(  # noqa: PLR0917 (the parameters of Segment Anything)
        self,
        point_coords: Any,
        point_labels: Any,
        boxes: Any = None,
        mask_input: Any = None,
        multimask_output: bool = True,
        return_logits: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the masks of B objects, asked for in one request.

        Arrays and CPU tensors are accepted.

        Arguments, results and errors are those of `predict` with a first axis B, but `point_coords`
        and `boxes`, which is (B, 4), are scaled by `transform`.
        """
        if point_coords is not None:
            point_coords = self.transform.to_image(point_coords, self.original_size)
        if boxes is not None:
            boxes = self.transform.to_image(np.reshape(boxes, (-1, 2, 2)), self.original_size)
        arguments = (point_coords, point_labels, boxes, mask_input)
        arrays = [None if argument is None else np.asarray(argument) for argument in arguments]
        counts = [len(array) for array in arrays if array is not None]
        if len(set(counts)) != 1:
            expected = "expected points, labels, boxes and masks of the same number of objects"
            raise ValueError(f"{expected}, got {counts}")
        prompts = []
        for index in range(counts[0]):
            of_object = [None if array is None else array[index] for array in arrays]
            prompts.append(_prompt(*of_object))
        masks, scores, low_res = self._predict(prompts, multimask_output, return_logits)
        return tensor(masks), tensor(scores), tensor(low_res)

    def _predict(
        self, prompts: Sequence[Prompt], multimask_output: bool, return_logits: bool
    ) -> tuple[Array, Floats, Floats]:
        """Return the masks, (B, C, H, W), scores and logits of several objects."""
        photo = self._current_photo()
        options: MaskOptions = {"multimask_output": multimask_output, "low_res_mask": True}
        if self.clip:
            options["clip"] = True
        best_masks = self.model.segment_many(photo, prompts, **options)
        candidates_by_object = [_in_model_order(best) for best in best_masks]
        low_res_planes = []
        score_rows = []
        mask_planes = []
        for candidates in candidates_by_object:
            low_res_planes.append([candidate.low_res_mask for candidate in candidates])
            score_rows.append([candidate.score for candidate in candidates])
            if not return_logits:
                mask_planes.append([candidate.mask for candidate in candidates])
        low_res = np.array(low_res_planes)
        scores = np.array(score_rows, np.float32)
        if return_logits:
            return self.upsampled_all(low_res, self.original_size), scores, low_res
        return np.array(mask_planes), scores, low_res

    @cached_property
    def _squashes(self) -> bool:
        chosen = self.model.model_version
        versions = [
            loaded for loaded in self.model.info().loaded if chosen in {None, loaded.version}
        ]
        return bool(versions) and versions[-1].squashes

    def upsampled(self, logits: Floats, size_hw: tuple[int, int]) -> Floats:
        """Scale (256, 256) float32 logits to the size of an image, as the weights ask for."""
        return upsampled(logits, size_hw, squashed=self._squashes)

    def upsampled_all(self, logits: Floats, size_hw: tuple[int, int]) -> Floats:
        """Scale (B, C, 256, 256) float32 logits as `upsampled`."""
        objects = []
        for planes in logits:
            objects.append([self.upsampled(plane, size_hw) for plane in planes])
        return np.array(objects)

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
        return self.transform.get_preprocess_shape(*self.original_size, FRAME_SIDE)

    @property
    def features(self) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_EMBEDDINGS)

    def set_torch_image(
        self, transformed_image: Any, original_image_size: tuple[int, ...]
    ) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_EMBEDDINGS)

    def get_image_embedding(self) -> NoReturn:
        """Not available."""
        raise NotImplementedError(NO_EMBEDDINGS)

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
        points_per_batch: int = 64,
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
        arguments = locals()
        if point_grids is not None or points_per_side is None:
            raise NotImplementedError("the service takes no point_grids; pass points_per_side")
        if output_mode not in SEGMENTATIONS:
            raise ValueError(
                f"output_mode: expected {', '.join(SEGMENTATIONS)}, got {output_mode!r}"
            )
        self.predictor = SamPredictor(model)
        self.output_mode = output_mode
        self._options: dict[str, Any] = {
            name: arguments[name] for name in EverythingOptions.__annotations__
        }

    def generate(self, image: npt.NDArray[np.uint8]) -> list[dict[str, Any]]:
        """Return a record for each mask in an image.

        Args:
            image: (H, W, 3) uint8 RGB.

        Returns:
            Dicts with `segmentation` ((H, W) bool or RLE), `area`, `bbox` (x, y, width, height),
            `predicted_iou`, `point_coords`, `stability_score` and `crop_box` (x, y, width, height).

        Raises:
            MobileSamError: the service cannot answer.
        """
        result = self.predictor.model.everything(image, **self._options)
        segmentation = SEGMENTATIONS[self.output_mode]
        return [{**record.as_sam(), "segmentation": segmentation(record)} for record in result]


def _uncompressed_rle(result: MaskResult) -> dict[str, Any]:
    """Return the lengths of the runs of 0 and 1 in turn, column by column, beginning with 0."""
    pixels = result.mask.ravel(order="F")
    edges = np.flatnonzero(np.diff(pixels, prepend=False))
    lengths = np.diff(edges, prepend=0, append=pixels.size)
    return {"size": list(result.mask.shape), "counts": lengths.tolist()}


SEGMENTATIONS: dict[str, Callable[[MaskResult], Any]] = {
    "binary_mask": lambda result: result.mask,
    "uncompressed_rle": _uncompressed_rle,
    "coco_rle": lambda result: result.rle,
}
"""Conversions of a mask by `output_mode`."""


def _in_model_order(best: Segmentation) -> list[Segmentation]:
    """Return the candidates of an object as the model returns them, not by their scores."""
    candidates = best.candidates or (best,)
    return sorted(candidates, key=lambda candidate: candidate.candidate_index)


def _prompt(points: Any, labels: Any, box: Any, mask_input: Any) -> Prompt:
    if points is not None and labels is None:
        raise ValueError("point_labels: expected one label per point, got None")
    return Prompt(
        pos_coords=points,
        labels=None if points is None else labels,
        box=None if box is None else np.reshape(box, 4),
        mask_input=None if mask_input is None else np.reshape(mask_input, MASK_SHAPE),
    )
