"""samapi, which QuPath's extension SAM asks: `/sam/`, `/sam/automask/` and what its dialog needs.

Errors are the service's own: the extension writes them, as they are, into QuPath's log.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import ConfigDict, Field
from starlette.responses import PlainTextResponse

from utils.api.info import VERSION
from utils.api.requests import MAX_POINTS, Box, EverythingRequest, Point
from utils.errors import invalid
from utils.integrations.adapter import Adapter, ImageText, ToolCall, ToolRequest, image_of
from utils.integrations.rasters import POLYGON_NS, Record, closed, polygons_of
from utils.integrations.service import Document
from utils.observability.logs import quoted

TYPE = "vit_t"
"""samapi's name of MobileSAM."""
SERVED_WEIGHTS = "weights of this service"
"""The extension shows this in its list of weights, and sends it as `checkpoint_url`."""
EDGE_PIXELS = 20
"""A box this close to all edges of the image stands for the whole image, as in samapi."""
GRID_FIELDS = EverythingRequest.model_fields.keys() - {
    "input_image",
    "image_id",
    "model_version",
    "progress",
}
"""Fields of `/sam/automask/` that are passed to `/everything`."""


class SamapiRequest(ToolRequest):
    """Fields of both requests."""

    type: str = TYPE
    b64img: ImageText
    checkpoint_url: str | None = None

    def check(self) -> None:
        """Raise `InvalidRequest` for other models and weights than this service's."""
        if self.type != TYPE:
            raise invalid(
                "type", f"{TYPE} (MobileSAM), the model of this service", quoted(self.type)
            )
        if self.checkpoint_url not in {None, "", SERVED_WEIGHTS}:
            raise invalid(
                "checkpoint_url", "none: this service has weights and fetches no others", "a URL"
            )


class PromptedRequest(SamapiRequest):
    """The body of `/sam/`."""

    bbox: Box | None = None
    point_coords: list[Point] = Field(default=[], max_length=MAX_POINTS)
    point_labels: list[Literal[0, 1]] = Field(default=[], max_length=MAX_POINTS)
    multimask_output: bool = False
    b64mask: ImageText | None = None


class AutomaskRequest(SamapiRequest):
    """The body of `/sam/automask/`; `/everything` validates the other fields."""

    model_config = ConfigDict(extra="allow")

    include_image_edge: bool = False


async def segment(call: ToolCall, body: PromptedRequest) -> list[Any]:
    """Answer the masks of one object, as features."""
    body.check()
    if body.b64mask:
        raise invalid("b64mask", "none: this service takes points and a box", "a mask")
    image = await asyncio.to_thread(image_of, body.b64img, "b64img")
    fields: dict[str, Any] = {"pos_coords": body.point_coords, "labels": body.point_labels}
    if body.bbox:
        # QuPath's rectangle may reach beyond what its window shows, which is the image here.
        size = await call.service.embed(image)
        x0, y0, x1, y1 = body.bbox
        fields["box"] = (max(x0, 0), max(y0, 0), min(x1, size["width"]), min(y1, size["height"]))
    fields |= {"multimask_output": body.multimask_output, "mask_format": "polygon"}
    return await features(call, await call.service.segment(image, fields), 0)


async def automask(call: ToolCall, body: AutomaskRequest) -> list[Any]:
    """Answer the masks of the whole image, as features."""
    body.check()
    image = await asyncio.to_thread(image_of, body.b64img, "b64img")
    sent = body.model_extra or {}
    document = await call.service.everything(
        image, {name: sent[name] for name in GRID_FIELDS & sent.keys()}
    )

    masks = [
        mask
        for mask in document["masks"]
        for left, top, right, bottom in [mask["box"]]
        if body.include_image_edge
        or max(left, top, document["width"] - right, document["height"] - bottom) > EDGE_PIXELS
    ]
    return await features(call, {**document, "masks": masks}, POLYGON_NS)


async def features(call: ToolCall, document: Document, box_ns: float) -> list[Any]:
    """Return the masks of a document, each its polygons and its score, as GeoJSON; empty masks
    are left out.
    """
    numbers = itertools.count()

    def feature(mask: Record) -> Iterator[dict[str, Any]]:
        index, parts = (
            next(numbers),
            [[closed(ring) for ring in rings] for rings in polygons_of(mask)],
        )
        if not parts:
            return
        kind, coordinates = ("Polygon", parts[0]) if len(parts) == 1 else ("MultiPolygon", parts)
        quality = {"quality": mask["score"], "sam_model": document["weights"]["name"]}
        yield {
            "type": "Feature",
            "geometry": {"type": kind, "coordinates": coordinates},
            "properties": {"object_idx": index, "label": "object", **quality},
        }

    return await call.service.converted(document, feature, box_ns=box_ns)


async def weights(call: ToolCall) -> list[dict[str, str]]:
    """List the weights of the model in the query. The extension needs at least one entry."""
    served = {"type": TYPE, "name": "MobileSAM", "url": SERVED_WEIGHTS}
    return [served] if call.query.get("type", TYPE) == TYPE else []


ADAPTER = Adapter(
    "samapi",
    {
        "/sam/version/": PlainTextResponse(f"mobile-sam-triton {VERSION}"),
        "/sam/weights/": weights,
        "/sam/weights/cancel/": PlainTextResponse("no download is running"),
        "/sam/progress/": {"message": None, "percent": -1},
    },
    # The extension sends to the URL as entered, so possibly without its last slash.
    {
        "/sam/": (PromptedRequest, segment),
        "/sam": (PromptedRequest, segment),
        "/sam/automask/": (AutomaskRequest, automask),
    },
)
