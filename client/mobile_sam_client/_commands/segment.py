"""`mobile-sam segment`: segment objects in images."""

import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from PIL import Image

from mobile_sam_client import Client, Segmentation
from mobile_sam_client._commands import files
from mobile_sam_client._commands.connection import Found, ImageOptions
from mobile_sam_client._commands.options import MIN_AREA, Clip, Force, Images, Region, option
from mobile_sam_client._commands.prompts import box, errors_in_options, option_of, point, typed_object, typed_objects
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._pictures import FORMATS, encode

MaskFormat = Literal["png", "npy", "rle", "polygon"]
MASK_SUFFIXES: dict[str, MaskFormat] = {".png": "png", ".npy": "npy", ".json": "rle"}
"""Formats by suffix."""
CUTOUT_SUFFIXES = (".png", ".webp")
CANDIDATES = 3
OBJECT_HELP = "One of several objects: point=X,Y, negative=X,Y and box=X0,Y0,X1,Y1, separated by ';'; repeatable."
FORMAT_HELP = (
    "png: black and white; npy: bool array of height x width; rle, polygon: JSON with COCO's RLE, or with polygons as "
    "lists of rings (outline, then holes), and bbox, area, score. Default: by the suffix of --out, or png."
)
OUT_HELP = (
    "File for the mask, by default '{stem}_mask.png', or none with --picture; {stem} and {parent} are the image's name "
    "and folder, and - is standard output. Several masks are numbered: photo_mask_1.png."
)


def segment(
    ctx: typer.Context,
    images: Images,
    *,
    points: Annotated[
        list[Any] | None, option("Point on the object; repeatable.", "X,Y", "--point", parser=point)
    ] = None,
    negatives: Annotated[
        list[Any] | None, option("Point outside the object; repeatable.", "X,Y", "--negative", parser=point)
    ] = None,
    around: Annotated[Any | None, option("Box around the object.", "X0,Y0,X1,Y1", "--box", parser=box)] = None,
    prompts: Annotated[list[Any] | None, option(OBJECT_HELP, "OBJECT", "--object", parser=typed_object)] = None,
    region: Region = None,
    clip: Clip = False,
    multimask_output: Annotated[
        bool, typer.Option("--multimask", help="Write the three candidates of each object, best first.")
    ] = False,
    mask_format: Annotated[MaskFormat | None, option(FORMAT_HELP, None, "--format")] = None,
    out: Annotated[Path | None, option(OUT_HELP, "FILE")] = None,
    picture: Annotated[
        Path | None, option("File for a picture of the objects: .png, .jpg, .webp or -.", "FILE")
    ] = None,
    segmented_image: Annotated[
        Literal["overlay", "cutout"],
        typer.Option(
            "--style", help="Style of the picture: overlay, with the objects tinted, or cutout, transparent elsewhere."
        ),
    ] = "overlay",
    min_mask_region_area: Annotated[int | None, MIN_AREA] = None,
    mask_threshold: Annotated[
        float | None,
        option("Logit above which a pixel belongs to the mask, by default 0: lower for larger masks.", "LOGIT"),
    ] = None,
    force: Force = False,
    service: ImageOptions,
) -> None:
    """Segment objects given by points and boxes.

    Coordinates are pixels of the displayed image, from its top-left corner.
    """
    objects = typed_objects(points, negatives, around, prompts)
    form = mask_format or MASK_SUFFIXES.get(out.suffix.lower() if out else "", "png")
    suffix = f".{form}" if form in {"png", "npy"} else ".json"
    files.check_suffix(out, (suffix,) if mask_format else tuple(MASK_SUFFIXES), "--out")
    files.check_suffix(picture, CUTOUT_SUFFIXES if segmented_image == "cutout" else tuple(FORMATS), "--picture")
    # Objects and candidates are numbered where there are several.
    counts = (len(objects), CANDIDATES if multimask_output else 1)
    numbers = list(itertools.product(*(range(1, count + 1) for count in counts if count > 1)))
    template = out or Path(f"{{stem}}_mask{suffix}")
    masks_wanted = bool(out or mask_format or not picture)
    templates = [(template, number) for number in numbers if masks_wanted] + ([(picture, ())] if picture else [])

    def work(client: Client, file: bytes, image: Path, outputs: list[Path]) -> Found:
        with errors_in_options(ctx, objects):
            found = client.segment_many(
                file,
                [typed.prompt() for typed in objects],
                multimask_output=multimask_output,
                segmented_image=segmented_image if picture else "none",
                mask_threshold=mask_threshold,
                min_mask_region_area=min_mask_region_area,
                region=region,
                clip=clip or None,
            )
        masks = [mask for best in found for mask in best.candidates or (best,)]
        lines, entries = [f"{image}: {found[0].width} x {found[0].height} pixels"], []
        clipped = [f"prompts[{number}].{name}" for number, best in enumerate(found) for name in best.clipped]
        if clipped:
            options = dict.fromkeys(option_of(field, ctx, objects) for field in clipped)
            lines.append(f"cut to the image: {', '.join(options)}")
        for index, (number, mask) in enumerate(zip(numbers, masks, strict=True)):
            path = outputs[index] if masks_wanted else None
            if path:
                files.write_bytes(path, _mask_file(mask, form))
            name = f"wrote {path}" if path else f"mask {'_'.join(map(str, number))}".strip()
            box = ",".join(map(str, mask.box_xyxy))
            lines.append(f"{name}: score {mask.score:.3f}, {mask.area} pixels in box {box}")
            entry = {"file": path and str(path), "score": mask.score, "area": mask.area, "box": mask.box_xyxy}
            entries.append({**entry, "clipped": mask.clipped} if mask.clipped else entry)
        shown = outputs[-1] if picture else None
        if shown and found[0].image:
            files.write_bytes(shown, encode(found[0].image, shown.suffix or ".png"))
            lines.append(f"wrote {shown}")
        return found[0], {"picture": shown and str(shown), "masks": entries}, lines

    service.for_each(images, templates, work, force=force)


def _mask_file(mask: Segmentation, form: MaskFormat) -> bytes:
    if form == "png":
        return encode(Image.fromarray(mask.mask * np.uint8(255)))
    if form == "npy":
        return mask._npy()
    document = coco_fields(mask)
    if form == "polygon":
        del document["segmentation"]
        document["polygons"] = [[ring.tolist() for ring in rings] for rings in mask.polygons()]
    return json.dumps(document).encode() + b"\n"
