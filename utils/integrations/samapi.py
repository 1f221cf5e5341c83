"""samapi, which QuPath's extension SAM asks: `/sam/`, `/sam/automask/` and what its dialog needs.

Errors are the service's own: the extension writes them, as they are, into QuPath's log.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import PlainTextResponse

from orchestrator.polygons import Ring
from utils.api.errors import invalid
from utils.api.info import VERSION
from utils.api.received import parse_body
from utils.api.requests import Box, EverythingRequest, Point
from utils.integrations.adapter import Adapter, Call, image_of
from utils.integrations.rasters import closed, polygons_of
from utils.observability.logs import quoted

Feature = dict[str, Any]

TYPE = "vit_t"
"""samapi's name of MobileSAM."""
SERVED_WEIGHTS = "weights of this service"
"""The extension shows this in its list of weights, and sends it as `checkpoint_url`."""
EDGE_PIXELS = 20
"""A box this close to all edges of the image is that of the whole image, as in samapi."""
GRID_FIELDS = EverythingRequest.model_fields.keys() - {"input_image", "image_id", "model_version", "progress"}
"""Fields of `/sam/automask/` that are passed to `/everything`."""


class Body(BaseModel):
    """Fields of both requests."""

    type: str = TYPE
    b64img: str
    checkpoint_url: str | None = None

    def check(self) -> None:
        """Refuse other models and weights.

        Raises:
            InvalidRequest: the model or the weights are not those of this service.
        """
        if self.type != TYPE:
            raise invalid("type", f"{TYPE} (MobileSAM), the model of this service", quoted(self.type))
        if self.checkpoint_url not in {None, "", SERVED_WEIGHTS}:
            raise invalid("checkpoint_url", "none: this service has weights and fetches no others", "a URL")


class SamBody(Body):
    """The body of `/sam/`."""

    bbox: Box | None = None
    point_coords: list[Point] = []
    point_labels: list[Literal[0, 1]] = []
    multimask_output: bool = False
    b64mask: str | None = None


class AutoMaskBody(Body):
    """The body of `/sam/automask/`; `/everything` validates the other fields."""

    model_config = ConfigDict(extra="allow")

    include_image_edge: bool = False


async def segment(call: Call) -> list[Feature]:
    """Answer the masks of one object, as features."""
    body = await asyncio.to_thread(parse_body, call.body, SamBody)
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
    found = await call.service.segment(
        image, {**fields, "multimask_output": body.multimask_output, "mask_format": "polygon"}
    )
    masks = [(mask["polygon"], mask["score"]) for mask in found["masks"]]
    return await asyncio.to_thread(features, masks, found["weights"]["name"])


async def automask(call: Call) -> list[Feature]:
    """Answer the masks of the whole image, as features."""
    body = await asyncio.to_thread(parse_body, call.body, AutoMaskBody)
    body.check()
    image = await asyncio.to_thread(image_of, body.b64img, "b64img")
    sent = body.model_extra or {}
    found = await call.service.everything(image, {name: sent[name] for name in GRID_FIELDS & sent.keys()})

    def covers_image(x: int, y: int, width: int, height: int) -> bool:
        margins = (x, y, found["width"] - x - width, found["height"] - y - height)
        return all(margin <= EDGE_PIXELS for margin in margins)

    records = [record for record in found["masks"] if body.include_image_edge or not covers_image(*record["bbox"])]

    def answer() -> list[Feature]:
        masks = zip(polygons_of(records), (record["predicted_iou"] for record in records), strict=True)
        return features(masks, found["weights"]["name"])

    return await asyncio.to_thread(answer)


def features(masks: Iterable[tuple[list[list[Ring]], float]], weights: str) -> list[Feature]:
    """Return masks, each its polygons and its score, as GeoJSON; empty masks are left out."""
    found = []
    for index, (shapes, score) in enumerate(masks):
        parts = [[closed(ring) for ring in rings] for rings in shapes]
        several = {"type": "MultiPolygon", "coordinates": parts}
        geometry = {"type": "Polygon", "coordinates": parts[0]} if len(parts) == 1 else several
        properties = {"object_idx": index, "label": "object", "quality": score, "sam_model": weights}
        if parts:
            found.append({"type": "Feature", "geometry": geometry, "properties": properties})
    return found


async def weights(call: Call) -> list[dict[str, str]]:
    """Answer the weights of the model that the query names, of which the extension needs one to run."""
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
    {"/sam/": segment, "/sam": segment, "/sam/automask/": automask},
)
