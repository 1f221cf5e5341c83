"""Decoding of masks in this process, with the service's embeddings and decoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import httpx
import numpy as np
from pycocotools import mask as coco

from mobile_sam_client._answers import best_first, parse_logits
from mobile_sam_client._arrays import Rle, UInt8Mask
from mobile_sam_client._errors import ImageNotCached, Problem
from mobile_sam_client._exports import Photo
from mobile_sam_client._frames import Array
from mobile_sam_client._images import ImageInput, load_source
from mobile_sam_client._model import (
    BOX_BOTTOM_RIGHT,
    BOX_TOP_LEFT,
    FRAME_SIDE,
    MASK_SHAPE,
    NEGATIVE,
    PADDING_POINT,
    POSITIVE,
)
from mobile_sam_client._prompts import Region
from mobile_sam_client._results import Embedding, ImageResult, Segmentation
from mobile_sam_client._scaling import Scaling
from mobile_sam_client._service_info import Info
from mobile_sam_client._wire import Wire

try:
    import cv2
    import onnxruntime
except ImportError as error:
    raise ImportError(
        "local decoding needs other packages: pip install './client[local]'"
    ) from error

MAX_IMAGES = 32
"""Embeddings that a client keeps, the last ones: 2 MB each, with SAM 2 8 MB."""
PROMPT_KINDS = 3
"""Points, boxes and masks: weights that do not accept all of them are left to the service."""
MAX_THRESHOLD = 20
LABELS = {NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT}
CANDIDATES = 3

T = TypeVar("T")


class ServiceClient(Protocol):
    """What is used of a client of either kind."""

    model_version: int | None
    _wire: Wire

    async def _info(self) -> Info: ...

    async def _embed(self, image: ImageInput, region: Region | None) -> Embedding: ...

    async def _parse(self, parser: Callable[..., T], *arguments: Any) -> T: ...

    async def _send(
        self, method: str, path: str, body: bytes | None = None, image_id: str | None = None
    ) -> httpx.Response: ...

    def _scaling(self, image: ImageInput, file: bytes) -> Scaling | None: ...


class LocalDecoding:
    """The embeddings and the decoder that a client has fetched.

    An embedding is decoded by its own weights only.
    """

    def __init__(self, client: ServiceClient) -> None:
        """Start without any."""
        self._client = client
        self._images: dict[str, _LocalImage] = {}
        self._decoder: tuple[str, Any] = "", None
        """SHA-256 of the weights, and a session of ONNX Runtime."""
        self._is_offered = True
        """False once the service has said that it offers no decoder."""
        self._is_fetching = False

    async def segment(
        self, image: ImageInput, fields: Mapping[str, Any], photo: Photo
    ) -> list[Segmentation] | None:
        """Return the best mask of each object of a request, or None if the service must answer it.

        Args:
            image: the image.
            fields: the other fields of the request.
            photo: returns the image's pixels.
        """
        region = fields.get("region")
        if not self._is_offered or fields["segmented_image"] != "none" or isinstance(region, str):
            return None
        if fields.get("clip") and region is not None:
            return None  # the region may have to be cut to the image
        local_image = await self._local_image(image, region)
        if local_image is None:
            return None
        return await self._client._wire.run(local_image.segment, fields, photo)

    async def _local_image(self, image: ImageInput, region: Region | None) -> _LocalImage | None:
        """Return an image to decode, which may have to be fetched; None if it cannot be had now."""
        client = self._client
        source = await client._wire.run(load_source, image)
        key = f"{source.image_id or source.sha256} {region} {client.model_version}"
        local_image = self._images.get(key)
        if local_image is not None and local_image.decoder is self._decoder:
            return local_image
        if self._is_fetching:
            # The service answers meanwhile, so that concurrent calls fetch nothing twice.
            return None
        self._is_fetching = True
        try:
            embedding = await client._embed(image, region)
            local_image = await self._fetch(embedding)
        except Problem as problem:
            if problem.status not in {404, 409}:
                raise
            # Unless the image or the weights are gone by now, the service offers no decoder.
            self._is_offered = problem.status == 409 or isinstance(problem, ImageNotCached)
            return None
        finally:
            self._is_fetching = False
        self._images[key] = local_image
        if len(self._images) > MAX_IMAGES:
            oldest = next(iter(self._images))
            del self._images[oldest]
        return local_image

    async def _fetch(self, image: Embedding) -> _LocalImage:
        """Fetch the embedding of an image, and the decoder if its weights are other ones."""
        weights = image.weights.sha256
        query = f"?model_version={image.model_version}"
        path = f"/embeddings/{image.image_id}{query}{self._region_query(image)}"
        file = await self._get(path, image.image_id)
        sha256, tensor_fields = await self._client._parse(_parse_safetensors, file)
        if sha256 != weights:
            raise Problem({"status": 409})  # the service has got other weights in between
        if self._decoder[0] != weights:
            await self._fetch_decoder(weights, query)
        image_fields = vars(replace(image, file=b""))  # the file is no longer needed
        return _LocalImage(**image_fields, **tensor_fields, decoder=self._decoder)

    def _region_query(self, image: Embedding) -> str:
        """Return the query of an embedding's region, in the frame of the image that was sent."""
        if not image.region:
            return ""
        scaling = self._client._scaling(image, b"")
        corners = image.region
        if scaling:
            corners = scaling.fields_to_send({"region": image.region})["region"]
        return f"&region={','.join(map(str, corners))}"

    async def _fetch_decoder(self, weights: str, query: str) -> None:
        """Fetch the decoder of these weights.

        Raises:
            Problem: they do not accept all kinds of prompts.
        """
        client = self._client
        info = await client._info()
        prompts_by_weights = {loaded.weights.sha256: loaded.prompts for loaded in info.loaded}
        if len(prompts_by_weights.get(weights, ())) < PROMPT_KINDS:
            raise Problem({"status": 404})
        file = await self._get(f"/decoder.onnx{query}&weights={weights}")
        providers = ["CPUExecutionProvider"]
        session = await client._wire.run(onnxruntime.InferenceSession, file, providers=providers)
        self._decoder = weights, session

    async def _get(self, path: str, image_id: str | None = None) -> bytes:
        response = await self._client._send("GET", path, image_id=image_id)
        return await self._client._wire.read(response)


