"""The page in WebKit, the engine of Safari. Safari itself runs on Apple's systems only."""

from pathlib import Path

import numpy as np

from harness import Server
from tests.browser.page_driver import DISC, IMAGE_TO_SCREEN
from tests.browser.webkit_driver import WebKit
from tests.skips import require

MASK_PIXELS = """
const { width, height } = document.getElementById("active");
const { data } = document.getElementById("active").getContext("2d").getImageData(0, 0, width, height);
return [width, height, Array.from(data.filter((_, index) => index % 4 === 3), Number)];
"""


def test_image_is_opened_and_segmented_by_a_click_in_webkit(builtin_server: Server, photo: Path):
    require("WebKitWebDriver")
    require("Xvfb")
    with WebKit.opened(f"{builtin_server.url}/ui") as window:
        window.wait_for("document.getElementById('weights-name').textContent")
        window.choose_file("#file", photo)
        window.wait_for("document.getElementById('about').textContent")
        window.click(*window.run(f"return ({IMAGE_TO_SCREEN})(arguments[0])", DISC))
        window.wait_for("document.getElementById('latency').textContent")
        width, height, alpha = window.run(MASK_PIXELS)
    mask = np.array(alpha).reshape(height, width) > 0
    assert (width, height) == (480, 320)
    assert mask[DISC[1], DISC[0]]
    assert not mask[:20].any()
