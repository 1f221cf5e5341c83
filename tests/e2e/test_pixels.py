"""How files become pixels: orientation and 16 bits, on every path from a file to a mask."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import requests
from PIL import Image
from safetensors import safe_open

from mobile_sam_client import Client
from orchestrator.depth import sample_range
from tests.deep_files import RGB, deep_png
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.oriented_files import chunk, exif, jpeg, oriented, png
from utils.page import FOLDER

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SIZE_WH, CLICK = (480, 320), (200, 150)
UNTURN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""What makes the stored picture out of the displayed one, by orientation."""
BALLOON = (903, 310)


def stored(orientation: int) -> bytes:
    """Return the picture that is displayed as `scene(71)`, as a PNG file with EXIF."""
    with Image.open(io.BytesIO(scene(71))) as picture:
        file = io.BytesIO()
        picture.convert("RGB").transpose(UNTURN[orientation]).save(file, "PNG")
    return png(chunk(b"eXIf", oriented(orientation)), file=file.getvalue())


@pytest.mark.parametrize("orientation", UNTURN)
def test_masks_of_a_turned_file_are_those_of_the_displayed_picture(server, orientation):
    file = stored(orientation)
    expected = segmentation(
        server.post(input_image=as_base64(scene(71)), pos_coords=[CLICK], **NPY_ONLY)
    )
    answer = server.post(input_image=as_base64(file), pos_coords=[CLICK], **NPY_ONLY)
    found = segmentation(answer)
    assert found.masks.any()
    np.testing.assert_array_equal(found.masks, expected.masks)
    assert (expected.result["orientation"], found.result["orientation"]) == (1, orientation)
    assert answer.headers["X-Image-Orientation"] == str(orientation)
    assert "range" not in found.result

    with Client(server.url) as client, Client(server.url, local=True) as local:
        ours = client.segment(file, pos_coords=CLICK, segmented_image="overlay")
        assert (ours.orientation, ours.image and ours.image.size) == (orientation, SIZE_WH)
        with Image.open(io.BytesIO(scene(71))) as picture:
            displayed = np.asarray(picture.convert("RGB"))
        cutout = np.asarray(ours.cutout())
        np.testing.assert_array_equal(cutout[..., :3], displayed)
        for _ in range(2):  # the second is decoded here
            decoded = local.segment(file, pos_coords=CLICK)
            assert (decoded.orientation, decoded.width, decoded.height) == (orientation, *SIZE_WH)
        assert np.mean(decoded.mask != ours.mask) < 0.001

    embed = requests.post(
        f"{server.url}/embed", file, headers={"Content-Type": "image/png"}, timeout=60
    )
    assert (embed.json()["orientation"], embed.headers["X-Image-Orientation"]) == (
        orientation,
        str(orientation),
    )
    everything = server.post("/everything", image_id=found.result["image_id"], points_per_side=2)
    assert (everything.json()["orientation"], everything.headers["X-Image-Orientation"]) == (
        orientation,
        str(orientation),
    )


def test_files_that_a_browser_does_not_turn_are_not_turned(server):
    upright = scene(72)
    with Image.open(io.BytesIO(upright)) as picture:
        webp, plain = io.BytesIO(), io.BytesIO()
        picture.convert("RGB").save(webp, "WEBP", lossless=True, exif=oriented(6))
        picture.convert("RGB").save(plain, "JPEG")
    for file in (webp.getvalue(), jpeg(exif(oriented(6, 4)), file=plain.getvalue())):
        answer = server.post("/embed", input_image=as_base64(file)).json()
        assert (answer["orientation"], answer["width"], answer["height"]) == (1, *SIZE_WH)


def test_embedding_file_names_orientation_and_range(server, tmp_path):
    samples = np.random.default_rng(7).integers(100, 4196, (30, 40, 3), dtype=np.uint16)
    file = deep_png(samples, RGB, chunk(b"eXIf", oriented(6)))
    answer = server.post("/embed", input_image=as_base64(file)).json()
    path = tmp_path / "embedding.safetensors"
    path.write_bytes(
        requests.get(f"{server.url}/embeddings/{answer['image_id']}", timeout=60).content
    )
    with safe_open(path, "numpy") as opened:
        about = opened.metadata()
    assert (about["width"], about["height"], about["orientation"]) == ("30", "40", "6")
    assert json.loads(about["range"]) == answer["range"] == list(sample_range(samples))


def photograph() -> np.ndarray:
    with Image.open(Path(FOLDER) / "samples" / "balloons.jpg") as picture:
        return np.asarray(picture.convert("RGB"))


def png_file(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


@pytest.fixture(scope="module")
def balloon(server) -> np.ndarray:
    """The mask of a balloon in the photograph of 8 bits."""
    fields = {"input_image": as_base64(png_file(photograph())), "pos_coords": [BALLOON], **NPY_ONLY}
    found = segmentation(server.post(**fields))
    assert "range" not in found.result
    assert found.masks.sum() > 10_000
    return found.masks


@pytest.mark.parametrize("bits", [8, 11, 12, 16])
def test_click_on_a_photograph_of_16_bits_gives_the_mask_of_8_bits(
    server, balloon, bits, record_property
):
    samples = np.round(photograph() * ((2**bits - 1) / 255)).astype(np.uint16)
    fields = {"input_image": as_base64(deep_png(samples, RGB)), "pos_coords": [BALLOON], **NPY_ONLY}
    found = segmentation(server.post(**fields))
    iou = np.sum(found.masks & balloon) / np.sum(found.masks | balloon)
    record_property(f"IoU of the masks of {bits} bits in 16 and of 8", round(float(iou), 4))
    assert found.result["range"][1] < 2**bits
    assert iou > 0.97
