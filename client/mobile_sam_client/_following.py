"""Prompts that find an object on the next image of a series, and the judgement of the answer.

page/follow.js has the same rules; a test holds one to the other. Both work on small pictures and
masks, of the size that `small_size` returns: pixels of the model's low-resolution masks.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from mobile_sam_client._arrays import BoolMask, Pixels
from mobile_sam_client._model import MASK_SIDE

BOX_MARGIN = 0.05
"""How far the box is moved out on each side, in widths and heights of the box."""
SEARCHED_SHARE = 0.6
"""Largest movement between two images, of the longer side of the object's box."""
MIN_SEARCHED_PIXELS, MAX_SEARCHED_PIXELS = 8, 40
MAX_SAMPLES = 500
"""Pixels of the object that are compared."""
MAX_DIFFERENCE = 96
"""Larger differences of a colour value count as this: such pixels are hidden."""
COST_OF_DISTANCE = 0.05
"""What a movement costs for each pixel, in differences of a colour value."""
LEVELS = 4
"""Levels of each colour in a histogram."""
MAX_GAIN = 2.5
"""Largest change of brightness since the first image that is levelled out."""

MIN_SCORE = 0.6
MIN_OVERLAP = 0.4
"""Smallest IoU of the answer with the last mask, moved."""
AREA_RATIOS = (0.5, 2.0)
"""Smallest and largest area, of the last one."""
FIRST_AREA_RATIOS = (0.15, 6.0)
"""Smallest and largest area, of the first one."""
MIN_COLOURS = 0.5
"""Smallest common share of the colours with those of the first image."""
MAX_COST_RATIO, MAX_COST_RISE = 1.5, 6.0
"""An object looks different if finding it costs more than both of these above the mean so far."""
LOOKS_DIFFERENT = "looks different"
"""Reason of an answer that is plausible in itself, and followed on, but needs review."""

Histogram = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """What is known of an object: its last good mask, and its first appearance."""

    picture: Pixels
    """Small picture of the last mask, (h, w, 3) uint8 RGB."""
    mask: BoolMask
    """Small mask, (h, w) bool."""
    box_xyxy: tuple[int, int, int, int]
    """Box around the mask in pixels of the image; x1 and y1 are exclusive."""
    area: int
    """Number of pixels of the mask in the image."""
    first_area: int
    first_mean: float
    """Mean of the colour values at first, 0 to 255."""
    first_colours: Histogram
    """Shares of the colours at first, (64,) float64."""
    steps: int = 0
    """Number of images that it was followed on."""
    mean_cost: float = 0.0
    """Mean cost of finding it on these."""


@dataclass(frozen=True)
class Question:
    """Prompts for the next image, in pixels of the image, and what the answer is judged by."""

    box: list[float]
    pos_coords: list[list[float]]
    expected: BoolMask
    """Small mask, moved to where the object was found, (h, w) bool."""
    cost: float
    """Mean difference of the object's colour values from the last image, 0 to 96, and what the
    movement costs."""


def small_size(width: int, height: int) -> tuple[int, int]:
    """Return width and height of the small picture of an image."""
    longest = max(width, height)
    scaled = [max(1, math.floor(side * MASK_SIDE / longest + 0.5)) for side in (width, height)]
    return scaled[0], scaled[1]


def small_picture(pixels: Pixels) -> Pixels:
    """Return the small picture of an image, (H, W, 3) uint8 RGB."""
    height, width = pixels.shape[:2]
    small = Image.fromarray(pixels).resize(small_size(width, height), Image.Resampling.BOX)
    return np.asarray(small)


def small_mask(mask: BoolMask) -> BoolMask:
    """Return the small mask of a mask, (H, W) bool: each pixel is the nearest one's."""
    height, width = mask.shape
    small_width, small_height = small_size(width, height)
    rows = ((np.arange(small_height) + 0.5) * height / small_height).astype(int)
    columns = ((np.arange(small_width) + 0.5) * width / small_width).astype(int)
    small: BoolMask = mask[np.ix_(rows, columns)]
    return small


