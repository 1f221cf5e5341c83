"""`mobile-sam segment`: segment objects in images."""

import itertools
import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from mobile_sam_client import Client, Segmentation, Weights
from mobile_sam_client._commands.connection import for_each
from mobile_sam_client._commands.files import check_suffix, find_images, output_file, write_bytes
from mobile_sam_client._commands.options import DEFAULT_URL, Force, Images, Json, Local, Url, examples
from mobile_sam_client._commands.output import image_summary, print_json, print_line
from mobile_sam_client._commands.prompts import box, errors_in_options, point, typed_object, typed_objects
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._pictures import FORMATS, encode

MASK_SUFFIXES = (".png", ".npy", ".json")
CUTOUT_SUFFIXES = (".png", ".webp")
CANDIDATES = 3
SEGMENT_EXAMPLES = examples(
    "mobile-sam segment photo.jpg --point 903,310 --picture found.png",
    "mobile-sam segment photo.jpg --box 299,518,492,767 --negative 400,800 --out boat.npy --picture boat.png "
    "--style cutout",
    "mobile-sam segment photo.jpg --object 'point=903,310' --object 'box=299,518,492,767;negative=400,800'",
    "mobile-sam segment 'photos/*.jpg' --point 320,240 --multimask --out 'masks/{stem}.json' --format polygon --json",
)


class Style(str, Enum):
    """Styles of the picture."""

    overlay = "overlay"
    cutout = "cutout"


class Format(str, Enum):
    """File formats of masks."""

    png = "png"
    npy = "npy"
    rle = "rle"
    polygon = "polygon"

    @property
    def suffix(self) -> str:
        """The suffix of files in this format."""
        return ".json" if self in {Format.rle, Format.polygon} else f".{self.value}"


def segment(
    ctx: typer.Context,
    images: Images,
    *,
    points: Annotated[
        list[Any] | None,
        typer.Option("--point", parser=point, metavar="X,Y", help="Point on the object; repeatable."),
    ] = None,
    negatives: Annotated[
        list[Any] | None,
        typer.Option("--negative", parser=point, metavar="X,Y", help="Point outside the object; repeatable."),
    ] = None,
    around: Annotated[
        Any | None, typer.Option("--box", parser=box, metavar="X0,Y0,X1,Y1", help="Box around the object.")
    ] = None,
    prompts: Annotated[
        list[Any] | None,
        typer.Option(
            "--object",
            parser=typed_object,
            metavar="OBJECT",
            help="One of several objects: point=X,Y, negative=X,Y and box=X0,Y0,X1,Y1, separated by ';'; repeatable.",
        ),
    ] = None,
    multimask_output: Annotated[
        bool, typer.Option("--multimask", help="Write the three candidates of each object, best first.")
    ] = False,
    mask_format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="png: black and white; npy: bool array of height x width; rle, polygon: JSON with COCO's RLE, or with "
            "polygons as lists of rings (outline, then holes), and bbox, area, score. Default: by the suffix of "
            "--out, or png.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File for the mask, by default '{stem}_mask.png'; {stem} and {parent} are the image's name and folder."
            " Several masks are numbered: photo_mask_1.png.",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a picture of the objects: .png, .jpg or .webp.", show_default=False
        ),
    ] = None,
    segmented_image: Annotated[
        Style,
        typer.Option(
            "--style", help="Style of the picture: overlay, with the objects tinted, or cutout, transparent elsewhere."
        ),
    ] = Style.overlay,
    min_mask_region_area: Annotated[
        int | None,
        typer.Option(
            "--min-area", min=0, metavar="N", help="Fill holes and remove islands of fewer pixels.", show_default=False
        ),
    ] = None,
    mask_threshold: Annotated[
        float | None,
        typer.Option(
            "--mask-threshold",
            metavar="LOGIT",
            help="Logit above which a pixel belongs to the mask, by default 0: lower for larger masks.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Segment objects given by points and boxes.

    Coordinates are pixels of the displayed image, from its top-left corner.
    """
    objects = typed_objects(points, negatives, around, prompts)
    suffix = out.suffix.lower() if out else ".png"
    form = mask_format or next((form for form in Format if form.suffix == suffix), Format.png)
    check_suffix(out, (form.suffix,) if mask_format else MASK_SUFFIXES, "--out")
    check_suffix(picture, CUTOUT_SUFFIXES if segmented_image is Style.cutout else tuple(FORMATS), "--picture")
    # Objects and candidates are numbered where there are several.
    counts = (len(objects), CANDIDATES if multimask_output else 1)
    numbers = list(itertools.product(*(range(1, count + 1) for count in counts if count > 1)))
    template = out or Path(f"{{stem}}_mask{form.suffix}")
    files = {
        image: [
            *(output_file(template, image, *number) for number in numbers),
            *([output_file(picture, image)] if picture else []),
        ]
        for image in find_images(images)
    }

    def work(client: Client, image: Path, file: bytes) -> Weights:
        with errors_in_options(ctx, objects):
            found = client.segment_many(
                file,
                [typed.prompt() for typed in objects],
                multimask_output=multimask_output,
                segmented_image=segmented_image.value if picture else "none",
                mask_threshold=mask_threshold,
                min_mask_region_area=min_mask_region_area,
            )
        masks = [mask for best in found for mask in best.candidates or (best,)]
        written = list(zip(files[image][: len(numbers)], masks, strict=True))
        shown = files[image][-1] if picture else None
        for path, mask in written:
            write_bytes(path, _mask_file(mask, form))
        if shown and found[0].image:
            write_bytes(shown, encode(found[0].image, shown.suffix))
        if as_json:
            entries = [
                {"file": str(path), "score": mask.score, "area": mask.area, "box": mask.box_xyxy}
                for path, mask in written
            ]
            print_json({**image_summary(image, found[0], shown), "masks": entries})
        else:
            print_line(f"{image}: {found[0].width} x {found[0].height} pixels")
            for path, mask in written:
                box_xyxy = ",".join(map(str, mask.box_xyxy))
                print_line(f"wrote {path}: score {mask.score:.3f}, {mask.area} pixels in box {box_xyxy}")
            if shown:
                print_line(f"wrote {shown}")
        return found[0].weights

    for_each(files, work, url=url, local=local, as_json=as_json, force=force)


def _mask_file(mask: Segmentation, form: Format) -> bytes:
    """Return the file of a mask."""
    if form is Format.png:
        return encode(Image.fromarray(mask.mask * np.uint8(255)))
    if form is Format.npy:
        return mask._mask_npy()
    document = coco_fields(mask)
    if form is Format.polygon:
        del document["segmentation"]
        document["polygons"] = [[ring.tolist() for ring in rings] for rings in mask.polygons()]
    return json.dumps(document).encode() + b"\n"
