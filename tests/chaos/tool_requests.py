"""Valid requests of annotation tools, with the options of `valid_requests.DEFAULTS`."""

from collections.abc import Callable, Mapping
from typing import Any

Clicks = list[list[list[int]]]
"""Points [x, y] of each object."""


Fields = Callable[[Mapping[str, Any], str, Clicks], dict[str, Any]]
"""Function that returns a body's fields, given the options, the image or its id, and the clicks.

The image is the last string of the body.
"""


def headers(chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that CVAT sends; the other tools ignore them."""
    return {
        "x-nuclio-function-name": "mobile-sam" + "-everything" * (chosen["task"] == "everything")
    }


def _box(chosen: Mapping[str, Any], clicks: list[list[int]]) -> list[int]:
    """Return a box [x0, y0, x1, y1] of a quarter of the image that depends on the first click."""
    (x, y), (width, height) = clicks[0], chosen["size"]
    return [x // 2, y // 2, x // 2 + width // 2, y // 2 + height // 2]


def _x_anylabeling(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    marks = [{"type": "point", "data": xy} for xy in clicks[0]]
    marks += [{"type": "rectangle", "data": _box(chosen, each)} for each in clicks]
    params = {"current_task": chosen["task"], "epsilon_factor": 0, "marks": marks}
    return {"model": "mobile_sam", "params": params, "image": image}


def _roboflow_image(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    by_id = chosen["image_source"] == "by id"
    return {"image_id": image} if by_id else {"image": {"type": "base64", "value": image}}


def _sam2(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    everything = chosen["task"] == "everything"
    prompts = [{"points": [{"x": x, "y": y, "positive": True} for x, y in each]} for each in clicks]
    return {
        "prompts": [] if everything else prompts,
        "multimask_output": chosen["multimask_output"],
        "format": "json" if everything and chosen["format"] == "binary" else chosen["format"],
        **_roboflow_image(chosen, image, clicks),
    }


def _sam(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    return {
        "point_coords": clicks[0],
        "point_labels": [1] * len(clicks[0]),
        "format": "binary" if chosen["format"] == "binary" else "json",
        **_roboflow_image(chosen, image, clicks),
    }


def _cvat(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    everything = {"threshold": chosen["thresholds"]} if chosen["task"] == "everything" else {}
    return {"pos_points": clicks[0], "neg_points": [], **everything, "image": image}


def _samapi(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    points = {"point_coords": clicks[0], "point_labels": [1] * len(clicks[0])}
    return {
        "type": "vit_t",
        **points,
        "multimask_output": chosen["multimask_output"],
        "b64img": image,
    }


def _automask(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    fields = {
        name: chosen[name] for name in ("points_per_side", "crop_n_layers", "min_mask_region_area")
    }
    if chosen["thresholds"] is not None:
        fields |= {
            "pred_iou_thresh": chosen["thresholds"],
            "stability_score_thresh": chosen["thresholds"],
        }
    return {"type": "vit_t", **fields, "b64img": image}


def label_config(task: str, nested: int) -> str:
    """Return a labeling configuration with one tag for masks, so many inside one another, and
    three labels for each.
    """
    tag = "PolygonLabels" if task == "polygon" else "BrushLabels"
    name = "everything" if task == "everything" else "masks"
    inside = (
        f"<{tag}>" * nested
        + '<Label value="Object"/>'
        + "<Label/>" * 3 * nested
        + f"</{tag}>" * nested
    )
    masks = f'<{tag} name="{name}" toName="image">{inside}</{tag}>'
    return f'<View><Image name="image" value="$image"/>{masks}</View>'


def _setup(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    return {"schema": label_config(chosen["task"], chosen["nested"])}


def _predict(chosen: Mapping[str, Any], image: str, clicks: Clicks) -> dict[str, Any]:
    width, height = chosen["size"]
    regions = [
        {
            "type": "rectanglelabels",
            "value": {
                "x": 50 * x / width,
                "y": 50 * y / height,
                "width": 50,
                "height": 50,
                "labels": ["Object"],
            },
            "original_width": width,
            "original_height": height,
        }
        for ((x, y), *_) in clicks
        if chosen["task"] != "everything"
    ]
    task = {
        "id": 1,
        "annotations": [{"result": regions}],
        "data": {"image": f"data:;base64,{image}"},
    }
    return {"label_config": label_config(chosen["task"], chosen["nested"]), "tasks": [task]}


TOOL_PATHS: dict[str, Fields] = {
    "/v1/predict": _x_anylabeling,
    "/sam2/segment_image": _sam2,
    "/sam2/embed_image": _roboflow_image,
    "/sam/segment_image": _sam,
    "/sam/embed_image": _roboflow_image,
    "/api/function_invocations": _cvat,
    "/sam/": _samapi,
    "/sam/automask/": _automask,
    "/label-studio/setup": _setup,
    "/label-studio/predict": _predict,
}
"""Paths that work; of several with the same handler, one."""
