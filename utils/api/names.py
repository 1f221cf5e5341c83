"""Names of fields and parts in errors: their paths, and what unknown ones may mean."""

import difflib
from collections.abc import Collection

from utils.errors import FieldError, InvalidRequest

EMPTY_KEY = '""'
"""The path component of an empty key."""
MAX_NAME_CHARS = 64
"""Beginning of an unknown name that is compared with the known ones."""

OTHER_NAMES = {
    "bbox": "box",
    "boxes": "box",
    "file": "image",
    "format": "mask_format",
    "image": "input_image",
    "input_image": "image",
    "min_area": "min_mask_region_area",
    "multimask": "multimask_output",
    "negative_points": "neg_coords",
    "picture": "segmented_image",
    "point": "pos_coords",
    "point_coords": "pos_coords",
    "point_labels": "labels",
    "points": "pos_coords",
    "prompt": "request",
    "prompts": "request",
    "threshold": "mask_threshold",
}
"""Names that other programs use, and the fields or parts that are meant."""


def unknown_field(name: str, known: Collection[str], kind: str) -> InvalidRequest:
    """Return the error for a name that is not among the known ones; `kind` is what they are,
    such as `field`.
    """
    return InvalidRequest(errors=[unknown(path_of((name,)), name, known, kind)])


def unknown(path: str, name: str, known: Collection[str], kind: str) -> FieldError:
    """Return the same for a name at a path, as a field of an error."""
    meant = OTHER_NAMES.get(name[:MAX_NAME_CHARS].lower())
    if meant not in known:
        meant = next(
            iter(difflib.get_close_matches(name[:MAX_NAME_CHARS].lower(), known, n=1, cutoff=0.75)),
            None,
        )
    suggestion = f" (did you mean {meant}?)" if meant else ""
    return FieldError(
        path, f"one of the {kind}s {', '.join(known)}", f"an unknown {kind}{suggestion}"
    )


def path_of(location: tuple[int | str, ...]) -> str:
    """Format `("pos_coords", 1, 0)` as `pos_coords[1][0]`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step or EMPTY_KEY}" for step in location)
    return "".join(steps).removeprefix(".")
