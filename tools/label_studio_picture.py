"""Take the picture of Label Studio from a running `make try-label-studio`; needs Chromium.

`python -m tools.label_studio_picture http://127.0.0.1:3001 docs/images/label-studio.jpg`
"""

import io
import sys

from PIL import Image
from playwright.sync_api import Page

from benchmarks.browser import chromium
from tools.try_label_studio import PASSWORD, USER

BALLOON = (0.705, 0.36)
WIDTH = 1200


def open_task(page: Page, url: str, project: int, task: int) -> None:
    """Sign in, open a task, and choose the smart point tool."""
    page.route(lambda target: not target.startswith(url), lambda route: route.abort())
    page.goto(f"{url}/user/login/")
    page.fill("[name=email]", USER)
    page.fill("[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url(lambda target: "login" not in target, wait_until="commit")
    page.goto(f"{url}/projects/{project}/data?task={task}", wait_until="commit")
    page.get_by_text("Auto-Annotation").click()
    page.get_by_text("Object", exact=True).nth(1).click()
    page.locator(".lsf-tool_smart:visible").first.click()


def click_image(page: Page, x: float, y: float) -> None:
    """Click on the image.

    Args:
        page: a task's page.
        x: fraction of the image's width.
        y: fraction of its height.
    """
    canvas = page.locator("canvas").first.bounding_box()
    assert canvas
    page.mouse.click(canvas["x"] + x * canvas["width"], canvas["y"] + y * canvas["height"])


def main(url: str, file: str) -> None:
    """Write the picture of a click in the sample project."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 860})
        open_task(page, url, 1, 1)
        click_image(page, *BALLOON)
        page.get_by_text("1 suggestions").wait_for()
        page.mouse.move(700, 5)
        page.wait_for_timeout(1000)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture = picture.resize((WIDTH, picture.height * WIDTH // picture.width), Image.Resampling.LANCZOS)
    picture.save(file, quality=82, optimize=True, progressive=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