@dataclass(frozen=True, kw_only=True, eq=False)
class _LocalImage(Embedding):
    """An image to decode. The steps from prompts to masks are those of the service."""

    tensors: Mapping[str, Array]
    frame_wh: tuple[int, int]
    """Width and height of the encoded part in the decoder's frame."""
    squashed: bool
    decoder: tuple[str, Any]
    """SHA-256 of the weights, and a session of ONNX Runtime."""

    def segment(self, fields: Mapping[str, Any], photo: Photo) -> list[Segmentation] | None:
        """Return the best mask of each object, or None if the service may reject the request."""
        threshold = fields.get("mask_threshold") or 0
        min_area = fields.get("min_mask_region_area") or 0
        if not _are_valid(threshold, min_area):
            return None
        inputs_by_object: list[dict[str, Array]] = []
        for prompt in fields.get("prompts", [fields]):
            inputs = self._inputs(prompt)
            if inputs is None:
                return None
            inputs_by_object.append(inputs)
        multimask_output = bool(fields.get("multimask_output"))
        keep_logits = bool(fields.get("low_res_mask"))
        image_fields = {name: getattr(self, name) for name in ImageResult.__dataclass_fields__}
        best_masks = []
        for inputs in inputs_by_object:
            logits, scores = self._decode(inputs, multimask_output=multimask_output)
            candidates: list[Segmentation] = []
            for low_res, score in zip(logits, scores, strict=True):
                candidate = Segmentation(
                    **image_fields,
                    **self._mask(low_res, threshold, min_area),
                    photo=photo,
                    candidate_index=len(candidates),
                    score=round(float(score), 4),
                    low_res_mask=low_res if keep_logits else None,
                )
                candidates.append(candidate)
            best_masks.append(best_first(candidates))
        return best_masks

    def _decode(self, inputs: dict[str, Array], *, multimask_output: bool) -> tuple[Array, Array]:
        """Return logits, (C, 256, 256), and scores, (C,), of the candidates of an object."""
        session = self.decoder[1]
        if not multimask_output:
            logits, scores = session.run(["single_masks", "iou_predictions"], inputs)
            return logits[0, :1], scores[0, :1]
        logits, scores = session.run(["low_res_masks", "iou_predictions"], inputs)
        # The first mask is the one for prompts of several points.
        return logits[0, 1 : 1 + CANDIDATES], scores[0, 1 : 1 + CANDIDATES]

    def _inputs(self, prompt: Mapping[str, Any]) -> dict[str, Array] | None:
        """Return the inputs of the decoder, or None if the service may reject the prompt."""
        points = _labelled_points(prompt)
        if points is None:
            return None
        points_xy, labels = points
        start, end = np.reshape(self.region or (0, 0, self.width, self.height), (2, 2))
        if not ((points_xy >= start) & (points_xy <= end)).all():
            return None
        coords = (points_xy - start) * self.frame_wh / (end - start)
        if BOX_TOP_LEFT not in labels:
            coords = np.append(coords, [[0, 0]], axis=0)
            labels = np.append(labels, PADDING_POINT)
        has_mask = "mask_input" in prompt
        mask = parse_logits(prompt["mask_input"]) if has_mask else np.zeros(MASK_SHAPE)
        return {
            **self.tensors,
            "point_coords": np.asarray(coords[None], np.float32),
            "point_labels": np.asarray(labels[None], np.float32),
            "mask_input": np.asarray(mask[None, None], np.float32),
            "has_mask_input": np.array([has_mask], np.float32),
        }

    def _mask(self, logits: Array, threshold: float, min_area: int) -> dict[str, Any]:
        """Return RLE, area and box of the mask of low-resolution logits (256, 256)."""
        x0, y0, x1, y1 = self.region or (0, 0, self.width, self.height)
        if not self.squashed:
            columns, rows = self.frame_wh
            logits = cv2.resize(logits, (FRAME_SIDE, FRAME_SIDE))[:rows, :columns]
        mask: UInt8Mask = np.zeros((self.height, self.width), np.uint8)
        mask[y0:y1, x0:x1] = cv2.resize(logits, (x1 - x0, y1 - y0)) > threshold
        if min_area:
            _fill_holes(mask, min_area)
            _remove_islands(mask, min_area)
        rle = coco.encode(cv2.transpose(mask).T)
        x, y, width, height = map(int, coco.toBbox(rle))
        counts = Rle(size=[self.height, self.width], counts=rle["counts"].decode())
        return {
            "rle": counts,
            "area": int(coco.area(rle)),
            "box_xyxy": (x, y, x + width, y + height),
        }


