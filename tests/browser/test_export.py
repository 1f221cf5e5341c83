"""Exported files and code match what is displayed."""

import io
import json
import subprocess

import numpy as np
from PIL import Image
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import DISC, RED


def pixels(file: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(file)) as picture:
        return np.array(picture.convert("RGBA"))


def test_mask_and_cutout_contain_the_mask_only(opened, photo):
    for button in ("save-mask", "save-cutout", "save-coco", "copy-python", "copy-curl"):
        expect(opened.page.locator(f"#{button}")).to_be_disabled()
    opened.click(*DISC)
    mask = opened.visible_mask()
    saved = pixels(opened.save("Mask PNG"))
    assert np.array_equal(saved, np.where(mask[..., None], 255, [0, 0, 0, 255]))
    cutout = pixels(opened.save("Cutout"))
    assert np.array_equal(cutout[..., 3], mask * 255)
    assert np.array_equal(cutout[mask], pixels(photo.read_bytes())[mask])


def copied(driver, button: str = "Copy Python") -> str:
    driver.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    hint = driver.page.locator("#hint")
    hint.evaluate("hint => hint.textContent = ''")  # that of an earlier copy
    driver.press_button(button)
    expect(hint).to_have_text("Copied")
    return str(driver.page.evaluate("navigator.clipboard.readText()"))


def test_copied_python_is_a_client_call_with_the_options_of_the_mask(clicked):
    clicked.page.get_by_label("Smooth").set_checked(False)
    clicked.page.get_by_label("Threshold").fill("1.5")
    assert "pos_coords=[[150,160]], mask_threshold=1.5)" in copied(clicked)
    clicked.page.get_by_label("Threshold").fill("0")
    clicked.page.get_by_label("Smooth").set_checked(True)
    texts = []
    for key in "iop":
        clicked.press(key)
        texts.append(copied(clicked))
    assert sorted(int(text.split(".candidates[")[1][0]) for text in texts) == [0, 1, 2]
    clicked.press("u")
    clicked.click(*RED, button="right")
    text = copied(clicked)
    call = (
        'service.segment("scene.png", pos_coords=[[150,160]], neg_coords=[[350,150]],'
        " min_mask_region_area=20)"
    )
    assert f'with Client("{clicked.server.url}") as service:\n    found = {call}\n' in text
    compile(text, "copied", "exec")


def test_copy_curl_copies_a_command_that_runs(clicked, tmp_path):
    name = 'it\'s "my" photo; 1.png'
    photo = tmp_path / name
    photo.write_bytes(clicked.image.read_bytes())
    clicked.open(photo)
    clicked.click(*DISC)
    clicked.click(*RED, button="right")
    for candidate, index in ((0, 0), (2, 1)):
        clicked.page.locator("#candidates label").nth(candidate).click()
        clicked.wait_idle()
        command = copied(clicked, "Copy curl")
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, check=True, timeout=60
        )
        mask = coco_mask.decode(json.loads(done.stdout)["masks"][index]["rle"]).astype(bool)
        assert np.array_equal(mask, clicked.visible_mask())
        assert "min_mask_region_area" in command
    assert command.startswith("# This mask is masks[1] of the answer.\n")


NO_CLIPBOARD = """
  window.clipboard = navigator.clipboard;
  Object.defineProperty(navigator, "clipboard", { value: undefined });
"""


def test_code_is_copied_without_a_secure_context_or_saved(open_page, photo):
    with open_page(script=NO_CLIPBOARD) as driver:
        page = driver.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        driver.open(photo)
        driver.click(*DISC)
        driver.press_button("Copy Python")
        expect(page.locator("#hint")).to_have_text("Copied")
        code = page.evaluate("window.clipboard.readText()")
        assert code.startswith("from mobile_sam_client import Client")
        expect(page.get_by_role("button", name="Actions of the selected object")).to_be_focused()
        page.evaluate("document.execCommand = () => false")
        driver.press_button("Copy Python")
        expect(page.get_by_role("alert")).to_contain_text("denied access to the clipboard")
        assert driver.save("Save as a file").decode() == code
