"""A day of an annotator: from a folder of images to a data set, with a killed service, a reload
and another browser.
"""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, expect
from pycocotools import mask as coco_mask

from benchmarks.fleet import SMALL
from harness import Server, launch_server
from tests.browser.page_driver import PageDriver
from tests.browser.test_project_files import LEAST_IOU, dataset

IMAGES, KILL_AT, RELOAD_AT = 9, 2, 4
VALIDATION = 2
"""Images of 25 % of them, rounded."""
SIZE = (480, 320)
CLASSES = ["disc", "box", "bar", "leaf", "sun"]
COLOURS = [(235, 200, 60), (190, 50, 45), (240, 240, 240), (40, 120, 50), (250, 130, 30)]
CENTRES = [(110, 110), (350, 110), (240, 260), (60, 260), (430, 260)]
"""A pixel of each class's object in the pictures."""
BAR = (118, 243, 362, 277)
"""A box around the object of the class *bar*."""


def scene(index: int) -> Image.Image:
    """Return a picture with one object of each class, which move a little from one to the next."""
    picture = Image.new("RGB", SIZE, (90 + index, 140, 185))
    draw = ImageDraw.Draw(picture)
    draw.ellipse([60, 60, 160 + index, 160], fill=COLOURS[0])
    draw.rectangle([300, 60, 400, 160 - index], fill=COLOURS[1])
    draw.rectangle([120 + index, 245, 360, 275], fill=COLOURS[2])
    draw.polygon([(60, 215), (95, 260), (60, 305), (25 + index, 260)], fill=COLOURS[3])
    draw.ellipse([400, 230, 460 - index, 290], fill=COLOURS[4])
    return picture


