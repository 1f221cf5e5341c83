"""Schemas: of requests, by their models, and of answers."""

from __future__ import annotations

from typing import Any

from utils.schemas import EmbedRequest, EverythingRequest, SegmentRequest

Schema = dict[str, Any]
REFERENCES = "#/components/schemas/{model}"


def reference(name: str) -> Schema:
    """What stands for the schema of that name."""
    return {"$ref": REFERENCES.format(model=name)}


def schemas(*, admin: bool = False) -> dict[str, Schema]:
    """All schemas that operations refer to, by name; those of operators' operations too where there are such."""
    return {**_requests(), **ANSWERS, **(OPERATORS if admin else {})}


def _requests() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for model in (SegmentRequest, EmbedRequest, EverythingRequest):
        schema = model.model_json_schema(ref_template=REFERENCES)
        found |= {model.__name__: schema, **schema.pop("$defs", {})}
    return {name: _without_titles(schema) for name, schema in found.items()}


def _without_titles(schema: Schema) -> Schema:
    """Pydantic gives models and fields titles, which say no more than their names."""
    fields = {
        name: {key: field[key] for key in field if key != "title"} for name, field in schema["properties"].items()
    }
    return {**{key: schema[key] for key in schema if key != "title"}, "properties": fields}


def _object(description: str, properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """An object; what is not `optional` is required."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "description": description, "required": required, "properties": properties}


def _value(kind: str, description: str, **bounds: Any) -> Schema:
    return {"type": kind, "description": description, **bounds}


def _numbers(description: str, count: int, kind: str = "integer") -> Schema:
    return _value("array", description, items={"type": kind}, minItems=count, maxItems=count)


def _list(description: str, items: Schema) -> Schema:
    return _value("array", description, items=items)


IMAGE: dict[str, Schema] = {
    "image_id": _value("string", "names the image in later requests, in place of `input_image`"),
    "width": _value("integer", "of the image as displayed, in pixels", minimum=1),
    "height": _value("integer", "of the image as displayed, in pixels", minimum=1),
    "weights": reference("Weights"),
    "engine": reference("Engine"),
    "model_version": _value("integer", "the version of the models that answered", minimum=1),
}

ANSWERS: dict[str, Schema] = {
    "Weights": _object(
        "Where the model's weights come from",
        {
            "name": _value("string", "`official`, `builtin`, `random`, or a checkpoint's"),
            "sha256": _value("string", "of the weights, in hexadecimal"),
            "trained": _value("boolean", "false: for tests; the masks mean nothing"),
            "note": _value("string", "a sentence for people"),
        },
    ),
    "Engine": _object(
        "What ran the networks, and in which precision: `openvino bf16`, `onnxruntime f32`, ...",
        {"encoder": _value("string", "the image encoder's"), "decoder": _value("string", "the mask decoder's")},
    ),
    "Image": _object("An image that the service has encoded", IMAGE),
    "Segmentation": _object(
        "The parts of an answer",
        {
            "mask": _value(
                "string",
                "the masks, encoded as `mask_format` says: `application/json` for `json`, `rle` and `polygon`, "
                "`application/octet-stream` for `npy`, `image/png` for `png`",
                format="binary",
            ),
            "segmented_image": _value(
                "string",
                "the objects drawn on the image or cut out of it, a PNG; left out where `segmented_image` is `none`",
                format="binary",
            ),
            "result": reference("Result"),
        },
        optional=("segmented_image",),
    ),
    "Result": _object(
        "An image, and what is known of each mask",
        {
            **IMAGE,
            "masks": _list(
                "one per mask, in the order of the `mask` part: objects as they stood in the request, candidates of "
                "one together",
                reference("Mask"),
            ),
        },
    ),
    "Mask": _object(
        "What is known of a mask",
        {
            "object": _value("integer", "which of the request's objects the mask is of, from 0", minimum=0),
            "score": _value("number", "the model's own estimate of the mask's IoU"),
            "area": _value("integer", "pixels of the mask", minimum=0),
            "box": _numbers("`[x0, y0, x1, y1]` around the mask, in pixels; x1 and y1 lie one pixel outside of it", 4),
            "low_res_mask": _value(
                "string",
                "where asked for: base64 of a NumPy file, (256, 256) float32 logits; to send as `mask_input`",
            ),
        },
        optional=("low_res_mask",),
    ),
    "Everything": _object(
        "An image, and everything on it",
        {**IMAGE, "masks": _list("records as of Segment Anything's automatic mask generator", reference("Record"))},
    ),
    "Record": _object(
        "A mask that the service found by itself",
        {
            "segmentation": reference("RunLengths"),
            "area": _value("integer", "pixels of the mask", minimum=0),
            "bbox": _numbers("`[x, y, width, height]` around the mask, in pixels", 4),
            "predicted_iou": _value("number", "the model's own estimate of the mask's IoU"),
            "point_coords": _list("the click that found it, in pixels", _numbers("`[x, y]`", 2, "number")),
            "stability_score": _value("number", "IoU of the mask at a higher and at a lower threshold"),
            "crop_box": _numbers("`[x, y, width, height]` of the crop it was found on, in pixels", 4),
        },
    ),
    "RunLengths": _object(
        "A mask as COCO's compressed run lengths, as pycocotools reads them",
        {
            "size": _numbers("`[H, W]`, in pixels", 2),
            "counts": _value("string", "lengths of runs, column by column"),
        },
    ),
    "Progress": _object(
        "How far the work is; with the last comes the result",
        {
            "done": _value("integer", "batches of clicks that are done", minimum=0),
            "total": _value("integer", "batches of clicks in all", minimum=0),
            "result": reference("Everything"),
        },
        optional=("result",),
    ),
    "Failure": _object(
        "The last line, in place of the result, where something goes wrong after the first",
        {"problem": reference("Problem")},
    ),
    "Problem": _object(
        "An RFC 9457 problem document",
        {
            "type": _value("string", "`urn:mobile-sam:` and the problem's name", format="uri"),
            "title": _value("string", "the kind of problem, in words"),
            "status": _value("integer", "the answer's HTTP status", minimum=400, maximum=599),
            "detail": _value("string", "this problem, in words"),
            "errors": _list("the offending fields, where fields are at fault", reference("FieldError")),
        },
        optional=("errors",),
    ),
    "FieldError": _object(
        "An offending field",
        {
            "field": _value("string", "its path, such as `pos_coords[1][0]`"),
            "expected": _value("string", "what it should be"),
            "got": _value("string", "what came"),
        },
    ),
    "Info": _object(
        "What there is to know of the service before a request",
        {
            "version": _value("string", "of the service"),
            "weights": {
                "anyOf": [reference("Weights"), {"type": "null"}],
                "description": "those loaded, of the newest version that answers; null while none does",
            },
            "engine": {"anyOf": [reference("Engine"), {"type": "null"}], "description": "likewise"},
            "key_needed": _value("boolean", "whether requests that cost work need an API key"),
            "limits": reference("Limits"),
            "model_versions": _list(
                "versions of the models that answer now; the last does where a request names none",
                _value("integer", "a version", minimum=1),
            ),
        },
    ),
    "Limits": _object(
        "The most that a request may have",
        {
            "max_body_bytes": _value("integer", "bytes of a request's body", minimum=1),
            "max_image_pixels": _value("integer", "pixels of an image", minimum=1),
            "max_objects": _value("integer", "objects in `prompts`", minimum=1),
        },
    ),
}

OPERATORS: dict[str, Schema] = {
    "Models": _object(
        "What Triton says of its models",
        {"models": _list("one for each version that is loaded, or was", reference("Model"))},
    ),
    "Model": _object(
        "A version of a model",
        {
            "name": _value("string", "of the model"),
            "version": {"type": ["integer", "null"], "description": "null: it was never loaded", "minimum": 1},
            "state": _value("string", "`READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty: it was never loaded"),
            "reason": _value("string", "why it is not available, else empty"),
        },
    ),
}
