"""Request bodies of Roboflow's inference server, translated into fields of `/mobile_sam`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from utils.api.errors import invalid
from utils.api.inputs import ImageSource
from utils.api.requests import MAX_OBJECTS, MAX_POINTS, Coordinate, Point
from utils.integrations.adapter import ToolRequest, image_of
from utils.observability.context import CALLER

MAX_ID_LENGTH = 128
PADDING = -1
"""Label of points that SAM ignores."""

Format = Literal["json", "rle", "binary"]


class RoboflowImage(ToolRequest):
    """An image as `{"type": "base64", "value": "..."}`."""

    type: str
    value: Any = None


def _single(image: object) -> object:
    if isinstance(image, list):
        if len(image) != 1:
            raise invalid("image", "one image per request (max_batch_size=1 of inference-sdk)", f"{len(image)} images")
        return image[0]
    return image


class ImageRequest(ToolRequest):
    """Fields that all requests have."""

    image: Annotated[RoboflowImage | None, BeforeValidator(_single)] = None
    image_id: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None

    def source(self) -> ImageSource:
        """Return the image, or the id of one sent earlier.

        Raises:
            InvalidRequest: there is neither, or the image is not base64.
        """
        if self.image is None:
            return known_image(self.image_id)
        if self.image.type != "base64" or not isinstance(self.image.value, str):
            expected = "base64 with the file as value; nothing else is read or fetched"
            raise invalid("image.type", expected, self.image.type)
        return image_of(self.image.value, "image.value")


def known_image(image_id: str | None) -> ImageSource:
    """Return an image sent earlier; raise `InvalidRequest` if there is no id."""
    if not image_id:
        raise invalid("image", "an image, or the image_id that embed_image has returned", "neither")
    return ImageSource(None, image_id, CALLER.get())


class Box(ToolRequest):
    """A box by its centre and size, in pixels."""

    x: Coordinate
    y: Coordinate
    width: Coordinate
    height: Coordinate


class PointPrompt(ToolRequest):
    """A point in pixels."""

    x: Coordinate
    y: Coordinate
    positive: bool = True


class Prompt(ToolRequest):
    """Box, points, or both, of one object."""

    box: Box | None = None
    points: Annotated[list[PointPrompt] | None, Field(max_length=MAX_POINTS)] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`."""
        points, box = self.points or [], None
        if self.box is not None:
            half_width, half_height = self.box.width / 2, self.box.height / 2
            x, y = self.box.x, self.box.y
            box = [x - half_width, y - half_height, x + half_width, y + half_height]
        return {
            "pos_coords": [(point.x, point.y) for point in points if point.positive],
            "neg_coords": [(point.x, point.y) for point in points if not point.positive],
            "box": box,
        }


def _prompt_list(prompts: object) -> object:
    """Return the list of prompts of the nested form, of a list, or of a single prompt."""
    if isinstance(prompts, dict):
        return prompts.get("prompts", [prompts])
    return prompts


class Sam2Segmentation(ImageRequest):
    """Body of `/sam2/segment_image`."""

    prompts: Annotated[Annotated[list[Prompt], Field(max_length=MAX_OBJECTS)] | None, BeforeValidator(_prompt_list)] = (
        None
    )
    multimask_output: bool = True
    format: Format = "json"


class SamSegmentation(ImageRequest):
    """Body of `/sam/segment_image`."""

    embeddings: Any = None
    point_coords: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    point_labels: Annotated[list[Coordinate] | None, Field(max_length=MAX_POINTS)] = None
    has_mask_input: bool | None = False
    mask_input: Any = None
    mask_input_format: str | None = "json"
    format: Literal["json", "binary"] = "json"

    def source(self) -> ImageSource:
        """Return the image, or the id of one sent earlier, which is also what `/sam/embed_image` has for embeddings.

        Raises:
            InvalidRequest: there is neither, the image is not base64, or the embeddings are numbers.
        """
        if not self.embeddings:
            return super().source()
        if not isinstance(self.embeddings, str) or len(self.embeddings) > MAX_ID_LENGTH:
            expected = "the text that embed_image has returned, image or image_id: embeddings stay in the service"
            raise invalid("embeddings", expected, "other embeddings")
        return known_image(self.embeddings)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`; raise `InvalidRequest` if the mask input is not supported."""
        coords, labels = self.point_coords or [], self.point_labels or []
        if len(coords) != len(labels):
            raise invalid("point_labels", f"{len(coords)} labels, one per point", f"{len(labels)}")
        points = [(point, int(label)) for point, label in zip(coords, labels, strict=True) if label != PADDING]
        fields: dict[str, Any] = {
            "pos_coords": [point for point, _ in points],
            "labels": [label for _, label in points],
        }
        if self.has_mask_input:
            if self.mask_input_format != "binary" or not isinstance(self.mask_input, str):
                expected = "base64 of a NumPy file with low_res_masks of a binary answer, and mask_input_format binary"
                raise invalid("mask_input", expected, "another format, or none: masks are not kept")
            fields["mask_input"] = self.mask_input
        return fields
