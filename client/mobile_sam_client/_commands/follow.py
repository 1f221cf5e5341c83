"""`mobile-sam follow`: objects of a saved project through a folder of images."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from mobile_sam_client import Client, Followed, Follower, ImageInput, Weights
from mobile_sam_client._commands import connection, files, output
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.page_project import LabelledPicture, read_last_labelled
from mobile_sam_client._exports import coco_annotation, coco_fields

MAX_LISTED = 20
"""Lines printed about objects to review; review.json has all of them."""


@dataclass
class Results:
    """Masks on all images, as entries of COCO files."""

    good: list[files.Entry] = field(default_factory=list)
    review: list[files.Entry] = field(default_factory=list)
    doubts: dict[str, str] = field(default_factory=dict)
    """Per object the first image on which it needs review, with the reasons."""
    weights: Weights | None = None


def follow(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder of the images, searched recursively."),
    ],
    *,
    project: Annotated[
        Path,
        option(
            "Project saved by the page; its last image with objects is the first one.",
            "FILE",
            "--from",
        ),
    ],
    out: Annotated[Path, option("Folder for the results.", "FOLDER")],
    force: shared.Force = False,
    url: shared.Url = None,
) -> None:
    """Follow objects from the last labelled image of a project through the images after it.

    The images are taken in the order of their names, with numbers by value (2 before 10), and must
    have one size. An object whose mask is in doubt needs review on that image and all later ones.

    Files in the result folder:
    annotations.json  COCO annotations (RLE) of the masks that need no review
    review.json       COCO annotations of the others, with reasons, which the page opens
    """
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    targets = [out / "annotations.json", out / "review.json"]
    for path in targets:
        if path.exists() and not force:
            raise CommandError(f"{path} exists; overwrite it with --force")
        files.check_writable(path)
    first = read_last_labelled(project)
    if first.is_smaller_copy:
        raise CommandError(
            f"{project}: the objects are on a smaller copy of {first.name}; "
            "follow them on images within the page's limit"
        )
    names = images_after(sorted(files.list_images(folder, out), key=natural_key), first.name)
    if not names:
        raise CommandError(f"{folder}: no images after {first.name}")
    with (
        connection.blocking_client(connection.service_url(url), None) as client,
        output.log_to_stderr(),
        output.progress("Images", len(names)) as update,
    ):
        results = _follow(client, folder, names, first, advance=lambda: update(advance=1))
    head = {"categories": first.categories}
    entries = (results.good, results.review)
    counts = [
        files.write_coco(path, head, each, results.weights)
        for path, each in zip(targets, entries, strict=True)
    ]
    output.print_line(f"images     {len(names)}")
    output.print_line(f"objects    {len(first.masks)}")
    output.print_line(f"masks      {counts[0]}")
    output.print_line(f"review     {counts[1]}")
    output.print_line(f"wrote {out}: annotations.json, review.json")
    for line in list(results.doubts.values())[:MAX_LISTED]:
        output.print_note(f"review from {line}")
    if len(results.doubts) > MAX_LISTED:
        more = len(results.doubts) - MAX_LISTED
        output.print_note(f"{more} more objects need review, see {targets[1]}")
    if results.weights is not None:
        output.print_weights(results.weights)


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which names sort with numbers by value: `2.jpg` before `10.jpg`."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(part), part) if part[0].isdigit() else (1, 0, part) for part in parts]


def images_after(names: list[str], first: str) -> list[str]:
    """Return the names after that of the labelled image, which may have further folders.

    Raises:
        CommandError: no image has the name, or several have it.
    """
    parts = PurePosixPath(first).parts
    matches = []
    for number, name in enumerate(names):
        others = PurePosixPath(name).parts
        shared_length = min(len(parts), len(others))
        if parts[-shared_length:] == others[-shared_length:]:
            matches.append(number)
    if len(matches) != 1:
        found = (
            f"{len(matches)} images of the folder have this name" if matches else "no such image"
        )
        raise CommandError(f"{first}, the last labelled image of the project: {found}")
    return names[matches[0] + 1 :]


def _follow(
    client: Client,
    folder: Path,
    names: list[str],
    first: LabelledPicture,
    *,
    advance: Callable[[], object],
) -> Results:
    """Follow the objects through the images."""
    objects = {
        f"object {number} ({name})": mask
        for number, (name, mask) in enumerate(zip(first.names, first.masks, strict=True), 1)
    }
    images: list[ImageInput] = [first.file, *(folder / name for name in names)]
    results = Results()
    try:
        found_on_images = Follower(client).follow(images, objects)
        for image_id, (name, found) in enumerate(zip(names, found_on_images, strict=True), 1):
            kept: list[dict[str, Any]] = []
            doubtful: list[dict[str, Any]] = []
            entry: dict[str, Any] = {"id": image_id, "file_name": name}
            for number, (key, item) in enumerate(found.items()):
                annotation_id = (image_id - 1) * len(objects) + number + 1
                annotation = _annotation(item, first, number, annotation_id, image_id)
                (doubtful if item.needs_review else kept).append(annotation)
                if item.needs_review:
                    results.doubts.setdefault(key, f"{name}: {key}: {', '.join(item.reasons)}")
                results.weights = item.segmentation.weights
                entry["width"] = item.segmentation.width
                entry["height"] = item.segmentation.height
            results.good.append((entry, kept))
            if doubtful:
                results.review.append((entry, doubtful))
            advance()
    except ValueError as error:
        raise CommandError(str(error)) from error
    return results


def _annotation(
    item: Followed, first: LabelledPicture, number: int, annotation_id: int, image_id: int
) -> dict[str, Any]:
    """Return a COCO annotation; `track_id` is the same on all images."""
    fields = coco_fields(item.segmentation)
    category_id = first.category_ids[number]
    annotation = coco_annotation(fields, annotation_id, image_id, category_id)
    annotation |= {"track_id": number + 1, "name": first.names[number]}
    if item.needs_review:
        annotation["review"] = list(item.reasons)
    return annotation
