"""The page decodes and paints RLE masks like pycocotools."""

from __future__ import annotations

import numpy as np
import pytest
from pycocotools import mask as coco_mask

GENERATOR = np.random.default_rng(0)

MASKS = {
    "empty": np.zeros((5, 7), bool),
    "full": np.ones((5, 7), bool),
    "a column": np.arange(30).reshape(5, 6) % 6 == 2,
    "the first and the last pixel": np.isin(np.arange(30).reshape(5, 6), [0, 29]),
    "noise": GENERATOR.random((61, 83)) > 0.5,
    "one pixel high": GENERATOR.random((1, 300)) > 0.3,
    "one pixel wide": GENERATOR.random((300, 1)) > 0.3,
}

DECODE_AND_PAINT = """async ([rle, properties, step]) => {
  const { Mask } = await import(new URL("ui/rle.js", document.baseURI));
  const mask = new Mask(rle, properties);
  const painted = mask.pixels(step, 0xff112233);
  const inside = [];
  for (let y = 0; y < mask.height; y++) for (let x = 0; x < mask.width; x++) inside.push(mask.has(x, y));
  if (!painted) return { inside };
  const { x, y, pixels } = painted;
  return { inside, x, y, shape: [pixels.height, pixels.width, 4], rgba: [...pixels.data] };
}"""


def decode_and_paint(person, mask: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels in the mask, (H, W) bool, and those painted at every `step`-th pixel and row, bool."""
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    x, y, width, height = (int(side) for side in coco_mask.toBbox(rle))
    properties = {"score": 1, "area": int(mask.sum()), "box": [x, y, x + width, y + height]}
    found = person.page.evaluate(
        DECODE_AND_PAINT, [{"size": rle["size"], "counts": rle["counts"].decode()}, properties, step]
    )
    painted = np.zeros(mask[::step, ::step].shape, bool)
    if "rgba" in found:
        rgba, left, top = np.array(found["rgba"]).reshape(found["shape"]), found["x"], found["y"]
        assert {tuple(pixel) for pixel in rgba.reshape(-1, 4)} <= {(0, 0, 0, 0), (0x33, 0x22, 0x11, 0xFF)}
        painted[top : top + rgba.shape[0], left : left + rgba.shape[1]] = rgba[..., 3] > 0
    return np.array(found["inside"], bool).reshape(mask.shape), painted


@pytest.mark.parametrize("step", [1, 2, 3])
def test_masks_match_pycocotools(person, step):
    for name, mask in MASKS.items():
        inside, painted = decode_and_paint(person, mask, step)
        assert np.array_equal(inside, mask), name
        assert np.array_equal(painted, mask[::step, ::step]), name