class Annotator:
    """A user who labels the folder image by image, and remembers the masks on the screen."""

    def __init__(self, driver: PageDriver, folder: Path) -> None:
        self.driver, self.folder, self.index = driver, folder, 0
        self.expected: dict[str, list[tuple[str, np.ndarray]]] = {}

    @property
    def name(self) -> str:
        """Name of the open image."""
        return f"photos/{self.index:02}.png"

    def go_on(self, key: str = "d") -> None:
        """Go to the next image."""
        self.leave(key)
        self.arrive()

    def leave(self, key: str) -> None:
        """Press the key that opens the next image."""
        self.index += 1
        self.driver.press(key)

    def arrive(self) -> None:
        """Wait until the image is shown and encoded."""
        self.driver.expect_image(self.name)
        self.driver.wait_encoded(self.folder / Path(self.name).name)
        self.driver.wait_idle()

    def begin(self, class_index: int) -> None:
        """Begin an object of a class."""
        self.driver.press("n")
        self.driver.press(str(class_index + 1))

    def remember(self) -> None:
        """Remember the class and mask of each object, as the list and the screen show them."""
        driver, rows = self.driver, self.driver.page.locator("#objects li")
        seen = []
        for row in rows.filter(has=driver.page.locator(".score:not(:empty)")).all():
            row.locator(".pick").click()
            driver.wait_idle()
            seen.append((row.locator(".category").inner_text(), driver.visible_mask()))
        self.expected[self.name] = seen

    def click_all(self) -> None:
        """Click on one object of each class."""
        for number, centre in enumerate(CENTRES):
            self.begin(number)
            self.driver.click(*centre)

    def box_and_resize(self) -> None:
        """Drag a box that is too large around the bar, and move its corner to where it belongs."""
        self.begin(2)
        self.driver.drag((BAR[0], BAR[1] - 20), (BAR[2] + 20, BAR[3]))
        wide = self.driver.visible_mask()
        self.driver.drag((BAR[2] + 20, BAR[1] - 20), (BAR[2], BAR[1]))
        expect(
            self.driver.page.get_by_role("button", name=f"Remove box from {BAR[0]},{BAR[1]}")
        ).to_be_visible()
        assert not np.array_equal(self.driver.visible_mask(), wide)

    def accept_proposals(self) -> None:
        """Accept one of the proposals by a click, those above a size by the button, and discard
        the rest.
        """
        driver, proposals = self.driver, self.driver.page.locator("#objects .proposal")
        driver.press("5")
        driver.segment_everything()
        driver.click(*CENTRES[4])
        driver.page.get_by_label("Min. size").fill("4")
        driver.press("4")
        shown = proposals.count()
        assert shown > 0
        driver.press("n")
        driver.press_button("Accept all shown")
        driver.press_button("Discard proposals")
        expect(proposals).to_have_count(0)

    def correct_by_hand(self) -> None:
        """Click on the box, add to its mask with the brush and by another click, and draw a
        rectangle over the sun.
        """
        self.begin(1)
        self.driver.click(*CENTRES[1])
        before = self.driver.visible_mask()
        self.driver.press("r")
        self.driver.drag((350, 170), (380, 175))
        self.driver.press("v")
        painted = self.driver.visible_mask()
        assert (before & ~painted).sum() == 0
        assert painted.sum() > before.sum()
        self.driver.click(*CENTRES[2], keys=("Shift",))
        assert (painted & ~self.driver.visible_mask()).sum() == 0
        self.begin(4)
        self.driver.press("g")
        self.driver.drag((400, 230), (460, 290))
        self.driver.press("v")
        assert self.driver.visible_mask().sum() == 60 * 60

    def copy_all(self) -> None:
        """Copy the objects to the next image, where one of them is deleted."""
        self.leave("t")
        # Hints are shown for six seconds, which the image may take to be encoded.
        expect(self.driver.page.locator("#hint")).to_have_text(
            f"{len(CLASSES)} objects copied to {self.name}"
        )
        self.arrive()
        self.driver.press("Delete")

    def follow_all(self) -> None:
        """Follow the objects to the next image, where the model finds them."""
        self.leave("l")
        expect(self.driver.page.locator("#hint")).to_contain_text("followed")
        self.arrive()
        self.driver.press_button("Undo")
        expect(self.driver.page.locator("#objects .score:not(:empty)")).to_have_count(0)
        self.driver.press_button("Redo")

    def leave_empty(self) -> None:
        """Add nothing: reviewed images without objects are exported as well."""

    def merge(self) -> None:
        """Make one object of the disc and the sun."""
        for number in (0, 4):
            self.begin(number)
            self.driver.click(*CENTRES[number])
        self.driver.press("j")
        self.driver.page.locator("#merge-menu").get_by_role("button").first.click()
        expect(self.driver.page.locator("#hint")).to_contain_text("merged into")

    def work(self, server: Server, log: Path, settings: dict[str, Any]) -> Server:
        """Label all images; return the service, which another one replaces in the middle."""
        alone = [self.accept_proposals, self.box_and_resize, self.correct_by_hand, self.merge]
        on_next = [self.copy_all, self.follow_all]
        steps = [self.click_all, *alone, self.click_all, *on_next, self.leave_empty]
        for number, step in enumerate(steps):
            if number and step not in on_next:
                self.go_on()
            step()
            self.driver.press("m")
            self.remember()
            if number == KILL_AT:
                server.kill()
                self.expect_offline()
                server = launch_server(log, port=server.port, **settings).wait_until_ready()
            if number == RELOAD_AT:
                self.reload()
                self.click_after_reload()
        return server

    def expect_offline(self) -> None:
        """Wait until the header says that the service is away."""
        expect(self.driver.page.locator("#connection")).to_contain_text("Offline")

    def click_after_reload(self) -> None:
        """Load the page, choose a class and click: that begins an object of the class, and changes
        no other.
        """
        before = self.expected[self.name]
        expect(self.driver.page.locator("#saved")).to_have_text("Saved")
        self.driver.page.reload()
        self.arrive()
        self.driver.page.get_by_role("application").focus()
        self.driver.press("2")
        self.driver.click(*CENTRES[1])
        self.remember()
        added = [entry for entry in self.expected[self.name] if entry[0] == CLASSES[1]]
        assert len(added) == 1
        others = [entry for entry in self.expected[self.name] if entry[0] != CLASSES[1]]
        assert_equal(others, before)

    def reload(self) -> None:
        """Find proposals, filter them, and load the page again: the filter and all masks are the
        same.
        """
        page, before = self.driver.page, self.expected[self.name]
        self.driver.segment_everything()
        page.get_by_label("Min. size").fill("4")
        shown = page.locator("#found-count").inner_text()
        expect(page.locator("#saved")).to_have_text("Saved")
        page.reload()
        self.arrive()
        expect(page.locator("#found-count")).to_have_text(shown)
        self.driver.press_button("Discard proposals")
        page.get_by_role("application").focus()
        self.remember()
        assert_equal(self.expected[self.name], before)


