"""Exported files and code match what is displayed."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from playwright.sync_api import expect
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

DISC, RED = (150, 160), (350, 150)


def decode(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_mask_png_has_the_size_of_the_image(person, photo):
    person.open(photo)
    person.click(*DISC)
    mask = np.array(decode(person.save("Mask PNG")).convert("L"))
    assert set(np.unique(mask)) == {0, 255}
    assert np.array_equal(mask == 255, person.visible_mask())


def test_cutout_has_image_pixels_inside_the_mask_only(person, photo):
    person.open(photo)
    person.click(*DISC)
    mask = person.visible_mask()
    cutout = np.array(decode(person.save("Cutout")))
    assert np.array_equal(cutout[..., 3] == 255, mask)
    assert set(np.unique(cutout[..., 3])) == {0, 255}
    assert np.array_equal(cutout[mask][:, :3], np.array(Image.open(photo))[mask])


def test_coco_json_contains_every_object(person, photo, tmp_path):
    person.open(photo)
    person.click(*DISC)
    disc = person.visible_mask()
    person.click(*RED, keys=("Shift",))
    red = person.visible_mask()
    name = person.page.get_by_label("Name of object 2")
    name.fill("box 7")
    name.press("Enter")
    (tmp_path / "coco.json").write_bytes(person.save("COCO JSON"))
    coco = COCO(tmp_path / "coco.json")
    (image,) = coco.loadImgs(coco.getImgIds())
    assert (image["file_name"], image["width"], image["height"]) == ("scene.png", 480, 320)
    assert [category["name"] for category in coco.loadCats(coco.getCatIds())] == ["object", "box"]
    for annotation, mask in zip(coco.loadAnns(coco.getAnnIds()), (disc, red), strict=True):
        assert np.array_equal(coco.annToMask(annotation), mask)
        assert annotation["area"] == mask.sum()
        assert annotation["bbox"] == coco_mask.toBbox(annotation["segmentation"]).tolist()


def test_copy_python_copies_a_client_call(person, photo):
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.open(photo)
    person.click(*DISC)
    person.click(*RED, button="right")
    person.press_button("Copy Python")
    expect(person.page.locator("#hint")).to_have_text("Copied")
    text = person.page.evaluate("navigator.clipboard.readText()")
    call = 'service.segment("scene.png", pos_coords=[[150,160]], neg_coords=[[350,150]])'
    assert f'with Client("{person.server.url}") as service:\n    found = {call}\n' in text
    compile(text, "copied", "exec")


def test_copy_python_ranks_candidates_by_score(person, photo):
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.open(photo)
    person.click(*DISC)
    copied = []
    for number in ("1", "2", "3"):
        person.press(number)
        person.press_button("Copy Python")
        copied.append(person.page.evaluate("navigator.clipboard.readText()"))
    ranks = [int(text.split(".candidates[")[1][0]) for text in copied]
    assert sorted(ranks) == [0, 1, 2]
    assert all("multimask_output=True" in text for text in copied)


def test_export_buttons_are_disabled_without_a_mask(person, photo):
    person.open(photo)
    for button in ("Mask PNG", "Cutout", "COCO JSON", "Copy Python"):
        expect(person.page.get_by_role("button", name=button)).to_be_disabled()
