"""The schemas of requests, generated from their models, and of responses."""

from typing import Any

from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest

Schema = dict[str, Any]
REFERENCES = "#/components/schemas/{model}"


def reference(name: str) -> Schema:
    """Return a reference to the schema of that name."""
    return {"$ref": REFERENCES.format(model=name)}


def schemas(*, admin: bool) -> dict[str, Schema]:
    """Return all schemas by name; schemas of admin operations only if `admin`."""
    return {**_requests(), **RESPONSES, **(ADMIN_RESPONSES if admin else {})}


def _requests() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for model in (SegmentRequest, EmbedRequest, EverythingRequest):
        schema = model.model_json_schema(ref_template=REFERENCES)
        found |= {model.__name__: schema, **schema.pop("$defs", {})}
    return {name: _without_titles(schema) for name, schema in found.items()}


def _without_titles(schema: Schema) -> Schema:
    """Remove pydantic's titles, which repeat the names of models and fields."""
    fields = {
        name: {key: field[key] for key in field if key != "title"} for name, field in schema["properties"].items()
    }
    return {**{key: schema[key] for key in schema if key != "title"}, "properties": fields}


def _object(description: str, fields: dict[str, Schema]) -> Schema:
    """Return an object schema; fields whose name ends with `?` are optional."""
    required = [name for name in fields if not name.endswith("?")]
    properties = {name.removesuffix("?"): schema for name, schema in fields.items()}
    return {"type": "object", "description": description, "required": required, "properties": properties}


def binary(description: str) -> Schema:
    """Return the schema of a file."""
    return _value("string", description, format="binary")


def _value(kind: str, description: str, **bounds: Any) -> Schema:
    return {"type": kind, "description": description, **bounds}


def _numbers(description: str, count: int, kind: str = "integer") -> Schema:
    return _value("array", description, items={"type": kind}, minItems=count, maxItems=count)


def _list(description: str, items: Schema) -> Schema:
    return _value("array", description, items=items)


IMAGE: dict[str, Schema] = {
    "image_id": _value("string", "id to send later in place of `input_image`"),
    "width": _value("integer", "pixels of the displayed image", minimum=1),
    "height": _value("integer", "pixels of the displayed image", minimum=1),
    "weights": reference("Weights"),
    "engine": reference("Engine"),
    "model_version": _value("integer", "version that was used", minimum=1),
}

MASK: dict[str, Schema] = {
    "object": _value("integer", "index of the object in the request, from 0", minimum=0),
    "score": _value("number", "the model's estimate of the mask's IoU, sometimes above 1"),
    "area": _value("integer", "area of the mask in pixels", minimum=0),
    "box": _numbers("`[x0, y0, x1, y1]` around the mask in pixels; x1 and y1 are exclusive", 4),
    "low_res_mask?": _value("string", "if requested, to send as `mask_input`"),
}

