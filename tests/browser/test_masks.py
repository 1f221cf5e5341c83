"""The page's functions on masks give the same as pycocotools and NumPy."""

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

PAIRS = {
    "noise": [GENERATOR.random((41, 53)) > share for share in (0.4, 0.6)],
    "full and empty": [np.ones((6, 7), bool), np.zeros((6, 7), bool)],
    "itself": [np.tri(30, 20, dtype=bool)] * 2,
    "first and last pixel": [np.arange(30).reshape(5, 6) == 0, np.arange(30).reshape(5, 6) == 29],
}
HOLES = np.pad(np.ones((50, 80), bool), 5)
HOLES[15:30, 15:40] = HOLES[35:41, 60:70] = False
ISLAND_IN_A_HOLE = HOLES.copy()
ISLAND_IN_A_HOLE[20:24, 22:30] = True

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


def encode(mask: np.ndarray) -> dict:
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    x, y, width, height = (int(side) for side in coco_mask.toBbox(rle))
    counts = {"size": rle["size"], "counts": rle["counts"].decode()}
    return {"rle": counts, "area": int(mask.sum()), "box": [x, y, x + width, y + height]}


def decode_and_paint(modules, mask: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels in the mask, (H, W) bool, and those painted at every `step`-th pixel and row, bool."""
    properties = encode(mask)
    found = modules.evaluate(DECODE_AND_PAINT, [properties.pop("rle"), {"score": 1, **properties}, step])
    painted = np.zeros(mask[::step, ::step].shape, bool)
    if "rgba" in found:
        rgba, left, top = np.array(found["rgba"]).reshape(found["shape"]), found["x"], found["y"]
        assert {tuple(pixel) for pixel in rgba.reshape(-1, 4)} <= {(0, 0, 0, 0), (0x33, 0x22, 0x11, 0xFF)}
        painted[top : top + rgba.shape[0], left : left + rgba.shape[1]] = rgba[..., 3] > 0
    return np.array(found["inside"], bool).reshape(mask.shape), painted


@pytest.mark.parametrize("step", [1, 2, 3])
def test_masks_match_pycocotools(modules, step):
    for name, mask in MASKS.items():
        inside, painted = decode_and_paint(modules, mask, step)
        assert np.array_equal(inside, mask), name
        assert np.array_equal(painted, mask[::step, ::step]), name


BOX = (3, 1, 5, 4)
OPERATE = """async ([one, other, box]) => {
  const at = (name) => import(new URL(`ui/${name}.js`, document.baseURI));
  const [{ Mask }, { overlap, clipped, scaled }] = [await at("rle"), await at("regions")];
  const [first, second] = [one, other].map(({ rle, ...properties }) => new Mask(rle, { score: 1, ...properties }));
  const size = { width: Math.floor(first.width * 2.5), height: first.height * 3 };
  const record = ({ width, height, counts, area, box }) => ({ size: [height, width], counts, area, box });
  return { iou: overlap(first, second), clipped: record(clipped(first, box)), scaled: record(scaled(first, size)) };
}"""


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_operations_on_masks_match_numpy(modules, pair):
    one, other = pair
    done = modules.evaluate(OPERATE, [encode(one), encode(other), BOX])
    assert done["iou"] == pytest.approx((one & other).sum() / max((one | other).sum(), 1))
    inside = np.zeros_like(one)
    inside[BOX[1] : BOX[3] + 1, BOX[0] : BOX[2] + 1] = True
    width = one.shape[1] * 5 // 2
    columns = ((np.arange(width) + 0.5) * one.shape[1] / width).astype(int)
    for name, expected in (("clipped", one & inside), ("scaled", one.repeat(3, 0)[:, columns])):
        assert np.array_equal(coco_mask.decode(done[name]).astype(bool), expected), name
        assert done[name]["area"] == expected.sum()
        assert done[name]["box"] == encode(expected)["box"]


COLOURS = """async () => {
  const { colourOf } = await import(new URL("ui/colours.js", document.baseURI));
  return Array.from({ length: 100 }, (_, index) => colourOf(index + 1));
}"""


def test_hundred_objects_have_distinct_visible_colours(modules):
    colours = modules.evaluate(COLOURS)
    assert len(set(colours)) == 100
    rgb = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours])
    assert ((rgb.max(1) - rgb.min(1)) > 60).all()  # none is grey
    first = rgb[:20].astype(int)
    assert min(np.abs(a - b).sum() for at, a in enumerate(first) for b in first[:at]) > 50


TRACE_AND_FILL = """async ([rle, tolerance]) => {
  const { Mask } = await import(new URL("ui/rle.js", document.baseURI));
  const { trace, fill } = await import(new URL("ui/vertices.js", document.baseURI));
  const mask = new Mask(rle, { score: 1, area: 1, box: [0, 0, rle.size[1], rle.size[0]] });
  const { counts, area, box } = fill(trace(mask, tolerance), mask);
  return { counts, area, box };
}"""


@pytest.mark.parametrize("tolerance", [0, 0.7, 3, 20])
def test_outlines_that_are_not_changed_give_the_same_mask(modules, tolerance):
    for name, mask in {**MASKS, "holes": HOLES, "an island in a hole": ISLAND_IN_A_HOLE}.items():
        wanted = encode(mask)
        filled = modules.evaluate(TRACE_AND_FILL, [wanted["rle"], tolerance])
        assert filled == {"counts": wanted["rle"]["counts"], "area": wanted["area"], "box": wanted["box"]}, name
