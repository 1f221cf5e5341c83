"""Times of masks, pictures and images on one core, next to the estimates (`make bench-estimates`).

The orchestrator rejects requests by the estimates in `orchestrator.costs`, so they should fit the machine. Figures are
nanoseconds per pixel of an image of 25 megapixels with the most expensive content.
"""

import io
import sys
from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
from PIL import Image

from benchmarks.figures import seconds
from orchestrator import costs, images
from orchestrator.masks import MaskPart, area_and_box, remove_small_regions, upsample
from orchestrator.pictures import Picture

SIZE_HW = (5000, 5000)
PIXELS = SIZE_HW[0] * SIZE_HW[1]
RUNS = 3


def nanoseconds(work: Callable[[], object]) -> float:
    """Return the time per pixel of the fastest run."""
    return 1e9 * min(seconds(work) for _ in range(RUNS)) / PIXELS


def decode(data: bytes) -> images.RGB:
    """Return the pixels of an image file."""
    return images.decode(images.open_image(data, PIXELS))


def main() -> int:
    """Print the table; return the exit status."""
    cv2.setNumThreads(1)
    generator = np.random.default_rng(0)
    low_res = np.asarray(
        cv2.GaussianBlur(generator.standard_normal((256, 256)).astype(np.float32), (0, 0), 2), np.float32
    )
    small = generator.integers(0, 256, (50, 50, 3), np.uint8)
    pixels = np.asarray(Image.fromarray(small).resize(SIZE_HW[::-1], Image.Resampling.BICUBIC))
    frame_hw = images.frame_size_hw(SIZE_HW)
    mask = upsample(low_res, frame_hw, SIZE_HW) > 0

    def make_mask() -> None:
        area_and_box(upsample(low_res, frame_hw, SIZE_HW) > 0)

    def make_part(mask_format: str) -> None:
        part = MaskPart(mask_format, SIZE_HW, None)
        part.add(mask)
        part.encode()

    rows = [("a mask", nanoseconds(make_mask), costs.UPSAMPLE_NS)]
    rows.append(("small regions removed", nanoseconds(partial(remove_small_regions, mask, 100)), costs.TIDY_NS))
    rows += [(f"as {name}", nanoseconds(partial(make_part, name)), ns) for name, ns in costs.FORMAT_NS.items()]
    for style in ("overlay", "cutout"):
        picture = Picture(pixels, style)
        rows.append((f"an object in {style}", nanoseconds(partial(picture.add, mask)), costs.DRAW_NS[style]))
        rows.append((f"{style} written", nanoseconds(picture.encode), costs.PICTURE_NS[style]))
    for kind in ("JPEG", "PNG", "WEBP"):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        decoded = nanoseconds(partial(decode, file.getvalue()))
        rows.append((f"{kind} decoded", decoded, costs.DECODE_NS if kind == "JPEG" else costs.PICTURE_NS["overlay"]))
    rows.append(("scaled for the encoder", nanoseconds(partial(images.to_frame, pixels)), costs.DECODE_NS))
    print("| | ns per pixel | estimate |\n|---|---|---|")
    for what, measured, estimate in rows:
        print(f"| {what} | {measured:.1f} | {estimate:g} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
