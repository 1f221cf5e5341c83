"""Parsing of the service's answers into results and errors."""

import base64
import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import BytesParser
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from mobile_sam_client._arrays import Rle
from mobile_sam_client._errors import (
    MobileSamError,
    NotThisService,
    one_line,
    problem_from_document,
)
from mobile_sam_client._exports import Photo
from mobile_sam_client._model import MASK_SHAPE
from mobile_sam_client._results import Embedding, Everything, Record, Segmentation
from mobile_sam_client._service_info import Engine, Info, Loaded, Weights

PROBLEM_TYPE = "application/problem+json"
PNG = b"\x89PNG\r\n\x1a\n"
LINE_END = b"\r\n"


def error_from_response(response: httpx.Response, body: bytes, url: str) -> MobileSamError:
    """Return the error for a response whose status is not 200."""
    status = response.status_code
    headers = response.headers
    content_type = headers.get("Content-Type", "")
    if content_type.startswith(PROBLEM_TYPE):
        retry_after = parse_retry_after(headers.get("Retry-After"))
        try:
            document = {"status": status, **json.loads(body)}
            return problem_from_document(document, headers.get("X-Request-ID"), retry_after)
        except (ValueError, KeyError, TypeError, AttributeError):
            return NotThisService(f"{url} answered {status} with a malformed problem document")
    target = headers.get("Location")
    if target and 300 <= status < 400:
        redirect = f"a redirect to {one_line(target)}: use that URL instead"
        return NotThisService(f"{url} answered {status}, {redirect}")
    first_line = next(iter(body.decode(errors="replace").splitlines()), "")
    got = one_line(f"{content_type or 'no Content-Type'}: {first_line}")
    expected = f"expected 200 or {PROBLEM_TYPE}, got {status} with {got}"
    return NotThisService(f"{url} is not a MobileSAM service: {expected}")


