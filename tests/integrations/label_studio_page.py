"""Clicks in the page of a task in Label Studio."""

from playwright.sync_api import Page

from tools.try_label_studio import PASSWORD, USER


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
