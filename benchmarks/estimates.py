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
from orchestrator.everything import record
from orchestrator.masks import Logits, Mask, MaskPart, area_and_box, remove_small_regions, upsample
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


def hostile_masks(smooth: Logits) -> dict[str, Mask]:
    """Return masks with many or long edges, as the decoder's logits can make them."""
    noise = np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32)
    y, x = np.indices((256, 256))
    low_res = {
        "smooth": smooth,
        "noise": noise,
        "checkerboard": (x + y) % 2 - 0.5,
        "dots": (x % 2) * (y % 2) * 4.0 - 1,
        "sparse dots": (x % 8 + y % 8 == 0) * 4.0 - 1,
        "rings": np.maximum(abs(x - 128), abs(y - 128)) // 2 % 2 - 0.5,
        "empty": np.full((256, 256), -1.0),
    }
    frame_hw = images.frame_size_hw(SIZE_HW)
    return {name: upsample(np.asarray(logits, np.float32), frame_hw, SIZE_HW) > 0 for name, logits in low_res.items()}


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
    rows += [
        (
            f"small regions removed: {name}, below {area:g}",
            nanoseconds(partial(remove_small_regions, noisy, area)),
            costs.TIDY_NS,
        )
        for name, noisy in hostile_masks(low_res).items()
        for area in (2, 1000, 10**9)
    ]
    crop = (0, 0, SIZE_HW[1], SIZE_HW[0])
    logits = upsample(low_res, frame_hw, SIZE_HW).copy()
    options = {"stability_score_thresh": 0.0, "stability_score_offset": 1.0, "min_mask_region_area": 10**9}
    candidate = partial(record, logits, 1.0, np.zeros(2, np.float32), crop=crop, size_hw=SIZE_HW, options=options)
    estimate = 1e9 * (costs.batch_s(1, PIXELS, PIXELS, tidy=True) - costs.PROMPT_S) / PIXELS / costs.CANDIDATES
    rows.append(("a candidate of `/everything`", nanoseconds(candidate), estimate - costs.UPSAMPLE_NS))
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