def parse_retry_after(header: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, or None if it is missing or a date."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


@contextlib.contextmanager
def expect_valid_answer(url: str) -> Iterator[None]:
    """Turn errors from missing or malformed fields of an answer into `NotThisService`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise NotThisService(one_line(f"{url} sent an unexpected answer: {reason}")) from error


def parse_info(body: bytes) -> Info:
    """Parse the answer of `GET /info`.

    Call the parsers inside `expect_valid_answer`, which converts their errors.
    """
    document = _parse_object(body)
    limits = document["limits"]
    encode_s = document.get("encode_s")
    return Info(
        version=str(document["version"]),
        weights=None if document["weights"] is None else _weights(document["weights"]),
        engine=None if document["engine"] is None else _engine(document["engine"]),
        key_needed=bool(document["key_needed"]),
        local_decoding=bool(document.get("local_decoding")),
        max_body_bytes=int(limits["max_body_bytes"]),
        max_image_pixels=int(limits["max_image_pixels"]),
        max_objects=int(limits["max_objects"]),
        model_versions=tuple(int(version) for version in document["model_versions"]),
        loaded=tuple(_loaded(entry) for entry in document.get("loaded", [])),
        encode_s=None if encode_s is None else float(encode_s),
    )


def _loaded(document: Mapping[str, Any]) -> Loaded:
    descriptor = document["descriptor"]
    return Loaded(
        version=int(document["version"]),
        weights=_weights(document["weights"]),
        engine=_engine(document["engine"]),
        squashes=descriptor["resize"] == "squash",
        prompts=tuple(str(kind) for kind in descriptor["prompts"]),
    )


def parse_embedding(body: bytes, file: bytes) -> Embedding:
    """Parse the answer of `POST /embed` and attach the image file to it."""
    return Embedding(**_image_fields(_parse_object(body)), file=file)


def parse_segmentations(
    content_type: str, body: bytes, count: int, photo: Photo
) -> list[Segmentation]:
    """Parse the answer of `POST /mobile_sam` into the best mask of each object.

    Args:
        content_type: `Content-Type` of the answer.
        body: body of the answer.
        count: number of objects that were asked for.
        photo: returns the image's pixels.
    """
    parts = parse_multipart(content_type, body)
    result = _parse_object(parts["result"])
    rles = json.loads(parts["mask"])
    if not isinstance(rles, list):
        rles = [rles]  # a single mask is no list
    picture = parts.get("segmented_image")
    if picture is not None and not picture.startswith(PNG):
        raise ValueError("segmented_image is not a PNG file")
    image = _image_fields(result)
    clipped = list(map(str, result.get("clipped", [])))
    candidates_by_object: dict[int, list[Segmentation]] = {}
    for mask, rle in zip(result["masks"], rles, strict=True):
        number = int(mask["object"])
        candidates = candidates_by_object.setdefault(number, [])
        candidates.append(
            Segmentation(
                **image,
                photo=photo,
                candidate_index=len(candidates),
                rle=_rle(rle, image),
                score=float(mask["score"]),
                area=int(mask["area"]),
                box_xyxy=_four_ints(mask["box"]),
                low_res_mask=parse_logits(mask["low_res_mask"]) if "low_res_mask" in mask else None,
                clipped=_fields_of_object(clipped, number),
            )
        )
    numbers = sorted(candidates_by_object)
    if numbers != list(range(count)):
        raise ValueError(f"expected masks of objects 0 to {count - 1}, got {numbers}")
    return [best_first(candidates_by_object[number], picture) for number in numbers]


def _fields_of_object(names: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the fields of an object's prompt, such as `box`, and those of the whole request.

    Args:
        names: paths of fields, such as `prompts[1].box` or `region`.
        number: number of the object.
    """
    prefix = f"prompts[{number}]."
    fields = []
    for name in names:
        if name.startswith(prefix):
            fields.append(name.removeprefix(prefix))
        elif not name.startswith("prompts["):
            fields.append(name)
    return tuple(fields)


def best_first(candidates: Sequence[Segmentation], picture: bytes | None = None) -> Segmentation:
    """Return the best mask of an object, with all as its candidates if there are several."""
    by_score = sorted(candidates, key=lambda candidate: -candidate.score)
    all_candidates = tuple(by_score) if len(by_score) > 1 else ()
    return dataclasses.replace(by_score[0], picture_png=picture, candidates=all_candidates)


def parse_everything(document: Mapping[str, Any], photo: Photo) -> Everything:
    """Parse the `result` in the last line of the answer of `POST /everything`."""
    image = _image_fields(document)
    records = []
    for record in document["masks"]:
        x, y, width, height = _four_ints(record["bbox"])
        records.append(
            Record(
                photo=photo,
                rle=_rle(record["segmentation"], image),
                area=int(record["area"]),
                score=float(record["predicted_iou"]),
                box_xyxy=(x, y, x + width, y + height),
                stability_score=float(record["stability_score"]),
                point_coords=tuple((float(x), float(y)) for x, y in record["point_coords"]),
                crop_box=_four_ints(record["crop_box"]),
            )
        )
    return Everything(**image, masks=records, photo=photo)


def parse_progress_line(
    line: bytes, request_id: str | None, photo: Photo
) -> tuple[int, int, Everything | None]:
    """Parse a line of the answer of `POST /everything`.

    Returns:
        Steps done, total steps and, in the last line, the result.

    Raises:
        Problem: the service failed after the answer had begun.
    """
    step = _parse_object(line)
    if "problem" in step:
        raise problem_from_document(step["problem"], request_id)
    result = parse_everything(step["result"], photo) if "result" in step else None
    return int(step["done"]), int(step["total"]), result


def parse_multipart(content_type: str, body: bytes) -> dict[str, bytes]:
    """Return the parts of a body by name, in their original order."""
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary:
        got = content_type or "no Content-Type"
        raise ValueError(f"expected multipart/form-data with a boundary, got {got}")
    # Not parsed by `email`, which would search the pictures for line ends.
    preamble, *pieces = (LINE_END + body).split(LINE_END + b"--" + boundary.encode())
    if preamble or not pieces or not pieces[-1].startswith(b"--"):
        expected = "expected a multipart body with a closing boundary"
        raise ValueError(f"{expected}, got {len(body)} bytes without one")
    parts: dict[str, bytes] = {}
    for piece in pieces[:-1]:
        headers, blank_line, data = piece.removeprefix(LINE_END).partition(2 * LINE_END)
        name = BytesParser().parsebytes(headers).get_param("name", header="Content-Disposition")
        if not blank_line or not isinstance(name, str):
            raise ValueError("a part of the multipart body has no name")
        parts[name] = data
    return parts


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        raise ValueError(f"expected JSON, got {body[:100].decode(errors='replace')!r}") from None
    if not isinstance(document, dict):
        raise TypeError(f"expected a JSON object, got {type(document).__name__}")
    return document


def _image_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "image_id": str(document["image_id"]),
        "width": int(document["width"]),
        "height": int(document["height"]),
        "orientation": int(document["orientation"]) if "orientation" in document else None,
        "sample_range": _two_ints(document["range"]) if "range" in document else None,
        "weights": _weights(document["weights"]),
        "engine": _engine(document["engine"]),
        "model_version": int(document["model_version"]),
        "region": _four_ints(document["region"]) if "region" in document else None,
    }


def _weights(document: Mapping[str, Any]) -> Weights:
    return Weights(
        name=str(document["name"]),
        sha256=str(document["sha256"]),
        trained=bool(document["trained"]),
        note=str(document["note"]),
    )


def _engine(document: Mapping[str, Any]) -> Engine:
    return Engine(str(document["encoder"]), str(document["decoder"]))


def _rle(document: Mapping[str, Any], image: Mapping[str, Any]) -> Rle:
    rle = Rle(size=[int(side) for side in document["size"]], counts=str(document["counts"]))
    if rle["size"] != [image["height"], image["width"]]:
        expected = f"expected a mask of {image['height']} x {image['width']} pixels"
        raise ValueError(f"{expected}, got {rle['size']}")
    return rle


def _four_ints(numbers: Any) -> tuple[int, int, int, int]:
    first, second, third, fourth = map(int, numbers)
    return first, second, third, fourth


def _two_ints(numbers: Any) -> tuple[int, int]:
    first, second = map(int, numbers)
    return first, second


def parse_logits(text: str) -> npt.NDArray[np.float32]:
    """Return the logits of a `low_res_mask` or `mask_input`, (256, 256) float32."""
    array = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    if array.shape != MASK_SHAPE or array.dtype != np.float32:
        expected = f"expected a low_res_mask of {MASK_SHAPE} float32"
        raise ValueError(f"{expected}, got {array.dtype} of shape {array.shape}")
    low_res_mask: npt.NDArray[np.float32] = array
    return low_res_mask