def _are_valid(threshold: Any, min_area: Any) -> bool:
    """Return whether the service accepts both options of masks."""
    if not isinstance(threshold, (int, float)) or not isinstance(min_area, int):
        return False
    return abs(threshold) <= MAX_THRESHOLD and min_area >= 0


def _labelled_points(prompt: Mapping[str, Any]) -> tuple[Array, Array] | None:
    """Return points (N, 2), x then y, and labels (N,); None if the service may reject them.

    A box is the last two points.
    """
    positive = prompt.get("pos_coords") or []
    negative = prompt.get("neg_coords") or []
    box = prompt.get("box") or []
    points_xy = np.array([*positive, *negative, *np.reshape(box, (-1, 2))]).reshape(-1, 2)
    labels = [*prompt.get("labels", [POSITIVE] * len(positive))]
    labels += [NEGATIVE] * len(negative)
    if box:
        labels += [BOX_TOP_LEFT, BOX_BOTTOM_RIGHT]
    if not labels or len(labels) != len(points_xy) or not LABELS.issuperset(labels):
        return None
    label_array = np.array(labels)
    first = points_xy[label_array == BOX_TOP_LEFT]
    second = points_xy[label_array == BOX_BOTTOM_RIGHT]
    if len(first) > 1 or len(first) != len(second) or not (first < second).all():
        return None
    return points_xy, label_array


def _fill_holes(mask: UInt8Mask, min_area: int) -> None:
    """Fill the holes of fewer pixels."""
    regions, areas = _regions(mask ^ np.uint8(1))
    is_small = np.append(False, areas < min_area)
    mask ^= is_small[regions]


def _remove_islands(mask: UInt8Mask, min_area: int) -> None:
    """Remove the islands of fewer pixels. The largest one stays."""
    regions, areas = _regions(mask)
    is_small = np.append(False, areas < min_area)
    if len(areas):
        is_small[1 + areas.argmax()] = False
    mask ^= is_small[regions]


def _regions(mask: UInt8Mask) -> tuple[Array, Array]:
    """Return the regions of a mask.

    The first array is (H, W): 0 outside the mask, else the number of the pixel's region. The second
    has the areas of regions 1, 2 and so on.
    """
    _, regions, stats, _ = cv2.connectedComponentsWithStats(mask)
    return regions, stats[1:, cv2.CC_STAT_AREA]


def _parse_safetensors(file: bytes) -> tuple[str, dict[str, Any]]:
    """Parse an answer of `/embeddings`.

    Returns:
        The SHA-256 of the weights, and fields of `_LocalImage`.
    """
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    values = np.frombuffer(file, "<f2", offset=start)
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        first_byte, end_byte = entry["data_offsets"]
        tensors[name] = values[first_byte // 2 : end_byte // 2].reshape(entry["shape"])
    fields = {
        "tensors": tensors,
        "frame_wh": (int(metadata["frame_width"]), int(metadata["frame_height"])),
        "squashed": metadata["squashed"] == "true",
    }
    return metadata["weights_sha256"], fields
