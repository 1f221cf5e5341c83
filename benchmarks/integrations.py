"""Clicks in the languages of annotation tools, compared with the same clicks on `/mobile_sam`.

Each click sends the file of an image that is known, as the tools do.

python -m benchmarks.integrations
"""

import argparse
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pybase64

from benchmarks.figures import interleaved, ratio_table
from benchmarks.goals import as_list, ratio_goals
from benchmarks.load import Connection, Request
from benchmarks.photo import CLICK, photo
from benchmarks.report import machine
from benchmarks.service import OFFICIAL, prepare, running
from utils.integrations import ADAPTERS

X, Y = CLICK
MAX_RATIO = 1.3
"""Goal of each click's median ratio to its baseline."""
BASELINES = {mask_format: f"/mobile_sam, {mask_format}" for mask_format in ("rle", "polygon")}
"""Names of the service's own clicks, by mask format."""


@dataclass(frozen=True)
class Click:
    """Click of a tool."""

    name: str
    path: str
    body: Mapping[str, Any]
    image_field: Callable[[str], Mapping[str, Any]]
    """Takes base64 of the file, returns the body's fields with it."""
    mask_format: str
    """Mask format that the adapter asks for, the same as its baseline."""
    success: bytes
    """Part of each answer with a mask: some tools have errors of status 200."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, image: str) -> Request:
        """Return the request with an image in base64."""
        fields = {**self.body, **self.image_field(image)}
        return Request(self.path, {"Content-Type": "application/json", **self.headers}, orjson.dumps(fields))


def _own(mask_format: str) -> Click:
    fields = {"pos_coords": [CLICK], "mask_format": mask_format, "segmented_image": "none"}
    return Click(
        BASELINES[mask_format],
        "/mobile_sam",
        fields,
        lambda image: {"input_image": image},
        mask_format,
        b'"masks":[{',
        {"Accept": "application/json"},
    )


def _roboflow(mask_format: str) -> Click:
    prompts = {"prompts": [{"points": [{"x": X, "y": Y, "positive": True}]}]}
    return Click(
        f"Roboflow, {mask_format}",
        "/sam2/segment_image",
        {"api_key": None, "prompts": prompts, "multimask_output": False, "format": mask_format},
        lambda image: {"image": {"type": "base64", "value": image}},
        "rle",
        b'"predictions":[{',
    )


CLICKS = (
    _roboflow("rle"),
    _roboflow("json"),
    Click(
        "CVAT",
        "/api/function_invocations",
        {"pos_points": [CLICK], "neg_points": [], "obj_bbox": []},
        lambda image: {"image": image},
        "rle",
        b'"shapes":[{',
        {"x-nuclio-function-name": "mobile-sam", "x-nuclio-path": "/"},
    ),
    Click(
        "X-AnyLabeling",
        "/v1/predict",
        {
            "model": "mobile_sam",
            "params": {
                "current_task": "polygon",
                "conf_threshold": 0.0,
                "iou_threshold": 0.0,
                "epsilon_factor": 0.001,
                "marks": [{"type": "point", "data": CLICK, "label": 1}],
            },
        },
        lambda image: {"image": f"data:image/jpeg;base64,{image}"},
        "polygon",
        b'"shapes":[{',
    ),
    Click(
        "samapi",
        "/sam/",
        {"type": "vit_t", "point_coords": [CLICK], "point_labels": [1], "multimask_output": False},
        lambda image: {"b64img": image},
        "polygon",
        b'"Feature"',
    ),
)
"""Clicks of tools that send the image; Label Studio names a URL instead."""


def main() -> None:
    """Run the command: measure with the official weights and print a table, and the goals that are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="measured rounds (60)")
    rounds = parser.parse_args().rounds
    served = {path for adapter in ADAPTERS for path in adapter.work}
    clicks = [*map(_own, BASELINES), *(click for click in CLICKS if click.path in served)]
    image = pybase64.b64encode(photo()).decode()
    with running(prepare(OFFICIAL)) as service, closing(Connection(service.port)) as connection:
        arms = {click.name: partial(connection.ask, click.request(image), click.success) for click in clicks}
        times = interleaved(arms, rounds, "clicks")
        encoded = service.embeddings()["encoded"]
    assert encoded == 1, f"{encoded} images were encoded"
    baselines = {click.name: BASELINES[click.mask_format] for click in clicks if click.path != "/mobile_sam"}
    print(machine())
    print(f"The file has {len(photo()):,} bytes; times include the client's.")
    print(ratio_table(times, baselines))
    print(as_list(ratio_goals(times, baselines, MAX_RATIO)))


if __name__ == "__main__":
    main()
