"""`mobile-sam batch`: segment all images of a folder."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client._commands import files
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.folder_batch import FolderFiles, report, run_batch
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.prompts import read_prompts
from mobile_sam_client._exports import coco_annotation
from mobile_sam_client.batches import Batch, LabelledImage


def batch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder of PNG, JPEG and WebP files, searched recursively."
        ),
    ],
    *,
    out: Annotated[Path, option("Folder for the results.", "FOLDER")],
    prompts: Annotated[
        Path | None,
        option(
            "Segment these objects instead of everything: JSON that maps image names to objects, "
            "each with some of pos_coords, labels, neg_coords, box, such as "
            '{"cats/one.jpg": {"box": [40, 30, 560, 410]}}. Other images are skipped.',
            "FILE",
        ),
    ] = None,
    clip: shared.Clip = False,
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
    no_overlays: Annotated[
        bool, typer.Option("--no-overlays", help="Do not draw pictures.")
    ] = False,
    concurrency: shared.Concurrency = 4,
    as_json: shared.AsJson = False,
    url: shared.Url = None,
    max_side: shared.MaxSide = None,
) -> None:
    """Segment all images of a folder: everything in them, or the objects of a prompt file.

    The same command resumes an interrupted run. Finished images are skipped
    unless image, parameters or weights have changed. Images that fail do not stop the run.

    Files in the result folder:
    annotations.json  COCO annotations of all images
    ids.json          their ids, which stay the same when images are added
    failures.json     failed images, with reasons
    overlays          each image with its objects coloured, as JPEG
    records           results per image, used to resume
    """
    parameters = {
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
    everything = {name: value for name, value in parameters.items() if value is not None}
    if prompts and everything:
        raise typer.BadParameter(
            "cannot be combined with the options for everything", param_hint="--prompts"
        )
    if clip and not prompts:
        raise typer.BadParameter("is for the objects of --prompts", param_hint="--clip")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    files.check_writable(out / "annotations.json")
    ids = CocoIds(out / "ids.json")
    names = files.list_images(folder, out)
    if prompts is not None:
        requests = _prompt_requests(prompts, clip=clip)
    elif names:
        requests = {name: {"everything": everything} for name in names}
    else:
        raise CommandError(f"{folder}: no PNG, JPEG or WebP files found")

    folder_files = FolderFiles(requests, folder, out, draw=not no_overlays, max_side=max_side)
    work = Batch(folder_files.requests, folder_files)
    stop_reason = run_batch(work, url, max_side, concurrency)

    entries = map(ids.entry, folder_files.results(work.done))
    annotations = out / "annotations.json"
    count = files.write_coco(annotations, files.ONE_CATEGORY, entries, work.weights)
    ids.write()
    report(
        work,
        folder_files,
        counts={"objects": count},
        written=["annotations.json", "ids.json"],
        stop_reason=stop_reason,
        as_json=as_json,
    )


def _prompt_requests(prompts: Path, *, clip: bool) -> dict[str, dict[str, Any]]:
    """Return the request of each image in a prompt file."""
    requests: dict[str, dict[str, Any]] = {}
    for name, objects in read_prompts(prompts).items():
        requests[name] = {"prompts": objects}
        if clip:
            requests[name]["clip"] = True
    return requests


class CocoIds:
    """Ids by image name, counted from 1. An id is never reused for another image or object."""

    def __init__(self, path: Path) -> None:
        """Continue from the ids in a file written by `write`, if it exists."""
        self._path = path
        self._ids: dict[str, dict[str, Any]] = {}
        """Per image name `image`, its id; `first_object` and `objects`, the first id of its
        objects and their number; and `objects_sha256`, which tells whether they have changed."""
        try:
            if path.exists():
                self._ids = json.loads(path.read_bytes())
            self._next_image, self._next_object = _next_ids(self._ids)
        except (ValueError, TypeError, KeyError, AttributeError):
            expected = "expected the ids written by an earlier run"
            hint = "delete the file to assign new ids"
            raise CommandError(f"{path}: malformed, {expected}; {hint}") from None

    def write(self) -> None:
        """Write the ids for the next run."""
        files.write_json(self._path, self._ids)

    def entry(self, image: LabelledImage) -> files.Entry:
        """Return the COCO entry of an image.

        The image gets a new id if it is new, and its objects if they have changed.
        """
        sha256 = hashlib.sha256(json.dumps(image.objects, sort_keys=True).encode()).hexdigest()
        ids = self._ids.setdefault(image.file_name, {"image": self._next_image})
        if ids.get("objects_sha256") != sha256:
            ids["first_object"] = self._next_object
            ids["objects"] = len(image.objects)
            ids["objects_sha256"] = sha256
            self._next_image = max(self._next_image, ids["image"] + 1)
            self._next_object += len(image.objects)
        entry = {
            "id": ids["image"],
            "file_name": image.file_name,
            "width": image.width,
            "height": image.height,
        }
        annotations = []
        for object_id, fields in enumerate(image.objects, ids["first_object"]):
            annotations.append(coco_annotation(fields, object_id, ids["image"], category_id=1))
        return entry, annotations


def _next_ids(ids: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    """Return the first unused ids of images and of objects."""
    next_image = 1
    next_object = 1
    for entry in ids.values():
        next_image = max(next_image, entry["image"] + 1)
        next_object = max(next_object, entry["first_object"] + entry["objects"])
    return next_image, next_object
