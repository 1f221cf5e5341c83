"""Bodies of the corpus that are JSON with unknown or invalid fields."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.fuzz.body_parts import FLOAT32, IMAGE, PROMPT, OddBody, around, body, npy


def wrong_fields() -> dict[str, OddBody]:
    """Return JSON documents that are not valid requests."""
    documents = {
        "list": b"[]",
        "null": b"null",
        "true": b"true",
        "number": b"1e5",
        "string": b'"a"',
        "lists": b"[[[]]]",
    }
    found = {f"document-{name}": OddBody(data, 422, "body") for name, data in documents.items()}
    texts = {
        "nan": ("pos_coords[0][0]", b'"pos_coords": [[NaN, 1]]'),
        "infinity": ("pos_coords[0][1]", b'"pos_coords": [[1, Infinity]]'),
        "minus-infinity": ("box[0]", b'"box": [-Infinity, 0, 1, 1]'),
        "number-out-of-range": ("pos_coords[0][0]", b'"pos_coords": [[1e400, 1]]'),
        "integer-of-4000-digits": ("labels[0]", b'"labels": [' + b"9" * 4_000 + b"]"),
        "float-of-4000-digits": ("pos_coords[0][0]", b'"pos_coords": [[' + b"9" * 4_000 + b".5, 1]]"),
        "key-twice": ("input_image", b'"box": [0, 0, 1, 1], "input_image": 5'),
        "key-of-zeros": ("\\x00\\x00", b'"\\u0000\\u0000": 1'),
        "key-with-a-line-break": ("a\\nb", b'"a\\nb": 1'),
        "key-empty": ('""', b'"": 1'),
        "key-that-turns-around": ("\\u202eabc", b'"\\u202eabc": 1'),
        "key-of-3000": ("k" * 80 + "... (3000 characters)", b'"' + b"k" * 3_000 + b'": 1'),
        "hundred-keys": ("k0", b", ".join(b'"k%d": 1' % number for number in range(100))),
        "lists-150-deep": ("pos_coords[0][0]", b'"pos_coords": ' + b"[" * 150 + b"]" * 150),
        "prototype": ("__proto__", b'"__proto__": {"box": [0, 0, 1, 1]}'),
    }
    found |= {name: OddBody(around(text), 422, field) for name, (field, text) in texts.items()}
    values: dict[str, tuple[str, dict[str, Any]]] = {
        "prompt-missing": ("pos_coords", {"pos_coords": None}),
        "prompt-empty": ("pos_coords", {"pos_coords": []}),
        "points-object": ("pos_coords", {"pos_coords": {"x": 1, "y": 1}}),
        "points-flat": ("pos_coords[0]", {"pos_coords": [1, 1]}),
        "points-of-three": ("pos_coords[0]", {"pos_coords": [[1, 1, 1]]}),
        "points-of-one": ("pos_coords[0]", {"pos_coords": [[1]]}),
        "points-text": ("pos_coords[0][0]", {"pos_coords": [["1", "1"]]}),
        "points-true": ("pos_coords[0][0]", {"pos_coords": [[True, False]]}),
        "points-null": ("pos_coords[0]", {"pos_coords": [None]}),
        "points-of-millions": ("pos_coords[0][0]", {"pos_coords": [[1e7, -1e7]]}),
        "points-300": ("pos_coords", {"pos_coords": [[1, 1]] * 300}),
        "labels-too-few": ("labels", {"labels": []}),
        "labels-too-many": ("labels", {"labels": [1, 1]}),
        "labels-text": ("labels[0]", {"labels": ["1"]}),
        "labels-true": ("labels[0]", {"labels": [True]}),
        "labels-fraction": ("labels[0]", {"labels": [1.5]}),
        "labels-minus-1": ("labels[0]", {"labels": [-1]}),
        "labels-2-to-the-64": ("labels[0]", {"labels": [2**64]}),
        "labels-half-a-box": ("labels", {"labels": [2]}),
        "box-of-three": ("box", {"box": [0, 0, 1]}),
        "box-inside-out": ("box", {"box": [1, 1, 0, 0]}),
        "box-of-nothing": ("box", {"box": [1, 1, 1, 1]}),
        "box-text": ("box", {"box": "0,0,1,1"}),
        "box-and-its-labels": ("box", {"pos_coords": [[0, 0], [2, 1]], "labels": [2, 3], "box": [0, 0, 2, 1]}),
        "prompts-empty": ("prompts", {"prompts": [], "pos_coords": None}),
        "prompts-object": ("prompts", {"prompts": {}, "pos_coords": None}),
        "prompts-of-nothing": ("prompts[1].pos_coords", {"prompts": [PROMPT, {}], "pos_coords": None}),
        "prompts-in-prompts": ("prompts[0].prompts", {"prompts": [{"prompts": [PROMPT]}], "pos_coords": None}),
        "prompts-beside-a-prompt": ("pos_coords", {"prompts": [PROMPT]}),
        "prompts-300": ("prompts", {"prompts": [PROMPT] * 300, "pos_coords": None}),
        "format-unknown": ("mask_format", {"mask_format": "bmp"}),
        "format-number": ("mask_format", {"mask_format": 1}),
        "style-list": ("segmented_image", {"segmented_image": ["overlay"]}),
        "multimask-text": ("multimask_output", {"multimask_output": "true"}),
        "multimask-1": ("multimask_output", {"multimask_output": 1}),
        "low-res-mask-object": ("low_res_mask", {"low_res_mask": {}}),
        "field-of-another-path": ("points_per_side", {"points_per_side": 4}),
    }
    found |= {name: OddBody(body(**fields), 422, field) for name, (field, fields) in values.items()}
    return {f"mobile_sam/{name}": odd for name, odd in found.items()}


def wrong_images() -> dict[str, OddBody]:
    """Return bodies with an invalid image or image id."""
    values: dict[str, Any] = {
        "empty": "",
        "number": 5,
        "list": [IMAGE],
        "bytes": list(base64.b64decode(IMAGE)[:20]),
        "object": {"$ref": "file:///etc/passwd"},
        "not-base64": "!!!!",
        "padding-alone": "====",
        "padding-inside": "AA==AAAA",
        "padding-missing": IMAGE.rstrip("=") + "AA",
        "one-character": "A",
        "url-safe": "-_-_",
        "not-ascii": "AAAAé",
        "not-ascii-digits": "٠١٢٣",
        "zeros": "AAAA\0\0\0\0",
        "data-url-alone": "data:",
        "data-url-of-nothing": "data:image/png;base64,",
        "data-url-not-base64": "data:image/png,abc",
        "data-url-without-comma": "data:image/png;base64",
        "data-url-of-2000": "data:" + "x" * 2000 + ",AAAA",
        "address": "http://127.0.0.1:9/picture.png",
        "path": "/etc/passwd",
    }
    found = {name: OddBody(body(input_image=value), 422, "input_image") for name, value in values.items()}
    found |= {
        "missing": OddBody(json.dumps(PROMPT).encode(), 422, "input_image"),
        "null": OddBody(json.dumps({"input_image": None, **PROMPT}).encode(), 422, "input_image"),
        "and-id": OddBody(body(image_id="a" * 64), 422, "input_image"),
        "id-of-200": OddBody(body(input_image=None, image_id="x" * 200), 422, "image_id"),
        "id-number": OddBody(body(input_image=None, image_id=7), 422, "image_id"),
    }
    return {f"mobile_sam/image-{name}": odd for name, odd in found.items()}


def wrong_masks() -> dict[str, OddBody]:
    """Return bodies with an invalid `mask_input`."""
    values = {
        "empty": "",
        "no-numpy": "AAAA",
        "magic-alone": base64.b64encode(b"\x93NUMPY").decode(),
        "version-9": npy(FLOAT32, version=b"\x09\0"),
        "version-3": npy(FLOAT32, version=b"\3\0"),
        "header-cut-off": npy(FLOAT32)[:40],
        "header-no-source": npy("{"),
        "header-calls": npy("__import__('os').system('id')"),
        "header-unhashable": npy("{[]: 1}"),
        "header-deep": npy("(" * 5_000),
        "header-many-minuses": npy("-" * 5_000 + "1"),
        "header-of-python-2": npy(FLOAT32.replace("256", "256L")),
        "header-with-an-escape": npy(FLOAT32.replace("<f4", "\\d<f4")),
        "values-missing": npy(FLOAT32),
        "objects": npy(FLOAT32.replace("<f4", "|O")),
        "big-endian": npy(FLOAT32.replace("<f4", ">f4")),
        "float64": npy(FLOAT32.replace("<f4", "<f8")),
        "of-8-gigabytes": npy(FLOAT32.replace("(256, 256)", "(2000000000,)")),
        "of-minus-1": npy(FLOAT32.replace("(256, 256)", "(-1, 256)")),
        "of-many-dimensions": npy(FLOAT32.replace("(256, 256)", "(" + "1," * 500 + ")")),
        "in-fortran-order": npy(FLOAT32.replace("False", "True")),
        "pickle": base64.b64encode(b"\x80\x04cos\nsystem\n(S'id'\ntR.").decode(),
        "archive": base64.b64encode(b"PK\x05\x06" + bytes(18)).decode(),
    }
    return {f"mobile_sam/mask-{name}": OddBody(body(mask_input=v), 422, "mask_input") for name, v in values.items()}