def first_target(
    picture: Pixels, mask: BoolMask, box_xyxy: tuple[int, int, int, int], area: int
) -> Target:
    """Return what is known of an object on its first image; arguments as in `Target`."""
    mean, colours = colours_of(picture, mask, None)
    return Target(picture, mask, box_xyxy, area, area, mean, colours)


def prompts_for(target: Target, picture: Pixels, width: int, height: int) -> Question:
    """Return the prompts that ask for an object on the next image.

    Args:
        target: what is known of the object; its mask must not be empty.
        picture: small picture of the next image, (h, w, 3) uint8 RGB.
        width: width of the image in pixels.
        height: its height.
    """
    dx, dy, cost = find(target.picture, picture, target.mask)
    small_height, small_width = target.mask.shape
    scale_x, scale_y = width / small_width, height / small_height
    x0, y0, x1, y1 = target.box_xyxy
    margin_x, margin_y = (x1 - x0) * BOX_MARGIN, (y1 - y0) * BOX_MARGIN
    moved_x, moved_y = dx * scale_x, dy * scale_y
    box = [
        max(0.0, x0 + moved_x - margin_x),
        max(0.0, y0 + moved_y - margin_y),
        min(float(width), x1 + moved_x + margin_x),
        min(float(height), y1 + moved_y + margin_y),
    ]
    expected = moved(target.mask, dx, dy)
    x, y = innermost(expected)
    return Question(box, [[(x + 0.5) * scale_x, (y + 0.5) * scale_y]], expected, cost)


def judge(
    target: Target, question: Question, picture: Pixels, *, mask: BoolMask, area: int, score: float
) -> list[str]:
    """Return why an answer needs review; nothing if it is plausible.

    Args:
        target: what is known of the object.
        question: the prompts that were answered.
        picture: small picture of the image, (h, w, 3) uint8 RGB.
        mask: small mask of the answer, (h, w) bool.
        area: number of pixels of the answer's mask in the image.
        score: score of the answer.
    """
    if area == 0 or not mask.any():
        return ["no mask"]
    reasons = []
    if score < MIN_SCORE:
        reasons.append("low score")
    if overlap(mask, question.expected) < MIN_OVERLAP:
        reasons.append("other place")
    is_plausible = AREA_RATIOS[0] <= area / target.area <= AREA_RATIOS[1]
    is_plausible &= FIRST_AREA_RATIOS[0] <= area / target.first_area <= FIRST_AREA_RATIOS[1]
    if not is_plausible:
        reasons.append("other size")
    _, colours = colours_of(picture, mask, target.first_mean)
    if float(np.minimum(colours, target.first_colours).sum()) < MIN_COLOURS:
        reasons.append("other colours")
    mean_cost, cost = target.mean_cost, question.cost
    is_usual = cost <= MAX_COST_RATIO * mean_cost or cost <= mean_cost + MAX_COST_RISE
    if target.steps and not is_usual:
        reasons.append(LOOKS_DIFFERENT)
    return reasons


def next_target(
    target: Target,
    question: Question,
    picture: Pixels,
    *,
    mask: BoolMask,
    box_xyxy: tuple[int, int, int, int],
    area: int,
) -> Target:
    """Return what is known of an object after a plausible answer; arguments as for `judge`."""
    steps = target.steps + 1
    mean_cost = target.mean_cost + (question.cost - target.mean_cost) / steps
    return replace(
        target,
        picture=picture,
        mask=mask,
        box_xyxy=box_xyxy,
        area=area,
        steps=steps,
        mean_cost=mean_cost,
    )


