"""Bodies of the corpus with their expected responses. The files are in `corpus/bodies`.

Each derives from a valid request on an image of two pixels; its folder is the path for which it is meant.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np

from tests.fuzz.body_parts import IMAGE, OddBody, around, body
from tests.fuzz.odd_fields import wrong_fields, wrong_images, wrong_masks
from tests.fuzz.png_files import png


def odd_bodies() -> dict[str, OddBody]:
    """Return all bodies by name, `PATH/NAME.json`."""
    parts = (_no_json(), wrong_fields(), wrong_images(), wrong_masks(), _right(), _embed(), _everything())
    return {f"{name}.json": odd for part in parts for name, odd in part.items()}


def _no_json() -> dict[str, OddBody]:
    """Return bodies that are rejected before any field is validated."""
    bad = {
        "empty": b"",
        "blank": b" \t\r\n ",
        "zeros": bytes(100),
        "text": b"hello",
        "page": b"<!DOCTYPE html><html></html>",
        "form": b"input_image=AAAA&box=1",
        "cut-off": body()[:-1],
        "cut-off-in-a-string": body()[:20],
        "cut-off-in-an-escape": b'{"input_image": "\\u12',
        "two-documents": body() + body(),
        "trailing-comma": b'{"input_image": "AAAA",}',
        "single-quotes": b"{'input_image': 'AAAA'}",
        "comment": b'{/* */"input_image": "AAAA"}',
        "keys-without-quotes": b'{input_image: "AAAA"}',
        "key-that-is-a-number": b'{1: "AAAA"}',
        "broken-utf-8": b'{"input_image": "\xc3\x28"}',
        "overlong-utf-8": b'{"input_image": "\xc0\xaf"}',
        "utf-8-surrogates": b'{"input_image": "\xed\xa0\x80"}',
        "latin-1": '{"é": 1}'.encode("latin-1"),
        "utf-16": body().decode().encode("utf-16"),
        "utf-32": body().decode().encode("utf-32"),
        "byte-order-mark-twice": b"\xef\xbb\xbf" * 2 + body(),
        "byte-order-mark-alone": b"\xef\xbb\xbf",
        "lone-surrogate": b'{"input_image": "\\ud800"}',
        "lone-surrogate-in-a-key": b'{"\\udc00": 1}',
        "control-character-in-a-string": b'{"input_image": "a\nb"}',
        "zero-in-a-string": b'{"input_image": "a\0b"}',
        "lists-5000-deep": b"[" * 5_000,
        "objects-2000-deep": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
        "integer-of-5000-digits": around(b'"labels": [' + b"9" * 5_000 + b"]"),
        "hexadecimal": around(b'"labels": [0x1]'),
        "leading-zero": around(b'"labels": [01]'),
        "leading-plus": around(b'"labels": [+1]'),
        "word-that-is-none": around(b'"box": undefined'),
        "gzip": b"\x1f\x8b\x08\0" + bytes(30),
        "png": png(np.zeros((2, 2, 3), np.uint16)),
    }
    return {f"mobile_sam/no-json-{name}": OddBody(data, 400, "body") for name, data in bad.items()}


def _right() -> dict[str, OddBody]:
    """Return unusual valid bodies."""
    file = io.BytesIO()
    np.save(file, np.zeros((256, 256), np.float32))
    valid = {
        "plain": body(),
        "byte-order-mark": b"\xef\xbb\xbf" + body(),
        "white-space": b"\n\t " + body().replace(b",", b" ,\r\n") + b"  \n",
        "escapes-everywhere": "".join(f"\\u{ord(c):04x}" if c.isalnum() else c for c in '{"input_image"').encode()
        + body()[len('{"input_image"') :],
        "key-twice-the-last-counts": around(b'"box": "no box", "box": [0, 0, 1, 1]'),
        "null-for-optional": around(b'"box": null, "labels": null, "neg_coords": null, "pos_coords": [[1, 1]]'),
        "coordinates-minus-zero": body(pos_coords=[[-0.0, 0]]),
        "coordinates-tiny": around(b'"pos_coords": [[1e-400, 5e-324]]'),
        "coordinates-of-many-digits": around(b'"pos_coords": [[0.' + b"3" * 3_000 + b", 1E-5]]"),
        "base64-in-lines": body(input_image="\r\n".join(IMAGE[i : i + 8] for i in range(0, len(IMAGE), 8))),
        "data-url": body(input_image=f"data:image/png;base64,{IMAGE}"),
        "data-url-of-another-type": body(input_image=f"DATA:text/html;charset=utf-8;BASE64,{IMAGE}"),
        "negative-points-alone": body(pos_coords=None, neg_coords=[[1, 1]]),
        "box-by-labels": body(pos_coords=[[0, 0], [2, 1]], labels=[2, 3]),
        "points-256": body(pos_coords=[[1, 1]] * 256, mask_format="rle", segmented_image="none"),
        "earlier-mask-of-zeros": body(mask_input=base64.b64encode(file.getvalue()[:128]).decode()),
        "all-formats-polygon": body(mask_format="polygon", segmented_image="cutout", low_res_mask=False),
    }
    found = {name: OddBody(data) for name, data in valid.items()}
    found["earlier-mask-of-zeros"] = OddBody(valid["earlier-mask-of-zeros"], 422, "mask_input")
    return {f"mobile_sam/right-{name}": odd for name, odd in found.items()}


def _embed() -> dict[str, OddBody]:
    """Return bodies for `/embed`."""
    alone = json.dumps({"input_image": IMAGE}).encode()
    return {
        "embed/right-plain": OddBody(alone),
        "embed/right-null-id": OddBody(alone[:-1] + b', "image_id": null}'),
        "embed/empty": OddBody(b"{}", 422, "input_image"),
        "embed/no-json": OddBody(alone[:-1], 400, "body"),
        "embed/prompt": OddBody(body(), 422, "pos_coords"),
        "embed/list": OddBody(b"[" + alone + b"]", 422, "body"),
        "embed/image-not-ascii": OddBody(json.dumps({"input_image": "é" * 2000}).encode(), 422, "input_image"),
        "embed/image-true": OddBody(b'{"input_image": true}', 422, "input_image"),
    }


def _everything() -> dict[str, OddBody]:
    """Return bodies for `/everything`."""
    values: dict[str, Any] = {
        "points_per_side": (0, -1, 65, 1.5, "4", True, None, 2**70),
        "pred_iou_thresh": (-0.1, 1.1, "high", []),
        "stability_score_thresh": (2, {}),
        "stability_score_offset": (0, -1, 21, None),
        "box_nms_thresh": (1.0001, "0.5"),
        "crop_n_layers": (-1, 4, 0.5, None),
        "crop_nms_thresh": (-1, None),
        "crop_overlap_ratio": (1.5, -0.1),
        "crop_n_points_downscale_factor": (0, 17),
        "min_mask_region_area": (-1, 10**10, 1e300),
        "progress": (1, "yes", None),
    }
    found = {}
    for name, wrong in values.items():
        for number, value in enumerate(wrong):
            data = json.dumps({"input_image": IMAGE, name: value}).encode()
            found[f"everything/{name}-{number}"] = OddBody(data, 422, name)
    minimal = {"input_image": IMAGE, "points_per_side": 1}
    right = {
        "plain": minimal,
        "bounds-low": {**minimal, "pred_iou_thresh": 0, "stability_score_thresh": 0, "box_nms_thresh": 0},
        "bounds-high": {**minimal, "pred_iou_thresh": 1, "stability_score_thresh": 1, "stability_score_offset": 20},
        "whole-numbers-as-floats": {**minimal, "crop_overlap_ratio": 1, "crop_nms_thresh": 0},
        "crops-of-two-pixels": {**minimal, "crop_n_layers": 1, "crop_overlap_ratio": 0.0, "min_mask_region_area": 9},
        "progress": {**minimal, "progress": True},
    }
    found |= {f"everything/right-{name}": OddBody(json.dumps(fields).encode()) for name, fields in right.items()}
    found["everything/nan"] = OddBody(around(b'"box_nms_thresh": NaN'), 422, "box_nms_thresh")
    found["everything/infinity"] = OddBody(around(b'"stability_score_offset": 1e999'), 422, "stability_score_offset")
    return found
