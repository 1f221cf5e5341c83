"""What a person does with the page and sees on it."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.e2e.server import Server

PLACE = """([x, y]) => {
  const view = document.getElementById("view").getBoundingClientRect();
  const at = new DOMMatrix(getComputedStyle(document.getElementById("scene")).transform);
  return [view.left + at.e + (x + 0.5) * at.a, view.top + at.f + (y + 0.5) * at.d];
}"""


class Person:
    """In front of the page in a browser."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page, self.server = page, server
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    @classmethod
    @contextmanager
    def at(cls, browser: Browser, server: Server, **options: Any) -> Iterator[Person]:
        """Somebody with the page open, in a fresh profile; `options` are the browser context's."""
        settings = {"viewport": {"width": 1280, "height": 800}, "accept_downloads": True, **options}
        context = browser.new_context(**settings)
        context.set_default_timeout(15_000)
        person = cls(context.new_page(), server)
        person.page.goto(f"{server.url}/ui")
        yield person
        hosts = {urlsplit(url).netloc for url in person.requests if not url.startswith(("data:", "blob:"))}
        context.close()
        assert person.errors == []
        assert hosts == {urlsplit(server.url).netloc}

    def open(self, path: Path) -> None:
        """Choose an image, and wait until it is encoded. Without previews, which come whenever they come."""
        self.page.locator("#about").evaluate("about => about.textContent = ''")
        self.page.set_input_files("#file", path)
        self.page.wait_for_selector("#about:not(:empty)")
        self.page.locator("#hover").set_checked(False)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a pixel of the image lies on the screen."""
        at = self.page.evaluate(PLACE, [x, y])
        return at[0], at[1]

    def click(self, x: float, y: float, button: Any = "left", keys: tuple[str, ...] = ()) -> None:
        """Click on a pixel of the image and wait for what comes of it."""
        for key in keys:
            self.page.keyboard.down(key)
        self.page.mouse.click(*self.place(x, y), button=button)
        for key in keys:
            self.page.keyboard.up(key)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*self.place(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.place(*end), steps=4)
        self.page.mouse.up()
        self.settle()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def push(self, name: str) -> None:
        """Press a button by its name."""
        self.page.get_by_role("button", name=name, exact=True).click()
        self.settle()

    def settle(self) -> None:
        """Wait until no answer is on its way."""
        expect(self.page.locator("#view")).not_to_have_attribute("aria-busy", "true", timeout=15_000)

    def waits_for(self, it: Callable[[], bool], seconds: float = 10) -> None:
        """Look again and again until it is so."""
        deadline = time.monotonic() + seconds
        while not it():
            assert time.monotonic() < deadline, "it did not come"
            self.page.wait_for_timeout(50)

    def sees(self, layer: str = "active") -> np.ndarray:
        """(H, W) bool: which pixels of the image are coloured; `active`: the object at hand, `others`: the rest."""
        return self.painted(layer)[..., 3] > 0

    def painted(self, layer: str = "active") -> np.ndarray:
        """(H, W, 4) uint8 RGBA: what a layer of the page holds."""
        url = self.page.locator(f"canvas#{layer}").evaluate("canvas => canvas.toDataURL('image/png')")
        with Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))) as picture:
            return np.array(picture.convert("RGBA"))

    def screen(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB: the screen."""
        with Image.open(io.BytesIO(self.page.screenshot())) as picture:
            return np.array(picture.convert("RGB"))

    def save(self, name: str) -> bytes:
        """Press a button that saves a file; what is in that."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=name, exact=True).click()
        return Path(download.value.path()).read_bytes()


def asked(server: Server, image: Path, **fields: Any) -> np.ndarray:
    """(K, H, W) bool: the masks that the service answers for the same prompts, asked for past the page."""
    body = {"input_image": base64.b64encode(image.read_bytes()).decode(), "mask_format": "png", **fields}
    answer = server.post(segmented_image="none", **body)
    assert answer.ok, answer.text
    boundary = answer.headers["content-type"].split("boundary=")[1].encode()
    part = answer.content.split(b"--" + boundary)[1]
    with Image.open(io.BytesIO(part.split(b"\r\n\r\n", 1)[1])) as picture:
        rows = np.array(picture.convert("1"))
    with Image.open(image) as picture:
        height = picture.height
    return rows.reshape(-1, height, rows.shape[1])