def find(before: Pixels, after: Pixels, mask: BoolMask) -> tuple[int, int, float]:
    """Return how far the pixels of a mask have moved, x and y, and the cost of that place."""
    height, width = mask.shape
    rows, columns = np.nonzero(mask)
    sides = [int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1]
    radius = math.floor(SEARCHED_SHARE * max(sides))
    radius = min(MAX_SEARCHED_PIXELS, max(MIN_SEARCHED_PIXELS, radius))
    step = -(-len(rows) // MAX_SAMPLES)
    rows, columns = rows[::step], columns[::step]
    values = before[rows, columns].astype(np.int16)[:, np.newaxis]
    # Pixels outside of the picture differ from all others.
    padded = np.full((height + 2 * radius, width + 2 * radius, 3), -1000, np.int16)
    padded[radius : radius + height, radius : radius + width] = after
    stride = width + 2 * radius
    pixels = padded.reshape(-1, 3)
    shifts = np.arange(-radius, radius + 1)
    places = ((rows + radius) * stride + columns + radius)[:, np.newaxis] + shifts
    costs = np.empty((len(shifts), len(shifts)))
    for number, dy in enumerate(shifts):
        found = pixels.take(places + dy * stride, axis=0)
        differences = np.minimum(np.abs(found - values), MAX_DIFFERENCE).sum(axis=(0, 2), dtype=int)
        distances = np.sqrt((shifts * shifts + dy * dy).astype(float))
        costs[number] = differences / (3 * len(rows)) + COST_OF_DISTANCE * distances
    best_y, best_x = divmod(int(costs.argmin()), len(shifts))
    cost = float(costs[best_y, best_x])
    dx, dy = best_x - radius, best_y - radius
    if not moved(mask, dx, dy).any():
        return 0, 0, cost
    return dx, dy, cost


def moved(mask: BoolMask, dx: int, dy: int) -> BoolMask:
    """Return a small mask moved by pixels; what leaves the picture is cut off."""
    height, width = mask.shape
    result = np.zeros_like(mask)
    if abs(dx) < width and abs(dy) < height:
        part = mask[max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
        result[max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)] = part
    return result


def innermost(mask: BoolMask) -> tuple[int, int]:
    """Return the pixel, x and y, farthest from the edge of a mask that is not empty."""
    distances = np.zeros(mask.shape, int)
    inner = np.pad(mask, 1)
    while inner.any():
        distances += inner[1:-1, 1:-1]
        sides = [inner[:-2, 1:-1], inner[2:, 1:-1], inner[1:-1, :-2], inner[1:-1, 2:]]
        inner = np.pad(inner[1:-1, 1:-1] & np.logical_and.reduce(sides), 1)
    y, x = divmod(int(distances.argmax()), mask.shape[1])
    return x, y


def overlap(one: BoolMask, other: BoolMask) -> float:
    """Return the IoU of two small masks."""
    return float((one & other).sum() / max(1, int((one | other).sum())))


def colours_of(
    picture: Pixels, mask: BoolMask, first_mean: float | None
) -> tuple[float, Histogram]:
    """Return the mean of the colour values in a mask, and the shares of its colours.

    Args:
        picture: small picture, (h, w, 3) uint8 RGB.
        mask: small mask that is not empty, (h, w) bool.
        first_mean: mean that the brightness is levelled to; None: none.
    """
    values = picture[mask].astype(np.float64)
    mean = float(picture[mask].sum(dtype=np.int64)) / values.size
    if first_mean is not None:
        gain = min(MAX_GAIN, max(1 / MAX_GAIN, first_mean / max(mean, 1.0)))
        values = np.minimum(255, values * gain)
    # A value between two levels counts to both, so that small changes make small differences.
    places = np.clip(values * (LEVELS / 256) - 0.5, 0, LEVELS - 1)
    lower = np.minimum(places.astype(int), LEVELS - 2)
    upper_shares = places - lower
    colours = np.zeros(LEVELS**3)
    for corner in range(8):
        bits = np.array([corner >> 2 & 1, corner >> 1 & 1, corner & 1])
        shares = np.where(bits, upper_shares, 1 - upper_shares).prod(axis=1)
        numbers = (lower + bits) @ [LEVELS * LEVELS, LEVELS, 1]
        colours += np.bincount(numbers, shares, minlength=LEVELS**3)
    return mean, colours / len(values)
