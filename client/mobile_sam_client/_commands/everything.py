"""`mobile-sam everything`: segment everything in images."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mobile_sam_client import Client, EverythingOptions
from mobile_sam_client._commands import files
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.each_image import Outcome, for_each_image
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import progress
from mobile_sam_client._commands.prompts import errors_in_options
from mobile_sam_client._pictures import FORMATS


def everything(
    ctx: typer.Context,
    images: shared.Images,
    *,
    out: Annotated[
        Path | None,
        option(
            "JSON file for the objects, by default '{stem}_records.json', or none with --picture; "
            "{stem} and {parent} are the image's name and folder, and - is standard output.",
            "FILE",
        ),
    ] = None,
    form: Annotated[
        Literal["sam", "coco"] | None,
        option(
            "sam (default): Segment Anything's automatic-mask records; coco: COCO annotations.",
            None,
            "--format",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        option("File for a picture of all objects in colours: .png, .jpg, .webp or -.", "FILE"),
    ] = None,
    region: shared.Region = None,
    points_per_side: shared.PointsPerSide = None,
    pred_iou_thresh: shared.PredIouThresh = None,
    stability_score_thresh: shared.StabilityScoreThresh = None,
    stability_score_offset: shared.StabilityScoreOffset = None,
    box_nms_thresh: shared.BoxNmsThresh = None,
    crop_n_layers: shared.CropNLayers = None,
    crop_nms_thresh: shared.CropNmsThresh = None,
    crop_overlap_ratio: shared.CropOverlapRatio = None,
    crop_n_points_downscale_factor: shared.CropNPointsDownscaleFactor = None,
    min_mask_region_area: shared.MinArea = None,
    force: shared.Force = False,
    as_json: shared.AsJson = False,
    url: shared.Url = None,
    max_side: shared.MaxSide = None,
) -> None:
    """Segment everything in images.

    The options from --points-per-side to --min-area work as in Segment Anything's automatic mask generator.
    """  # noqa: E501 (lines of the help)
    files.check_suffix(out, (".json",), "--out")
    files.check_suffix(picture, tuple(FORMATS), "--picture")
    if out is None and (form or not picture):
        out = Path("{stem}_records.json")
    templates = [template for template in (out, picture) if template]
    parameters: EverythingOptions = {
        "points_per_side": points_per_side,
        "pred_iou_thresh": pred_iou_thresh,
        "stability_score_thresh": stability_score_thresh,
        "stability_score_offset": stability_score_offset,
        "box_nms_thresh": box_nms_thresh,
        "crop_n_layers": crop_n_layers,
        "crop_nms_thresh": crop_nms_thresh,
        "crop_overlap_ratio": crop_overlap_ratio,
        "crop_n_points_downscale_factor": crop_n_points_downscale_factor,
        "min_mask_region_area": min_mask_region_area,
    }

    def work(client: Client, file: bytes, image: Path, outputs: list[Path]) -> Outcome:
        with progress("Segmenting") as update, errors_in_options(ctx):
            result = client.everything(
                file,
                region=region,
                on_progress=lambda done, total: update(completed=done, total=total),
                **parameters,
            )
        records_file = outputs[0] if out else None
        if records_file and form == "coco":
            entry = {
                "id": 1,
                "file_name": image.name,
                "width": result.width,
                "height": result.height,
            }
            entries = [(entry, result.to_coco())]
            files.write_coco(records_file, files.ONE_CATEGORY, entries, result.weights)
        elif records_file:
            files.write_json(records_file, [record.as_sam() for record in result])
        picture_file = outputs[-1] if picture else None
        if picture_file:
            files.write_overlay(picture_file, file, [record.rle for record in result])
        members = {
            "picture": str(picture_file) if picture_file else None,
            "objects": len(result),
            "file": str(records_file) if records_file else None,
        }
        lines = [
            f"{image}: {result.width} x {result.height} pixels, {len(result)} objects",
            f"wrote {' and '.join(map(str, outputs))}",
        ]
        return Outcome(result, members, lines)

    for_each_image(
        images,
        [(template, ()) for template in templates],
        work,
        force=force,
        as_json=as_json,
        url=url,
        max_side=max_side,
    )
