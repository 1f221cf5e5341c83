"""Pictures as the service sees them, turned by its rule and stretched from 16 bits; no mask is
shown on another one.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from playwright.sync_api import Route, expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import PageDriver
from tests.browser.test_project import reload, wait_saved

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (210, 30, 30),
    "green": (30, 170, 60),
    "blue": (40, 60, 200),
    "white": (245, 245, 245),
}
WIDE, SQUARE = (240, 160), (200, 200)
MIN_IOU = 0.9
MAX_DIFFERENCE = 8
"""Of JPEG files and of scaled thumbnails, in values of 8 bits."""
PIXELS = """async (picture) => {
  await picture.decode();
  const { naturalWidth: width, naturalHeight: height } = picture, canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const bytes = new Uint8Array(context.getImageData(0, 0, width, height).data.buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 10000) text += String.fromCharCode(...bytes.subarray(at, at + 10000));
  return { width, height, data: btoa(text) };
}"""
FORMATS = {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
OTHER_TURN = "is turned by the EXIF orientation"


def split(size: tuple[int, int]) -> tuple[int, int]:
    """Return the column and the row that begin the right and the lower quarters as stored: not
    in the middle.
    """
    width, height = size
    return 5 * width // 8, 3 * height // 8


def quarters(size: tuple[int, int]) -> np.ndarray:
    """Return the picture as stored, (H, W, 3) uint8 RGB."""
    (width, height), (column, row) = size, split(size)
    picture = np.zeros((height, width, 3), np.uint8)
    (
        picture[:row, :column],
        picture[:row, column:],
        picture[row:, :column],
        picture[row:, column:],
    ) = COLOURS.values()
    return picture


def saved(pixels: np.ndarray, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def exif(orientation: int, kind: int = 3) -> bytes:
    """Return TIFF data with one entry, the orientation: a SHORT, or of another type."""
    value = struct.pack("<HH", orientation, 0) if kind == 3 else struct.pack("<I", orientation)
    return b"II*\0" + struct.pack("<IHHHI", 8, 1, 0x112, kind, 1) + value + bytes(4)


def xmp(orientation: int) -> bytes:
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    description = (
        '<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'
        f' tiff:Orientation="{orientation}"/>'
    )
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF'
        f' xmlns:rdf="{rdf}">{description}</rdf:RDF></x:xmpmeta>'.encode()
    )


def jpeg(size: tuple[int, int], payload: bytes) -> bytes:
    """Return a JPEG file with a segment APP1."""
    file = saved(quarters(size), "JPEG", quality=95)
    return file[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + file[2:]


def exif_jpeg(size: tuple[int, int], orientation: int, kind: int = 3) -> bytes:
    return jpeg(size, b"Exif\0\0" + exif(orientation, kind))


def chunk(name: bytes, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))
        + name
        + payload
        + struct.pack(">I", zlib.crc32(name + payload))
    )


def png(size: tuple[int, int], name: bytes, payload: bytes, *, is_late: bool = False) -> bytes:
    """Return a PNG file with a chunk before or after the pixels."""
    file = saved(quarters(size), "PNG")
    at = file.rindex(b"IEND") - 4 if is_late else 33
    return file[:at] + chunk(name, payload) + file[at:]


def webp(size: tuple[int, int], orientation: int) -> bytes:
    return saved(quarters(size), "WEBP", lossless=True, exif=b"Exif\0\0" + exif(orientation))


ITXT = b"XML:com.adobe.xmp\0\0\0\0\0"
FILES = {
    "exif3.jpg": (exif_jpeg(WIDE, 3), WIDE, 3),
    "exif5.jpg": (exif_jpeg(WIDE, 5), WIDE, 5),
    "exif6.jpg": (exif_jpeg(WIDE, 6), WIDE, 6),
    "square7.jpg": (exif_jpeg(SQUARE, 7), SQUARE, 7),
    "square3.jpg": (exif_jpeg(SQUARE, 3), SQUARE, 3),
    "exif8.png": (png(WIDE, b"eXIf", exif(8)), WIDE, 8),
    "square3.png": (png(SQUARE, b"eXIf", exif(3)), SQUARE, 3),
    "long6.jpg": (exif_jpeg(WIDE, 6, 4), WIDE, 1),
    "xmp3.jpg": (jpeg(SQUARE, b"http://ns.adobe.com/xap/1.0/\0" + xmp(3)), SQUARE, 1),
    "late6.png": (png(WIDE, b"eXIf", exif(6), is_late=True), WIDE, 1),
    "xmp6.png": (png(WIDE, b"iTXt", ITXT + xmp(6)), WIDE, 1),
    "exif6.webp": (webp(WIDE, 6), WIDE, 1),
    "square3.webp": (webp(SQUARE, 3), SQUARE, 1),
}
"""Files with their size as stored, and the orientation by which they are displayed."""


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return stored pixels, (H, W) or (H, W, C), as displayed."""
    sides = [1, 0, *range(2, pixels.ndim)]
    flipped = {2: [1], 3: [0, 1], 4: [0], 6: [1], 7: [0, 1], 8: [0]}.get(orientation, [])
    return np.flip(pixels.transpose(sides) if orientation >= 5 else pixels, flipped)


