"""A driver of the page for tests: user actions, and what is on the screen."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, CDPSession, Page, Route, expect
from pycocotools import mask as coco_mask

from harness import Server
from tests.e2e.answers import segmentation

DISC, RED, MEADOW = (150, 160), (350, 150), (240, 290)
"""Points of the fixture `photo`: on its disc, on its box, and below both."""
LARGE_SIZE = (2400, 1600)
TIMEOUT_S = 60
"""Limit of every wait: on a busy machine, a process may not run for seconds."""
BALL, BESIDE, BALL_RADIUS = (1210, 804), (1235, 790), 9
"""Centre of the disc of the fixture `large`, and a pixel beside it."""
SAVE_DATA = "Object.defineProperty(navigator.connection, 'saveData', {value: true});"
"""Script of a browser that makes no masks. An answer for each request to `/info` would slow all
others down."""
IMAGE_TO_SCREEN = """([x, y]) => {
  const view = document.getElementById("view").getBoundingClientRect();
  const at = new DOMMatrix(getComputedStyle(document.getElementById("scene")).transform);
  return [view.left + at.e + (x + 0.5) * at.a, view.top + at.f + (y + 0.5) * at.d];
}"""


OPEN_SECTIONS = "document.querySelectorAll('#panel details').forEach((one) => one.open = true)"
OBJECT_ACTIONS = (
    "Copy",
    "Paste",
    "Merge with…",
    "All to next",
    "Mask PNG",
    "Cutout",
    "Copy Python",
    "Copy curl",
)
"""Buttons in the menu of the selected object."""


class PageDriver:
    """A user of the page; records script errors and requests."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page, self.server = page, server
        self.image = Path()
        self.one_click = False
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error.stack)))
        page.on("request", lambda request: self.requests.append(request.url))

    @classmethod
    @contextmanager
    def open_page(
        cls,
        browser: Browser,
        server: Server,
        *,
        script: str = "",
        info: dict[str, Any] | None = None,
        decodes: bool = False,
        one_click: bool = False,
        **options: Any,
    ) -> Iterator[PageDriver]:
        """Open the page in a new browser context with `options`; fail on script errors and foreign
        requests.

        `script` runs in each page ahead of the page's own; `info` are values that replace those in
        `/info`; `decodes`: whether the browser may make masks; `one_click`: whether a click beside the
        selected object begins the next one.
        """
        settings = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **options}
        context = browser.new_context(**settings)
        context.set_default_timeout(1000 * TIMEOUT_S)
        context.add_init_script(script if decodes else f"{SAVE_DATA}\n{script}")
        driver = cls(context.new_page(), server)
        driver.one_click = one_click
        if info:
            driver.answer_info(**info)
        driver.page.goto(f"{server.url}/ui")
        yield driver
        hosts = {
            urlsplit(url).netloc
            for url in driver.requests
            if not url.startswith(("data:", "blob:"))
        }
        driver.page.unroute_all(behavior="ignoreErrors")
        context.close()
        assert driver.errors == [], driver.errors
        assert hosts == {urlsplit(server.url).netloc}

    def open(self, path: Path) -> None:
        """Open an image, wait until it is encoded, and switch previews off: their timing is
        unpredictable. Further clicks extend the object unless `one_click` is set.
        """
        self.page.locator("#about").evaluate("about => about.textContent = ''")
        self.page.set_input_files("#file", path)
        self.wait_encoded(path)

    def wait_encoded(self, path: Path) -> None:
        """Wait until an image that is being opened is encoded, open all sections of the panel,
        and switch previews off.
        """
        self.image = path
        self.page.wait_for_selector("#about:not(:empty)")
        self.page.evaluate(OPEN_SECTIONS)
        self.page.locator("#hover").set_checked(False)
        self.page.locator("#one-click").set_checked(self.one_click)

    def screen_xy(self, x: float, y: float) -> tuple[float, float]:
        """Return the screen position of an image pixel."""
        screen_x, screen_y = self.page.evaluate(IMAGE_TO_SCREEN, [x, y])
        return screen_x, screen_y

    def click(self, x: float, y: float, button: Any = "left", keys: tuple[str, ...] = ()) -> None:
        """Click on an image pixel and wait for the mask."""
        for key in keys:
            self.page.keyboard.down(key)
        self.page.mouse.click(*self.screen_xy(x, y), button=button)
        for key in keys:
            self.page.keyboard.up(key)
        self.wait_idle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*self.screen_xy(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.screen_xy(*end), steps=4)
        self.page.mouse.up()
        self.wait_idle()

    @cached_property
    def _session(self) -> CDPSession:
        """A session of Chromium's protocol, which knows the fingers on the screen."""
        return self.page.context.new_cdp_session(self.page)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send a touch event with a finger at each of these screen positions."""
        touched = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.wait_idle()

    def press_button(self, name: str) -> None:
        """Press a button by its accessible name, also in the menu of the selected object."""
        if name in OBJECT_ACTIONS:
            self.page.locator("#object-menu-open").click()
        self.page.get_by_role("button", name=name, exact=True).click()
        self.wait_idle()

    def select(self, name: str) -> None:
        """Select an object by its row."""
        self.page.get_by_role("button", name=f"Select {name}", exact=True).click()
        self.wait_idle()

    def wait_idle(self) -> None:
        """Wait until no request is in flight; `expect` would look only every 100 to 1000 ms."""
        view = self.page.locator("#view")
        self.wait_for(lambda: view.get_attribute("aria-busy") != "true")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"condition not met within {TIMEOUT_S} s"
            self.page.wait_for_timeout(30)

    def answer(self, path: str, *answers: dict[str, Any]) -> list[Any]:
        """Answer requests for a path with these, the last one again and again; an empty one passes
        the request on.

        Returns:
            list to which the JSON body of every request is added.
        """
        bodies: list[Any] = []

        def handle(route: Route) -> None:
            bodies.append(route.request.post_data_json)
            answer = answers[min(len(bodies), len(answers)) - 1]
            route.fulfill(**answer) if answer else route.continue_()

        self.page.route(path, handle)
        return bodies

    def answer_info(self, **fields: Any) -> None:
        """Answer `/info` with other values."""

        def handle(route: Route) -> None:
            response = route.fetch()
            route.fulfill(response=response, json={**response.json(), **fields})

        self.page.route("**/info", handle)

    def hold(self, path: str) -> list[Route]:
        """Hold back all requests for a path, and return the list to which they are added."""
        held: list[Route] = []
        self.page.route(path, lambda route: held.append(route))  # noqa: PLW0108 - Playwright inspects it
        return held

    def add_class(self, name: str) -> None:
        self.press_button("Class")
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        self.page.get_by_role("application").focus()

    def expect_image(self, name: str) -> None:
        """Wait until an image of 480 x 320 pixels is shown."""
        label = f"{name}, 480 by 320 pixels"
        expect(self.page.get_by_role("application")).to_have_attribute("aria-label", label)

    def segment_everything(self) -> None:
        self.page.get_by_label("Grid").select_option("8")
        self.press_button("Start")
        expect(self.page.locator("#hint")).to_contain_text("objects found")

    def request_masks(self, **prompts: Any) -> np.ndarray:
        """Request masks of the open image from the API itself, (K, H, W) bool; by default
        smooth, as on the page.
        """
        with Image.open(self.image) as picture:
            smooth = {"min_mask_region_area": max(20, picture.width * picture.height // 10_000)}
        image = base64.b64encode(self.image.read_bytes()).decode()
        body = {"input_image": image, "mask_format": "npy", **smooth, **prompts}
        masks = segmentation(self.server.post(segmented_image="none", **body)).masks.astype(bool)
        return masks.reshape(-1, *masks.shape[-2:])

    def assert_mask_is_the_apis(self, **prompts: Any) -> None:
        """Compare the selected object's mask with the API's for the same prompts, pixel by
        pixel.
        """
        assert np.array_equal(self.visible_mask(), self.request_masks(**prompts)[0])

    def visible_mask(self, layer: str = "active") -> np.ndarray:
        """Return a layer's coloured pixels, (H, W) bool; `active`: the selected object,
        `others`: the rest.
        """
        return self.layer_rgba(layer)[..., 3] > 0

    def layer_rgba(self, layer: str = "active") -> np.ndarray:
        """Return the pixels of a canvas layer, (H, W, 4) uint8 RGBA."""
        url = self.page.locator(f"canvas#{layer}").evaluate(
            "canvas => canvas.toDataURL('image/png')"
        )
        with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as picture:
            return np.array(picture.convert("RGBA"))

    def screenshot(self) -> np.ndarray:
        """Return a screenshot, (H, W, 3) uint8 RGB."""
        with Image.open(io.BytesIO(self.page.screenshot())) as picture:
            return np.array(picture.convert("RGB"))

    def save(self, name: str) -> bytes:
        """Press a button that downloads a file, and return its content."""
        with self.page.expect_download() as download:
            self.press_button(name)
        return Path(download.value.path()).read_bytes()

    def export(self, form: str, validation: int = 0) -> bytes:
        """Export the annotations with their images, as a ZIP file; `validation` is the share of
        a split in per cent.
        """
        self.press_button("Export")
        self.page.locator("#export-format").select_option(form)
        self.page.get_by_label("For validation").fill(str(validation))
        self.page.locator("#export-images").set_checked(True)
        return self.save("Save annotations")

    def saved_mask(self) -> np.ndarray:
        """Save the selected object's mask as a PNG and return it, (H, W) bool."""
        with Image.open(io.BytesIO(self.save("Mask PNG"))) as picture:
            return np.asarray(np.array(picture.convert("L")) == 255)

    def saved_coco(self) -> Any:
        """Save the objects of the open image as COCO JSON and return the document."""
        self.press_button("Export")
        return json.loads(self.save("COCO JSON of this image"))

    def saved_annotation(self) -> tuple[dict[str, Any], np.ndarray]:
        """Save the image's only object as COCO JSON; return the annotation and its mask, (H, W)
        bool.
        """
        (annotation,) = self.saved_coco()["annotations"]
        return annotation, np.asarray(coco_mask.decode(annotation["segmentation"]), bool)
