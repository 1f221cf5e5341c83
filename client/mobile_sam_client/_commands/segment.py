"""`mobile-sam segment`: segment objects in images."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from PIL import Image

from mobile_sam_client import Client, Segmentation
from mobile_sam_client._commands import files
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.each_image import Outcome, for_each_image
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.prompts import (
    box,
    errors_in_options,
    option_of,
    point,
    typed_object,
    typed_objects,
)
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._pictures import FORMATS, encode

MaskFormat = Literal["png", "npy", "rle", "polygon"]
MASK_SUFFIXES: dict[str, MaskFormat] = {".png": "png", ".npy": "npy", ".json": "rle"}
"""Formats by suffix."""
CUTOUT_SUFFIXES = (".png", ".webp")
CANDIDATES = 3


def segment(
    ctx: typer.Context,
    images: shared.Images,
    *,
    points: Annotated[
        list[Any] | None, option("Point on the object; repeatable.", "X,Y", "--point", parser=point)
    ] = None,
    negatives: Annotated[
        list[Any] | None,
        option("Point outside the object; repeatable.", "X,Y", "--negative", parser=point),
    ] = None,
    around: Annotated[
        Any | None, option("Box around the object.", "X0,Y0,X1,Y1", "--box", parser=box)
    ] = None,
    prompts: Annotated[
        list[Any] | None,
        option(
            "One of several objects: point=X,Y, negative=X,Y and box=X0,Y0,X1,Y1, "
            "separated by ';'; repeatable.",
            "OBJECT",
            "--object",
            parser=typed_object,
        ),
    ] = None,
    region: shared.Region = None,
    clip: shared.Clip = False,
    multimask_output: Annotated[
        bool,
        typer.Option("--multimask", help="Write the three candidates of each object, best first."),
    ] = False,
    mask_format: Annotated[
        MaskFormat | None,
        option(
            "png: black and white; npy: bool array of height x width; rle, polygon: JSON with "
            "COCO's RLE, or with polygons as lists of rings (outline, then holes), and bbox, area, "
            "score. Default: by the suffix of --out, or png.",
            None,
            "--format",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "File for the mask, by default '{stem}_mask.png', or none with --picture; "
            "{stem} and {parent} are the image's name and folder, and - is standard output. "
            "Several masks are numbered: photo_mask_1.png.",
            "FILE",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        option("File for a picture of the objects: .png, .jpg, .webp or -.", "FILE"),
    ] = None,
    segmented_image: Annotated[
        Literal["overlay", "cutout"],
        typer.Option(
            "--style",
            help="Style of the picture: overlay, with the objects tinted, or cutout, "
            "transparent elsewhere.",
        ),
    ] = "overlay",
    min_mask_region_area: shared.MinArea = None,
    mask_threshold: Annotated[
        float | None,
        option(
            "Logit above which a pixel belongs to the mask, by default 0: lower for larger masks.",
            "LOGIT",
        ),
    ] = None,
    force: shared.Force = False,
    as_json: shared.AsJson = False,
    url: shared.Url = None,
    max_side: shared.MaxSide = None,
) -> None:
    """Segment objects given by points and boxes.

    Coordinates are pixels of the displayed image, from its top-left corner.
    """
    objects = typed_objects(points, negatives, around, prompts)
    form = mask_format or MASK_SUFFIXES.get(out.suffix.lower() if out else "", "png")
    suffix = f".{form}" if form in {"png", "npy"} else ".json"
    files.check_suffix(out, (suffix,) if mask_format else tuple(MASK_SUFFIXES), "--out")
    picture_suffixes = CUTOUT_SUFFIXES if segmented_image == "cutout" else tuple(FORMATS)
    files.check_suffix(picture, picture_suffixes, "--picture")
    writes_masks = bool(out or mask_format or not picture)
    numbers = _mask_numbers(len(objects), CANDIDATES if multimask_output else 1)
    templates: list[tuple[Path, Sequence[int]]] = []
    if writes_masks:
        template = out or Path(f"{{stem}}_mask{suffix}")
        templates += [(template, mask_numbers) for mask_numbers in numbers]
    if picture:
        templates.append((picture, ()))

    def work(client: Client, file: bytes, image: Path, outputs: list[Path]) -> Outcome:
        with errors_in_options(ctx, objects):
            best_masks = client.segment_many(
                file,
                [typed.prompt() for typed in objects],
                multimask_output=multimask_output,
                segmented_image=segmented_image if picture else "none",
                mask_threshold=mask_threshold,
                min_mask_region_area=min_mask_region_area,
                region=region,
                clip=clip or None,
            )
        first = best_masks[0]
        lines = [f"{image}: {first.width} x {first.height} pixels"]
        clipped = _clipped_fields(best_masks)
        if clipped:
            # Several fields may have come from one option.
            options = dict.fromkeys(option_of(field, ctx, objects) for field in clipped)
            lines.append(f"cut to the image: {', '.join(options)}")
        entries = []
        for index, mask in enumerate(_all_masks(best_masks)):
            mask_file = outputs[index] if writes_masks else None
            if mask_file:
                files.write_bytes(mask_file, _mask_file(mask, form))
            entries.append(_mask_entry(mask, mask_file))
            lines.append(_mask_line(mask, mask_file, numbers[index]))
        picture_file = outputs[-1] if picture else None
        if picture_file and first.image:
            content = encode(first.image, picture_file.suffix or ".png")
            files.write_bytes(picture_file, content)
            lines.append(f"wrote {picture_file}")
        picture_name = str(picture_file) if picture_file else None
        return Outcome(first, {"picture": picture_name, "masks": entries}, lines)

    for_each_image(
        images,
        templates,
        work,
        force=force,
        as_json=as_json,
        url=url,
        max_side=max_side,
    )


def _mask_numbers(objects: int, candidates: int) -> list[tuple[int, ...]]:
    """Return the numbers of each mask: objects and candidates are numbered if there are several."""
    counts = [count for count in (objects, candidates) if count > 1]
    return list(itertools.product(*(range(1, count + 1) for count in counts)))


def _all_masks(best_masks: Sequence[Segmentation]) -> list[Segmentation]:
    """Return the masks of all objects, with all their candidates."""
    masks: list[Segmentation] = []
    for best in best_masks:
        masks += best.candidates or (best,)
    return masks


def _clipped_fields(best_masks: Sequence[Segmentation]) -> list[str]:
    """Return the paths of the fields that were cut to the image."""
    paths: list[str] = []
    for number, best in enumerate(best_masks):
        paths += [f"prompts[{number}].{name}" for name in best.clipped]
    return paths


def _mask_entry(mask: Segmentation, file: Path | None) -> dict[str, Any]:
    """Return what the JSON says about a mask."""
    entry: dict[str, Any] = {
        "file": str(file) if file else None,
        "score": mask.score,
        "area": mask.area,
        "box": mask.box_xyxy,
    }
    if mask.clipped:
        entry["clipped"] = mask.clipped
    return entry


def _mask_line(mask: Segmentation, file: Path | None, numbers: Sequence[int]) -> str:
    """Return the line about a mask."""
    number = "_".join(map(str, numbers))  # empty for a single mask
    name = f"wrote {file}" if file else f"mask {number}".strip()
    box_text = ",".join(map(str, mask.box_xyxy))
    return f"{name}: score {mask.score:.3f}, {mask.area} pixels in box {box_text}"


def _mask_file(mask: Segmentation, form: MaskFormat) -> bytes:
    if form == "png":
        return encode(Image.fromarray(mask.mask * np.uint8(255)))
    if form == "npy":
        return mask._npy()
    document = coco_fields(mask)
    if form == "polygon":
        del document["segmentation"]
        polygons = []
        for rings in mask.polygons():
            polygons.append([ring.tolist() for ring in rings])
        document["polygons"] = polygons
    return json.dumps(document).encode() + b"\n"