def displayed(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    width, height = size
    return (height, width) if orientation >= 5 else size


def expect_picture(
    driver: PageDriver, size: tuple[int, int], orientation: int, number: int = 1
) -> None:
    """Compare the picture and the thumbnail of the image with this number in the list with the
    turned picture.
    """
    expected = turned(quarters(size), orientation)
    width, height = displayed(size, orientation)
    label = re.compile(f", {width} by {height} pixels")
    expect(driver.page.get_by_role("application")).to_have_attribute("aria-label", label)
    for selector in ("#picture", f"#image-list li:nth-child({number}) img"):
        found = picture_of(driver, selector)[..., :3]
        scaled = cv2.resize(
            np.ascontiguousarray(expected), found.shape[1::-1], interpolation=cv2.INTER_AREA
        )
        assert np.abs(found.astype(int) - scaled).mean() < MAX_DIFFERENCE


def blue(size: tuple[int, int], orientation: int) -> np.ndarray:
    """Return where the displayed picture is blue, (H, W) bool."""
    return np.asarray((turned(quarters(size), orientation) == COLOURS["blue"]).all(axis=2))


def middle(mask: np.ndarray) -> tuple[int, int]:
    """Return the middle of a rectangle, x then y."""
    ys, xs = np.nonzero(mask)
    return int(xs.mean()), int(ys.mean())


def picture_of(driver: PageDriver, selector: str = "#picture") -> np.ndarray:
    """Return the pixels that the browser shows for an image element, (H, W, 4) uint8 RGBA."""
    found = driver.page.locator(selector).evaluate(PIXELS)
    return np.frombuffer(base64.b64decode(found["data"]), np.uint8).reshape(
        found["height"], found["width"], 4
    )


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


def open_file(driver: PageDriver, folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    driver.open(folder / name)


def click_blue(driver: PageDriver, size: tuple[int, int], orientation: int) -> np.ndarray:
    """Click on the blue quarter, and return the mask, which must be of this quarter."""
    expected = blue(size, orientation)
    driver.click(*middle(expected))
    mask = driver.visible_mask()
    assert iou(mask, expected) > MIN_IOU
    return mask


def change_answers(driver: PageDriver, path: str = "**/*", **fields: Any) -> None:
    """Change fields of the service's answers about images."""

    def handle(route: Route) -> None:
        response = route.fetch()
        document = {**response.json(), **fields}
        kept = {name: value for name, value in document.items() if value is not None}
        route.fulfill(response=response, json=kept)

    for request in ("**/embed", "**/mobile_sam"):
        if path in ("**/*", request):
            driver.page.route(request, handle)


def expect_refused(driver: PageDriver, reason: str) -> None:
    alert = driver.page.get_by_role("alert")
    expect(alert).to_contain_text("The service sees another picture.")
    expect(alert).to_contain_text(reason)


@pytest.mark.parametrize("name", FILES)
def test_picture_thumbnail_and_mask_are_those_of_the_service(driver, tmp_path, name):
    content, size, orientation = FILES[name]
    open_file(driver, tmp_path, name, content)
    expect_picture(driver, size, orientation)
    mask = click_blue(driver, size, orientation)
    driver.assert_mask_is_the_apis(pos_coords=[middle(blue(size, orientation))])
    expect(driver.page.get_by_role("alert")).to_be_hidden()

    reload(driver)
    expect_picture(driver, size, orientation)
    assert np.array_equal(driver.visible_mask("others"), mask)


TURNS_NOTHING = """
window.kinds = {};
const { createObjectURL } = URL;
URL.createObjectURL = (file) => {
  const url = createObjectURL.call(URL, file);
  kinds[url] = file.type;
  return url;
};
const { createImageBitmap: create } = window;
window.createImageBitmap = async (source, options) => {
  const bitmap = await create(source, options);
  return bitmap.width * bitmap.height === 2 ? create(bitmap, { resizeWidth: 2, resizeHeight: 1 }) : bitmap;
};
"""
"""A browser that seems not to turn the file of two pixels by which the page finds out whether it
turns files."""


def test_browser_that_turns_no_files_shows_pixels_that_are_turned(open_page, tmp_path):
    with open_page(script=TURNS_NOTHING) as driver:
        for orientation in range(2, 9):
            open_file(driver, tmp_path, f"{orientation}.jpg", exif_jpeg(WIDE, orientation))
            expect_picture(driver, WIDE, orientation, orientation - 1)
            click_blue(driver, WIDE, orientation)
            source = driver.page.locator("#picture").get_attribute("src")
            assert driver.page.evaluate("url => kinds[url]", source) == "image/png"


def annotate_all(driver: PageDriver, folder: Path) -> None:
    """Open all files, and annotate the blue quarter of each."""
    for name, (content, size, orientation) in FILES.items():
        open_file(driver, folder, name, content)
        click_blue(driver, size, orientation)
    wait_saved(driver)


def test_exported_images_fit_their_masks_also_for_programs_that_turn_by_other_rules(
    driver, tmp_path
):
    annotate_all(driver, tmp_path)
    archive = zipfile.ZipFile(io.BytesIO(driver.export("coco")))
    document = json.loads(archive.read("annotations/instances.json"))
    masks = {
        one["image_id"]: coco_mask.decode(one["segmentation"]).astype(bool)
        for one in document["annotations"]
    }
    assert len(masks) == len(FILES)
    for image in document["images"]:
        content, mask = archive.read(f"images/{image['file_name']}"), masks[image["id"]]
        encoded = np.frombuffer(content, np.uint8)
        as_stored = cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        by_opencv = cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB)
        with Image.open(io.BytesIO(content)) as opened:
            assert opened.format == FORMATS[Path(image["file_name"]).suffix]
            pictures = [as_stored, by_opencv, turned_by_pillow(opened)]
        for picture in pictures:
            assert picture.shape[:2] == mask.shape
            assert np.abs(picture[mask].mean(axis=0) - COLOURS["blue"]).max() < 6


def turned_by_pillow(image: Image.Image) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def test_saved_project_keeps_files_and_how_they_are_turned(driver, open_page, tmp_path):
    annotate_all(driver, tmp_path)
    driver.press_button("Export")
    content = driver.save("Save project")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for number, (name, (file, *_)) in enumerate(FILES.items(), 1):
            assert archive.read(f"images/{number}/{name}") == file
    (tmp_path / "project.zip").write_bytes(content)
    with open_page() as other:
        other.page.set_input_files("#annotations", tmp_path / "project.zip")
        expect(other.page.locator("#image-list li")).to_have_count(len(FILES))
        for number, (name, (_, size, orientation)) in enumerate(FILES.items(), 1):
            other.page.locator(f"#image-list li:nth-child({number}) > button").first.click()
            expect(other.page.get_by_role("application")).to_have_attribute(
                "aria-label", re.compile(f"^{name}")
            )
            expect_picture(other, size, orientation, number)
            assert iou(other.visible_mask("others"), blue(size, orientation)) > MIN_IOU


@pytest.mark.parametrize(("drawn", "seen"), [(3, 1), (1, 2), (6, 8)])
def test_image_is_drawn_as_the_service_turns_it(driver, tmp_path, drawn, seen):
    change_answers(driver, orientation=seen)
    (tmp_path / "a.jpg").write_bytes(exif_jpeg(SQUARE, drawn))
    driver.page.set_input_files("#file", tmp_path / "a.jpg")
    expect(driver.page.locator("#hint")).to_contain_text(OTHER_TURN)
    driver.wait_encoded(tmp_path / "a.jpg")
    expect_picture(driver, SQUARE, seen)
    expect(driver.page.get_by_role("alert")).to_be_hidden()
    driver.click(*middle(blue(SQUARE, seen)))
    assert driver.visible_mask().any()
    reload(driver)
    expect_picture(driver, SQUARE, seen)


def test_image_whose_sides_the_service_exchanges_is_drawn_so(driver, tmp_path):
    change_answers(driver, orientation=6, width=WIDE[1], height=WIDE[0])
    (tmp_path / "a.png").write_bytes(saved(quarters(WIDE), "PNG"))
    driver.page.set_input_files("#file", tmp_path / "a.png")
    expect(driver.page.locator("#hint")).to_contain_text(OTHER_TURN)
    driver.wait_encoded(tmp_path / "a.png")
    expect_picture(driver, WIDE, 6)


def test_mask_of_another_turn_is_refused_if_there_are_objects(driver, tmp_path):
    open_file(driver, tmp_path, "a.jpg", exif_jpeg(SQUARE, 3))
    mask = click_blue(driver, SQUARE, 3)
    change_answers(driver, orientation=1)
    driver.press("n")
    driver.page.mouse.click(*driver.screen_xy(*middle(~blue(SQUARE, 3))))
    expect_refused(
        driver, f"{OTHER_TURN} 1 there, and by 3 here. No mask is shown on another picture"
    )
    assert np.array_equal(driver.visible_mask("others"), mask)
    assert not driver.visible_mask().any()
    expect_picture(driver, SQUARE, 3)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another size": (
        {"orientation": 1, "width": 77, "height": 55},
        "Something between this page and the service",
    ),
    "pixels turned on the way": ({"orientation": 1}, "Something between this page and the service"),
    "older service": (
        {"orientation": None, "width": WIDE[0], "height": WIDE[1]},
        "This service is older than the page",
    ),
    "no orientation": ({"orientation": 9}, "Something between this page and the service"),
    "another file": ({"image_id": "0" * 64}, "The service got another file than a.jpg"),
    "values of 8 bits": ({"range": [0, 4095]}, "is seen with values 0 to 4095 there"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_answer_about_another_picture_is_refused(driver, tmp_path, case):
    fields, reason = REFUSED[case]
    change_answers(driver, **fields)
    (tmp_path / "a.jpg").write_bytes(exif_jpeg(WIDE, 6))
    driver.page.set_input_files("#file", tmp_path / "a.jpg")
    expect_refused(driver, reason)
    expect(driver.page.locator("#about")).to_be_empty()
    driver.press_button("Dismiss this message")
    driver.page.mouse.click(*driver.screen_xy(40, 60))
    expect_refused(driver, reason)
    assert not driver.visible_mask().any()


def test_services_that_turn_by_turns_are_refused(driver, tmp_path):
    """Two versions behind one address: the image is drawn anew once, not for ever."""
    number = 0

    def handle(route: Route) -> None:
        nonlocal number
        number += 1
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "orientation": 1 + number % 2})

    driver.page.route("**/embed", handle)
    (tmp_path / "a.png").write_bytes(saved(quarters(SQUARE), "PNG"))
    driver.page.set_input_files("#file", tmp_path / "a.png")
    expect_refused(driver, OTHER_TURN)
    assert number == 2