RESPONSES: dict[str, Schema] = {
    "Weights": _object(
        "Origin of the model's weights",
        {
            "name": _value("string", "`official`, `builtin`, `random`, or the name of a checkpoint"),
            "sha256": _value("string", "SHA-256 in hexadecimal"),
            "trained": _value("boolean", "false: random weights, for tests"),
            "note": _value("string", "description"),
        },
    ),
    "Engine": _object(
        "Runtime and precision of the networks, such as `openvino bf16` or `onnxruntime f32`",
        {
            "encoder": _value("string", "such as `openvino bf16`"),
            "decoder": _value("string", "such as `onnxruntime f32`"),
        },
    ),
    "Image": _object("An encoded image", IMAGE),
    "Segmentation": _object(
        "The parts of the response, in this order",
        {
            "mask": binary(
                "the masks in `mask_format`: `application/octet-stream` for `npy`, `image/png` for `png`, else "
                "`application/json`"
            ),
            "segmented_image?": binary("the picture; absent if `segmented_image` is `none`"),
            "result": reference("Result"),
        },
    ),
    "Document": _object(
        "Masks and picture in one document",
        {
            **IMAGE,
            "masks": _list(
                "one entry per mask, by object, candidates together",
                reference("MaskWithContent"),
            ),
            "segmented_image?": _value("string", "base64 of the picture, if requested"),
        },
    ),
    "Result": _object(
        "An image and the properties of its masks",
        {
            **IMAGE,
            "masks": _list(
                "one entry per mask, in the order of the `mask` part: by object, candidates together",
                reference("Mask"),
            ),
        },
    ),
    "Mask": _object("Properties of a mask", MASK),
    "MaskWithContent": _object(
        "A mask, in the format of `mask_format`",
        {
            **MASK,
            "rle?": reference("RunLengths"),
            "polygon?": {
                "type": "array",
                "description": "`[[outer ring, hole, ...], ...]`, each ring a list of `[x, y]`",
                "items": {"type": "array", "items": {"type": "array", "items": _numbers("`[x, y]`", 2, "number")}},
            },
            "png?": _value("string", "base64 of a 1-bit PNG"),
            "json?": _list("rows of 0 and 1, `[H, W]`", {"type": "array", "items": {"type": "integer"}}),
        },
    ),
    "Everything": _object(
        "An image and all of its masks",
        {
            **IMAGE,
            "masks": _list("records as of Segment Anything", reference("Record")),
        },
    ),
    "Record": _object(
        "An automatic mask",
        {
            "segmentation": reference("RunLengths"),
            "area": _value("integer", "area of the mask in pixels", minimum=0),
            "bbox": _numbers("`[x, y, width, height]` around the mask in pixels", 4),
            "predicted_iou": _value("number", "the model's estimate of the mask's IoU"),
            "point_coords": _list("the grid point, in pixels", _numbers("`[x, y]`", 2, "number")),
            "stability_score": _value("number", "IoU between the mask at a raised and at a lowered threshold"),
            "crop_box": _numbers("`[x, y, width, height]` of the crop, in pixels", 4),
        },
    ),
    "RunLengths": _object(
        "A mask as COCO compressed RLE, as read by pycocotools",
        {
            "size": _numbers("`[H, W]` in pixels", 2),
            "counts": _value("string", "compressed run lengths in column-major order, as of pycocotools"),
        },
    ),
    "Progress": _object(
        "Progress; the last line has the result",
        {
            "done": _value("integer", "completed batches of points", minimum=0),
            "total": _value("integer", "all batches", minimum=0),
            "result?": reference("Everything"),
        },
    ),
    "Failure": _object(
        "The last line if the work fails",
        {"problem": reference("Problem")},
    ),
    "Problem": _object(
        "An RFC 9457 problem document",
        {
            "type": _value("string", "`urn:mobile-sam:` and the problem's name", format="uri"),
            "title": _value("string", "summary of the problem type"),
            "status": _value("integer", "HTTP status of the response", minimum=400, maximum=599),
            "detail": _value("string", "explanation of this occurrence"),
            "errors?": _list("the offending fields, if any", reference("FieldError")),
        },
    ),
    "FieldError": _object(
        "An offending field",
        {
            "field": _value("string", "path of the field, such as `pos_coords[1][0]`"),
            "expected": _value("string", "the expected value"),
            "got": _value("string", "the received value"),
        },
    ),
    "Info": _object(
        "Version, model and limits of the service",
        {
            "version": _value("string", "version of the service"),
            "weights": {
                "anyOf": [reference("Weights"), {"type": "null"}],
                "description": "weights of the newest loaded version",
            },
            "engine": {
                "anyOf": [reference("Engine"), {"type": "null"}],
                "description": "engine of the newest loaded version",
            },
            "triton": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "description": "version of Triton; null while it starts",
            },
            "key_needed": _value("boolean", "whether inference requires an API key"),
            "limits": reference("Limits"),
            "model_versions": _list(
                "loaded versions, ascending; the last is the default",
                _value("integer", "a version", minimum=1),
            ),
        },
    ),
    "Limits": _object(
        "Limits of a request",
        {
            "max_body_bytes": _value("integer", "bytes of a request body", minimum=1),
            "max_image_pixels": _value("integer", "pixels of an image", minimum=1),
            "max_objects": _value("integer", "objects in `prompts`", minimum=1),
        },
    ),
}

ADMIN_RESPONSES: dict[str, Schema] = {
    "Models": _object(
        "State of the models in Triton",
        {"models": _list("one entry per version that is or was loaded", reference("Model"))},
    ),
    "Model": _object(
        "A version of a model",
        {
            "name": _value("string", "name of the model"),
            "version": {
                "type": ["integer", "null"],
                "description": "null if it was never loaded",
                "minimum": 1,
            },
            "state": _value("string", "`READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty if it was never loaded"),
            "reason": _value("string", "why the version is unavailable; else empty"),
        },
    ),
}
