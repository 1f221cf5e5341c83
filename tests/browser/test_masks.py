"""The page's functions on masks give the same as pycocotools and NumPy."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Error
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
    """Return the pixels in the mask, (H, W) bool, and those painted at every `step`-th pixel and
    row, bool.
    """
    properties = encode(mask)
    found = modules.evaluate(
        DECODE_AND_PAINT, [properties.pop("rle"), {"score": 1, **properties}, step]
    )
    painted = np.zeros(mask[::step, ::step].shape, bool)
    if "rgba" in found:
        rgba, left, top = np.array(found["rgba"]).reshape(found["shape"]), found["x"], found["y"]
        assert {tuple(pixel) for pixel in rgba.reshape(-1, 4)} <= {
            (0, 0, 0, 0),
            (0x33, 0x22, 0x11, 0xFF),
        }
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
        assert filled == {
            "counts": wanted["rle"]["counts"],
            "area": wanted["area"],
            "box": wanted["box"],
        }, name


READ = """async (content) => {
  const { readProject } = await import(new URL("ui/formats/formats.js", document.baseURI));
  return readProject([{ path: content.startsWith("<") ? "set/Annotations/a.xml" : "a.json", content }]);
}"""


def read_labelme(modules, png: bytes) -> dict:
    """Return the project in a LabelMe file with one mask, and the warnings."""
    corners = [[5, 3], [5 + HOLES.shape[1] - 1, 3 + HOLES.shape[0] - 1]]
    shape = {
        "label": "cat",
        "shape_type": "mask",
        "points": corners,
        "mask": base64.b64encode(png).decode(),
    }
    size = {"imageWidth": 100, "imageHeight": 80}
    found: dict = modules.evaluate(
        READ, json.dumps({"imagePath": "a.jpg", **size, "shapes": [shape]})
    )
    return found


def png_of_holes(mode: str) -> bytes:
    content = io.BytesIO()
    Image.fromarray(HOLES).convert("L").convert("RGB").convert(mode).save(content, "PNG")
    return content.getvalue()


def test_labelme_masks_of_all_kinds_are_read_and_damaged_ones_left_out(modules):
    expected = np.zeros((80, 100), bool)
    expected[3 : 3 + HOLES.shape[0], 5 : 5 + HOLES.shape[1]] = HOLES
    for mode in ("L", "1", "P", "RGB", "RGBA", "LA"):
        found = read_labelme(modules, png_of_holes(mode))
        assert found["warnings"] == []
        assert found["project"]["images"][0]["objects"][0]["rle"] == encode(expected)["rle"], mode
    png = png_of_holes("L")
    for damaged in (
        png[:60],
        png[:16] + (20_000).to_bytes(4, "big") * 2 + png[24:],
        png[:50] + bytes(len(png) - 50),
    ):
        found = read_labelme(modules, damaged)
        assert found["project"]["images"][0]["objects"] == []
        assert "shape was left out" in found["warnings"][0]


def test_pascal_voc_boxes_are_read_and_damaged_objects_left_out(modules):
    box = (
        "<name>cat</name><bndbox><xmin>3</xmin><ymin>2</ymin><xmax>12</xmax><ymax>6</ymax></bndbox>"
    )
    damaged = (
        "<name>cat</name>",
        box.replace("cat", ""),
        box.replace("12", "x"),
        f"{box}<polygon><x1>1</x1></polygon>",
    )
    objects = "".join(f"<object>{content}</object>" for content in (box, *damaged))
    size = "<size><width>100</width><height>80</height></size>"
    found = modules.evaluate(
        READ, f"<annotation><filename>b.jpg</filename>{size}{objects}</annotation>"
    )
    (image,) = found["project"]["images"]
    expected = np.zeros((80, 100), bool)
    expected[1:6, 2:12] = True
    assert image["name"] == "set/b.jpg"
    assert [one["rle"] for one in image["objects"]] == 2 * [encode(expected)["rle"]]
    assert [one["name"] for one in image["objects"]] == ["cat", "object"]
    assert found["warnings"] == [
        "an object has only a box: its mask is the whole box (2 times)",
        "set/b.jpg: an object was left out: it has neither a polygon nor a box (bndbox)",
        'an object without a name was named "object"',
        (
            "set/b.jpg: an object was left out: its box must have the numbers xmin, ymin, xmax and"
            " ymax"
        ),
        (
            "set/b.jpg: an object was left out: a polygon must have at least three points x1, y1,"
            " x2, y2, ... of numbers"
        ),
    ]
    for text, reason in (
        ("<annotation>", "not valid XML"),
        ("<html/>", "not Pascal VOC, with annotation as the root"),
    ):
        with pytest.raises(Error, match=rf"a\.xml: {reason}"):
            modules.evaluate(READ, text)