def test_mask_of_another_size_is_refused(driver, tmp_path):
    open_file(driver, tmp_path, "a.png", saved(quarters(WIDE), "PNG"))
    square = coco_mask.encode(np.ones((160, 160), np.uint8, order="F"))
    rle = {"size": [160, 160], "counts": square["counts"].decode()}
    mask = {"rle": rle, "score": 1, "area": 160 * 160, "box": [0, 0, 160, 160]}
    change_answers(driver, "**/mobile_sam", masks=[mask])
    driver.page.mouse.click(*driver.screen_xy(40, 40))
    expect_refused(driver, "A mask has 160 x 160 pixels, and a.png 240 x 160: it is not shown.")
    assert not driver.visible_mask().any()


STORE_SIZE = """() => new Promise((resolve) => {
  indexedDB.open("mobile-sam").onsuccess = ({ target: { result } }) => {
    const store = result.transaction("images", "readwrite").objectStore("images");
    store.get(1).onsuccess = ({ target: { result: image } }) => {
      [image.width, image.height] = [image.height, image.width];
      store.put(image).onsuccess = resolve;
    };
  };
})"""


def test_image_that_was_stored_with_another_size_is_refused(driver, tmp_path):
    open_file(driver, tmp_path, "a.jpg", exif_jpeg(WIDE, 6))
    wait_saved(driver)
    driver.page.evaluate(STORE_SIZE)
    driver.page.reload()
    expected = (
        "a.jpg was stored with 240 x 160 pixels, but its file has 160 x 240: another program"
        " turned it."
    )
    expect(driver.page.get_by_role("alert")).to_contain_text(expected)
    expect(driver.page.get_by_role("application")).to_be_hidden()


