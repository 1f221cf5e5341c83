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
from mobile_sam_client._errors import ImageNotCached, Problem
from mobile_sam_client._exports import Photo
from mobile_sam_client._frames import FRAME, Array
from mobile_sam_client._images import ImageInput, load_source
from mobile_sam_client._pictures import Rle
from mobile_sam_client._prompts import MASK_SHAPE, Region
from mobile_sam_client._results import Embedding, ImageResult, Info, Segmentation
from mobile_sam_client._scaling import Scaling
from mobile_sam_client._wire import Wire

try:
    import cv2
    import onnxruntime
except ImportError as error:
    raise ImportError("local decoding needs other packages: pip install 'mobile-sam-client[local]'") from error

MAX_IMAGES = 32
"""Embeddings that a client keeps, the last ones: 2 MB each, with SAM 2 8 MB."""
BOX_TOP_LEFT, BOX_BOTTOM_RIGHT, PADDING = 2, 3, -1

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
    """The embeddings and the decoder that a client has fetched. An embedding is decoded by its own weights only."""

    def __init__(self, client: ServiceClient) -> None:
        """Start without any."""
        self._client = client
        self._images: dict[str, _LocalImage] = {}
        self._decoder: tuple[str, Any] = "", None
        self._offered, self._fetching = True, False

    async def segment(self, image: ImageInput, fields: Mapping[str, Any], photo: Photo) -> list[Segmentation] | None:
        """Return the best mask of each object of a request, or None if the service must answer it."""
        client, region = self._client, fields.get("region")
        if not self._offered or fields["segmented_image"] != "none" or isinstance(region, str):
            return None
        if fields.get("clip") and region is not None:  # the region may have to be cut to the image
            return None
        source = await client._wire.run(load_source, image)
        key = f"{source.image_id or source.sha256} {region} {client.model_version}"
        found = self._images.get(key)
        if found is None or found.decoder is not self._decoder:
            if self._fetching:  # the service answers meanwhile, so that concurrent calls fetch nothing twice
                return None
            self._fetching = True
            try:
                found = self._images[key] = await self._fetch(await client._embed(image, region))
                if len(self._images) > MAX_IMAGES:
                    del self._images[next(iter(self._images))]
            except Problem as problem:
                if problem.status not in {404, 409}:
                    raise
                # Unless the image or the weights are gone by now, the service offers no decoder.
                self._offered = problem.status == 409 or isinstance(problem, ImageNotCached)
                return None
            finally:
                self._fetching = False
        return await client._wire.run(found.segment, fields, photo)

    async def _fetch(self, image: Embedding) -> _LocalImage:
        """Fetch the embedding of an image, and the decoder if its weights are other ones."""
        client, weights, query = self._client, image.weights.sha256, f"?model_version={image.model_version}"
        path = f"/embeddings/{image.image_id}{query}"
        if region := image.region:
            scaling = client._scaling(image, b"")
            sent = scaling.fields_to_send({"region": region})["region"] if scaling else region
            path += f"&region={','.join(map(str, sent))}"
        sha256, arrays = await client._parse(_parse_safetensors, await self._get(path, image.image_id))
        if sha256 != weights:
            raise Problem({"status": 409})
        if self._decoder[0] != weights:
            accepted = {each.weights.sha256: each.prompts for each in (await client._info()).loaded}
            if len(accepted.get(weights, ())) < 3:
                raise Problem({"status": 404})
            file, providers = await self._get(f"/decoder.onnx{query}&weights={weights}"), ["CPUExecutionProvider"]
            session = await client._wire.run(onnxruntime.InferenceSession, file, providers=providers)
            self._decoder = weights, session
        return _LocalImage(**vars(replace(image, file=b"")), **arrays, decoder=self._decoder)

    async def _get(self, path: str, image_id: str | None = None) -> bytes:
        return await self._client._wire.read(await self._client._send("GET", path, image_id=image_id))


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
        threshold, min_area = fields.get("mask_threshold") or 0, fields.get("min_mask_region_area") or 0
        objects = [self._inputs(prompt) for prompt in fields.get("prompts", [fields])]
        numbers = isinstance(threshold, (int, float)) and isinstance(min_area, int)
        if None in objects or not numbers or not abs(threshold) <= 20 or min_area < 0:
            return None
        several = bool(fields.get("multimask_output"))
        outputs = ["low_res_masks" if several else "single_masks", "iou_predictions"]
        image = {name: getattr(self, name) for name in ImageResult.__dataclass_fields__}
        found = []
        for inputs in objects:
            logits, scores = (each[0, slice(several, 1 + 3 * several)] for each in self.decoder[1].run(outputs, inputs))
            candidates = [
                Segmentation(
                    **image,
                    **self._mask(low_res, threshold, min_area),
                    photo=photo,
                    candidate_index=index,
                    score=round(float(score), 4),
                    low_res_mask=low_res if fields.get("low_res_mask") else None,
                )
                for index, (low_res, score) in enumerate(zip(logits, scores, strict=True))
            ]
            found.append(best_first(candidates))
        return found

    def _inputs(self, prompt: Mapping[str, Any]) -> dict[str, Array] | None:
        """Return the inputs of the decoder, or None if the service may reject the prompt."""
        positive, negative, box = (prompt.get(name) or [] for name in ("pos_coords", "neg_coords", "box"))
        labels = np.array([*prompt.get("labels", [1] * len(positive)), *[0] * len(negative), *[2, 3][: len(box)]])
        points_xy = np.array([*positive, *negative, *np.reshape(box, (-1, 2))]).reshape(-1, 2)
        start, end = np.reshape(self.region or (0, 0, self.width, self.height), (2, 2))
        if not 0 < len(labels) == len(points_xy) or not ((points_xy >= start) & (points_xy <= end)).all():
            return None
        first, second = (points_xy[labels == label] for label in (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT))
        if not len(first) == len(second) < 2 or not (first < second).all() or {*labels} - {0, 1, 2, 3}:
            return None
        coords = (points_xy - start) * self.frame_wh / (end - start)
        if not len(first):
            coords, labels = np.append(coords, [[0, 0]], axis=0), np.append(labels, PADDING)
        mask = parse_logits(prompt["mask_input"]) if "mask_input" in prompt else np.zeros(MASK_SHAPE)
        given = {"point_coords": coords, "point_labels": labels, "mask_input": mask[None]}
        inputs = {name: np.asarray(array[None], np.float32) for name, array in given.items()}
        return {**self.tensors, **inputs, "has_mask_input": np.array(["mask_input" in prompt], np.float32)}

    def _mask(self, logits: Array, threshold: float, min_area: int) -> dict[str, Any]:
        """Return RLE, area and box of the mask of low-resolution logits (256, 256)."""
        x0, y0, x1, y1 = self.region or (0, 0, self.width, self.height)
        if not self.squashed:
            logits = cv2.resize(logits, (FRAME, FRAME))[: self.frame_wh[1], : self.frame_wh[0]]
        mask = np.zeros((self.height, self.width), np.uint8)
        mask[y0:y1, x0:x1] = cv2.resize(logits, (x1 - x0, y1 - y0)) > threshold
        for holes in (True, False) if min_area else ():
            _, regions, stats, _ = cv2.connectedComponentsWithStats(mask ^ np.uint8(holes))
            areas = stats[1:, cv2.CC_STAT_AREA]
            small = np.append(False, areas < min_area)
            if not holes and len(areas):
                small[1 + areas.argmax()] = False  # the largest island stays
            mask ^= small[regions]
        rle = coco.encode(cv2.transpose(mask).T)
        x, y, width, height = map(int, coco.toBbox(rle))
        counts = Rle(size=[self.height, self.width], counts=rle["counts"].decode())
        return {"rle": counts, "area": int(coco.area(rle)), "box_xyxy": (x, y, x + width, y + height)}


def _parse_safetensors(file: bytes) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 of the weights, and the fields of `_LocalImage` in the answer of `/embeddings`."""
    start = 8 + int.from_bytes(file[:8], "little")
    header, values = json.loads(file[8:start]), np.frombuffer(file, "<f2", offset=start)
    about = header.pop("__metadata__")
    tensors = {
        name: values[each["data_offsets"][0] // 2 : each["data_offsets"][1] // 2].reshape(each["shape"])
        for name, each in header.items()
    }
    frame_wh = int(about["frame_width"]), int(about["frame_height"])
    fields = {"tensors": tensors, "frame_wh": frame_wh, "squashed": about["squashed"] == "true"}
    return about["weights_sha256"], fields
