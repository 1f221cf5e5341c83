"""From the service's answers to results and errors."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_sam_client._errors import MobileSamError, NotThisService, one_line, problem_of
from mobile_sam_client._multipart import parts
from mobile_sam_client._prompts import MASK_SHAPE
from mobile_sam_client._results import Embedding, Engine, Everything, Info, Record, Rle, Segmentation, Weights
from mobile_sam_client._retries import retry_after

PROBLEM_TYPE = "application/problem+json"
PNG = b"\x89PNG\r\n\x1a\n"


def refusal(status: int, headers: Mapping[str, str], body: bytes, url: str) -> MobileSamError:
    """The error for an answer that is not a 200.

    Args:
        status: of the answer.
        headers: by names in any case.
        body: all of it.
        url: what was asked.
    """
    content_type = headers.get("Content-Type", "")
    if content_type.startswith(PROBLEM_TYPE):
        try:
            document = {"status": status, **json.loads(body)}
            return problem_of(document, headers.get("X-Request-ID"), retry_after(headers.get("Retry-After")))
        except (ValueError, KeyError, TypeError, AttributeError):
            return NotThisService(f"{url} answers {status} with a problem document that cannot be read")
    if 300 <= status < 400 and (target := headers.get("Location")):
        return NotThisService(f"{url} answers {status} and leads to {one_line(target)}: give the address that that has")
    text = next(iter(body.decode(errors="replace").splitlines()), "")
    said = one_line(f"{content_type or 'no Content-Type'}: {text}")
    return NotThisService(f"{url} is not this service: expected 200 or {PROBLEM_TYPE}, got {status} with {said}")


@contextlib.contextmanager
def understanding(url: str) -> Iterator[None]:
    """Within it, what an answer lacks, or has in another shape, becomes `NotThisService`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        missing = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise NotThisService(one_line(f"{url} does not answer as this service does: {missing}")) from error


def info_of(body: bytes) -> Info:
    """The answer of `GET /info`. This and those below raise what `understanding` knows."""
    document = _document(body)
    limits = document["limits"]
    return Info(
        version=str(document["version"]),
        weights=None if document["weights"] is None else _weights(document["weights"]),
        engine=None if document["engine"] is None else _engine(document["engine"]),
        key_needed=bool(document["key_needed"]),
        max_body_bytes=int(limits["max_body_bytes"]),
        max_image_pixels=int(limits["max_image_pixels"]),
        max_objects=int(limits["max_objects"]),
        model_versions=tuple(int(version) for version in document["model_versions"]),
    )


def embedding_of(body: bytes, file: bytes) -> Embedding:
    """The answer of `POST /embed`, with the file that it is about."""
    return Embedding(**_image(_document(body)), file=file)


def segmentations_of(content_type: str, body: bytes, count: int) -> list[Segmentation]:
    """The answer of `POST /mobile_sam`: the best mask of each of `count` objects, with its candidates."""
    by_name = parts(content_type, body)
    result, rles = _document(by_name["result"]), json.loads(by_name["mask"])
    rles = rles if isinstance(rles, list) else [rles]
    picture = by_name.get("segmented_image")
    if picture is not None and not picture.startswith(PNG):
        raise ValueError("expected a PNG file as segmented_image, got something else")
    image = _image(result)
    objects: dict[int, list[Segmentation]] = {}
    for mask, rle in zip(result["masks"], rles, strict=True):
        found = Segmentation(
            **image,
            rle=_rle(rle, image),
            score=float(mask["score"]),
            area=int(mask["area"]),
            box_xyxy=_four(mask["box"]),
            low_res_mask=_low_res_mask(mask["low_res_mask"]) if "low_res_mask" in mask else None,
        )
        objects.setdefault(int(mask["object"]), []).append(found)
    if sorted(objects) != list(range(count)):
        raise ValueError(f"expected masks of {count} objects, got those of {len(objects)}")
    return [_best(objects[number], picture) for number in range(count)]


def everything_of(document: Mapping[str, Any]) -> Everything:
    """The `result` in the last line that `POST /everything` answers."""
    image = _image(document)
    records = [
        Record(
            rle=_rle(record["segmentation"], image),
            area=int(record["area"]),
            bbox_xywh=_four(record["bbox"]),
            predicted_iou=float(record["predicted_iou"]),
            stability_score=float(record["stability_score"]),
            point_coords=tuple((float(x), float(y)) for x, y in record["point_coords"]),
            crop_box=_four(record["crop_box"]),
        )
        for record in document["masks"]
    ]
    return Everything(**image, masks=records)


def step_of(line: bytes, request_id: str | None) -> tuple[int, int, Everything | None]:
    """A line that `POST /everything` answers: work done, work in all, and in the last line the result.

    Raises:
        Problem: the line is one.
    """
    step = _document(line)
    if "problem" in step:
        raise problem_of(_object(step["problem"]), request_id)
    return int(step["done"]), int(step["total"]), everything_of(step["result"]) if "result" in step else None


def _document(body: bytes) -> dict[str, Any]:
    try:
        return _object(json.loads(body))
    except ValueError:
        raise ValueError(f"expected JSON, got {body[:100].decode(errors='replace')!r}") from None


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise TypeError(f"expected a JSON object, got {type(document).__name__}")
    return document


def _image(document: Mapping[str, Any]) -> dict[str, Any]:
    """What every answer says of its image."""
    return {
        "image_id": str(document["image_id"]),
        "width": int(document["width"]),
        "height": int(document["height"]),
        "weights": _weights(document["weights"]),
        "engine": _engine(document["engine"]),
        "model_version": int(document["model_version"]),
    }


def _weights(document: Mapping[str, Any]) -> Weights:
    name, sha256, note = (str(document[member]) for member in ("name", "sha256", "note"))
    return Weights(name, sha256, bool(document["trained"]), note)


def _engine(document: Mapping[str, Any]) -> Engine:
    return Engine(str(document["encoder"]), str(document["decoder"]))


def _rle(document: Mapping[str, Any], image: Mapping[str, Any]) -> Rle:
    rle = Rle(size=[int(side) for side in document["size"]], counts=str(document["counts"]))
    if rle["size"] != [image["height"], image["width"]]:
        raise ValueError(f"expected a mask of {image['height']} x {image['width']} pixels, got {rle['size']}")
    return rle


def _four(numbers: Any) -> tuple[int, int, int, int]:
    first, second, third, fourth = numbers
    return int(first), int(second), int(third), int(fourth)


def _low_res_mask(text: str) -> npt.NDArray[np.float32]:
    array = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    if array.shape != MASK_SHAPE or array.dtype != np.float32:
        raise ValueError(f"expected a low_res_mask of (256, 256) float32, got {array.dtype} of shape {array.shape}")
    low_res_mask: npt.NDArray[np.float32] = array
    return low_res_mask


def _best(candidates: list[Segmentation], picture: bytes | None) -> Segmentation:
    """The best of an object's masks, with the picture, and the others beside it."""
    ranked = sorted(candidates, key=lambda found: -found.score)
    others = tuple(ranked) if len(ranked) > 1 else ()
    return dataclasses.replace(ranked[0], picture_png=picture, candidates=others)