DISC_AT, DISC_RADIUS, DEEP_SIZE = (150, 160), 60, (480, 320)


def disc() -> np.ndarray:
    """Return where the bright disc of `deep` is, (H, W) bool."""
    ys, xs = np.mgrid[: DEEP_SIZE[1], : DEEP_SIZE[0]]
    return np.asarray(np.hypot(xs - DISC_AT[0], ys - DISC_AT[1]) <= DISC_RADIUS)


def deep(low: int, high: int) -> np.ndarray:
    """Return a grey image of 16 bits, (H, W) uint16: a bright disc, and a ground with a little
    noise.
    """
    noise = np.random.default_rng(0).normal(0, (high - low) / 40, DEEP_SIZE[::-1])
    values = np.where(disc(), high - (high - low) // 5, low + (high - low) // 5) + noise
    return np.asarray(values.clip(low, high), np.uint16)


def percentiles(values: np.ndarray) -> tuple[int, int]:
    low, high = np.percentile(values, [0.1, 99.9], method="inverted_cdf").tolist()
    return low, high


def stretched(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.asarray(
        np.floor(255 * np.clip((values.astype(int) - low) / (high - low), 0, 1) + 0.5), np.uint8
    )


@pytest.mark.parametrize(("low", "high"), [(0, 255), (500, 1700), (0, 4095)], ids=str)
def test_image_of_16_bits_is_shown_with_its_own_range_and_clicked(driver, tmp_path, low, high):
    values = deep(low, high)
    open_file(driver, tmp_path, "scan.png", saved(values, "PNG"))
    limits = percentiles(values)
    expected = stretched(values, *limits)
    assert expected.mean() > 30
    for selector in ("#picture", "#image-list img"):
        picture = picture_of(driver, selector)
        assert picture[..., :3].mean() == pytest.approx(expected.mean(), abs=4)
    assert np.array_equal(picture_of(driver)[..., :3], np.repeat(expected[..., None], 3, axis=2))
    shown = f"16-bit image, shown with values {limits[0]} to {limits[1]}"
    expect(driver.page.locator("#range")).to_have_text(shown)
    driver.click(*DISC_AT)
    assert iou(driver.visible_mask(), disc()) > MIN_IOU
    with Image.open(io.BytesIO(driver.save("Cutout"))) as cutout:
        rgba = np.array(cutout)
    assert np.array_equal(rgba[..., 0][rgba[..., 3] > 0], expected[rgba[..., 3] > 0])
    with zipfile.ZipFile(io.BytesIO(driver.export("coco"))) as archive:
        assert archive.read("images/scan.png") == (tmp_path / "scan.png").read_bytes()

    reload(driver)
    assert np.array_equal(picture_of(driver)[..., 0], expected)
    expect(driver.page.locator("#range")).to_be_visible()


def test_image_of_8_bits_has_no_range(driver, tmp_path):
    open_file(driver, tmp_path, "a.png", saved(quarters(WIDE), "PNG"))
    expect(driver.page.locator("#range")).to_be_hidden()


def test_turned_image_of_16_bits_is_shown_and_exported_upright(driver, tmp_path):
    values = deep(0, 4095)
    file = saved(values, "PNG")
    file = file[:33] + chunk(b"eXIf", exif(8)) + file[33:]
    open_file(driver, tmp_path, "scan.png", file)
    upright = np.rot90(values)
    assert np.array_equal(picture_of(driver)[..., 0], stretched(upright, *percentiles(values)))
    x, y = DISC_AT[1], DEEP_SIZE[0] - 1 - DISC_AT[0]
    driver.click(x, y)
    assert iou(driver.visible_mask(), np.rot90(disc())) > MIN_IOU
    with zipfile.ZipFile(io.BytesIO(driver.export("coco"))) as archive:
        content = np.frombuffer(archive.read("images/scan.png"), np.uint8)
    assert np.array_equal(cv2.imdecode(content, cv2.IMREAD_UNCHANGED), upright)


@pytest.mark.parametrize(
    ("seen", "text"),
    [([1000, 2000], "values 1000 to 2000"), (None, "the upper byte of its values")],
    ids=["another range", "older service"],
)
def test_image_of_16_bits_is_drawn_as_the_service_stretches_it(driver, tmp_path, seen, text):
    values = deep(0, 4095)
    change_answers(driver, range=seen)
    (tmp_path / "scan.png").write_bytes(saved(values, "PNG"))
    driver.page.set_input_files("#file", tmp_path / "scan.png")
    expect(driver.page.locator("#range")).to_have_text(f"16-bit image, shown with {text}")
    driver.wait_encoded(tmp_path / "scan.png")
    expected = values >> 8 if seen is None else stretched(values, *seen)
    assert np.array_equal(picture_of(driver)[..., 0], expected)
    expect(driver.page.get_by_role("alert")).to_be_hidden()


def test_damaged_image_of_16_bits_is_listed(driver, tmp_path):
    content = saved(deep(0, 4095), "PNG")
    start = content.index(b"IDAT")
    (tmp_path / "scan.png").write_bytes(content[: start + 500])
    driver.page.set_input_files("#file", tmp_path / "scan.png")
    expect(driver.page.locator("#report li")).to_contain_text("scan.png: ")
    expect(driver.page.locator("#image-list li")).to_have_count(0)