def assert_equal(
    found: list[tuple[str, np.ndarray]], expected: list[tuple[str, np.ndarray]]
) -> None:
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, mask), (_, other) in zip(found, expected, strict=True):
        assert np.array_equal(mask, other), name


@pytest.mark.timeout(900)
def test_day_of_an_annotator(browser: Browser, builtin_repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(IMAGES):
        scene(index).save(folder / f"{index:02}.png")
    settings: dict[str, Any] = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), **SMALL}
    server = launch_server(tmp_path / "log", **settings).wait_until_ready()
    with PageDriver.open_page(browser, server, one_click=True) as driver:
        driver.page.set_input_files("#folder", folder)
        expect(driver.page.locator("#image-list li")).to_have_count(IMAGES)
        driver.page.get_by_label("Name of the class object").fill(CLASSES[0])
        for name in CLASSES[1:]:
            driver.add_class(name)
        annotator = Annotator(driver, folder)
        annotator.arrive()
        server = annotator.work(server, tmp_path / "log2", settings)
        driver.press_button("Export")
        (tmp_path / "project.zip").write_bytes(driver.save("Save project"))
    with PageDriver.open_page(browser, server) as fresh:
        fresh.page.set_input_files("#annotations", tmp_path / "project.zip")
        expect(fresh.page.locator("#image-list li")).to_have_count(IMAGES)
        classes, objects = dataset(fresh)
        assert [one["name"] for one in classes] == CLASSES
        expect(fresh.page.locator("#image-list .reviewed")).to_have_count(IMAGES)
        names = {one["id"]: one["name"] for one in classes}
        for image, masks in annotator.expected.items():
            exported = [
                (names[id_], coco_mask.decode(mask) > 0)
                for name, id_, mask in objects
                if name == image
            ]
            assert_equal(exported, masks)
        exports = {
            form: fresh.export(form, validation=25) for form in LEAST_IOU if form != "project"
        }
        fresh.page.on("dialog", lambda dialog: dialog.accept())
        for form, content in exports.items():
            (tmp_path / "set.zip").write_bytes(content)
            fresh.press_button("New project")
            expect(fresh.page.locator("#image-list li")).to_have_count(0)
            fresh.page.locator("#hint").evaluate("hint => hint.textContent = ''")
            fresh.page.set_input_files("#folder", folder)
            expect(fresh.page.locator("#image-list li")).to_have_count(IMAGES)
            fresh.page.set_input_files("#annotations", tmp_path / "set.zip")
            expect(fresh.page.locator("#hint")).to_contain_text(f"{len(objects)} objects in")
            again = dataset(fresh)
            assert again[0] == classes, form
            assert [one[:2] for one in again[1]] == [one[:2] for one in objects], form
            for found, expected in zip(again[1], objects, strict=True):
                assert coco_mask.iou([found[2]], [expected[2]], [0])[0, 0] >= LEAST_IOU[form], form
    parts = zipfile.ZipFile(io.BytesIO(exports["coco"]))
    counts = [
        len(json.loads(parts.read(f"annotations/{subset}.json"))["images"])
        for subset in ("train", "val")
    ]
    assert counts == [IMAGES - VALIDATION, VALIDATION]
    server.stop()
