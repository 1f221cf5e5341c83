"""Auto-annotation functions for CVAT's SDK and command line, answered by the service.

cvat-cli task auto-annotate TASK --function-module mobile_sam_client.cvat -p label=str:balloon

The service's URL and API key come from the environment variables MOBILE_SAM_URL and MOBILE_SAM_API_KEY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from PIL import Image

from mobile_sam_client._client import Client
from mobile_sam_client._options import EverythingOptions, check_options
from mobile_sam_client._results import Embedding, MaskResult

try:
    import cvat_sdk.auto_annotation as cvataa
    from cvat_sdk import models
    from cvat_sdk.masks import encode_mask
except ImportError as error:
    raise ImportError("mobile_sam_client.cvat needs other packages: pip install 'mobile-sam-client[cvat]'") from error

__all__ = ["Detector", "Interactor", "create"]


class Detector:
    """Detection function that segments everything in an image; all objects get the same label."""

    def __init__(self, client: Client, label: str = "object", **parameters: Any) -> None:
        """Create a function.

        Args:
            client: client of the service.
            label: name of a label of the task.
            parameters: options of `Client.everything`, such as `points_per_side`.

        Raises:
            TypeError: `Client.everything` has no such parameter.
        """
        check_options("everything", parameters, EverythingOptions)
        self.spec = cvataa.DetectionFunctionSpec(labels=[cvataa.label_spec(label, 0, type="mask")])
        self._client, self._parameters = client, parameters

    def detect(self, context: cvataa.DetectionFunctionContext, image: Image.Image) -> list[models.LabeledShapeRequest]:
        """Return the objects in an image as masks, or as polygons, which have no holes, if the context asks for them.

        Raises:
            MobileSamError: the service cannot answer.
        """
        found = self._client.everything(image, **self._parameters)
        return [
            cvataa.shape(0, type=kind, points=points, score=_confidence(record))
            for record in found
            if _confidence(record) >= (context.conf_threshold or 0)
            for kind, points in (_polygons(record) if context.conv_mask_to_poly else _masks(record))
        ]


class Interactor:
    """Interaction function that segments an object given by points, a box, or both."""

    def __init__(self, client: Client) -> None:
        """Create a function; `client` is a client of the service."""
        self.spec = cvataa.InteractionFunctionSpec(min_pos_points=0, min_neg_points=0, min_bounding_boxes=0)
        self._client = client

    def preprocess_image(self, context: cvataa.InteractionFunctionContext, image: Image.Image) -> Embedding:  # noqa: ARG002
        """Encode an image. Raises as `detect`."""
        return self._client.embed(image)

    def detect(
        self,
        context: cvataa.InteractionFunctionContext,  # noqa: ARG002
        pp_image: Embedding,
        prompts: cvataa.InteractionPrompts,
    ) -> list[cvataa.InteractionResultShape]:
        """Return the object as a mask; nothing without a positive point or box, or if the mask is empty.

        Raises:
            MobileSamError: the service cannot answer.
        """
        box = prompts.bounding_box
        if not prompts.pos_points and box is None:
            return []
        found = self._client.segment(
            pp_image,
            pos_coords=[*prompts.pos_points] or None,
            neg_coords=[*prompts.neg_points] or None,
            box=None if box is None else [*box[0], *box[1]],
            segmented_image="none",
        )
        confidence = models.AttributeValRequest(
            spec_id=int(cvataa.InteractionResultAttributes.CONFIDENCE), value=str(_confidence(found))
        )
        return [
            cvataa.InteractionResultShape(type=kind, points=points, attributes=[confidence])
            for kind, points in _masks(found)
        ]


FUNCTIONS: dict[str, Callable[..., Detector | Interactor]] = {"detector": Detector, "interactor": Interactor}
"""Functions by CVAT's name of their kind."""


def create(kind: str = "detector", *, url: str | None = None, **parameters: Any) -> Detector | Interactor:
    """Return a function. CVAT's command line passes its options `-p NAME=TYPE:VALUE`.

    Args:
        kind: `detector` or `interactor`.
        url: URL of the service. None: from the environment.
        parameters: arguments of the function besides its client.

    Raises:
        ValueError: the kind is unknown, or the URL is invalid.
        TypeError: the function has no such parameter.
    """
    if kind not in FUNCTIONS:
        raise ValueError(f"kind: expected {' or '.join(FUNCTIONS)}, got {kind!r}")
    return FUNCTIONS[kind](Client(url), **parameters)


def _confidence(result: MaskResult) -> float:
    """Return the score in CVAT's range, 0 to 1."""
    return min(max(result.score, 0.0), 1.0)


def _masks(result: MaskResult) -> Iterator[tuple[str, list[float]]]:
    """Yield the type and points of the mask's shape, unless it is empty."""
    if result.area:
        yield "mask", encode_mask(result._decode_mask(), result.box_xyxy)


def _polygons(result: MaskResult) -> Iterator[tuple[str, list[float]]]:
    """Yield the type and points of the shape of each island."""
    for outline, *_ in result.polygons():
        yield "polygon", outline.ravel().tolist()
