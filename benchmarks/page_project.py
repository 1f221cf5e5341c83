"""A project of many images in the page: its opening, the next image, and the tab's memory."""

import io
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from PIL import Image, ImageEnhance
from playwright.sync_api import Page

from benchmarks.figures import percentile, table
from benchmarks.photo import photo

IMAGES = 200
STEPS = 12
"""Images that are opened one after the other."""
GOAL_OPEN_S, GOAL_NEXT_MS, GOAL_BYTES = 3.0, 150, 2**30
IMPORT_TIMEOUT_MS = 240_000

PAINTED = """async () => {
  const picture = document.getElementById("picture");
  await picture.decode();
  await new Promise((resolve) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  }));
  return performance.now();
}"""
"""Return the time, since the navigation began, at which the picture of the open image is painted."""
NEXT = f"""async () => {{
  const picture = document.getElementById("picture");
  const began = performance.now();
  const changed = new Promise((resolve) => new MutationObserver(resolve).observe(picture, {{ attributes: true }}));
  document.dispatchEvent(new KeyboardEvent("keydown", {{ key: "d", bubbles: true }}));
  await changed;
  return (await ({PAINTED})()) - began;
}}"""
"""Return the time in milliseconds from the key D until the next image is painted."""


@dataclass(frozen=True)
class ProjectFigures:
    """Figures of a project of 2-megapixel images."""

    images: int
    open_s: Sequence[float]
    """From the reload of the page until the image is painted and all images are listed, for each reload."""
    next_ms: Sequence[float]
    """From the key until the next image, which is encoded ahead, is painted."""
    heap_bytes: int
    """JavaScript heap after all steps."""
    renderer_bytes: int
    """Resident memory of the tab's process, the largest during all steps."""

    def as_table(self) -> str:
        """Return a table of figures beside their goals."""
        rows = [
            (
                f"open {self.images} images, slowest of {len(self.open_s)}",
                f"{max(self.open_s):.2f} s",
                f"{GOAL_OPEN_S:g} s",
            ),
            ("next image painted, p50", f"{statistics.median(self.next_ms):.0f} ms", f"{GOAL_NEXT_MS} ms"),
            ("next image painted, p95", f"{percentile(self.next_ms, 95):.0f} ms", f"{GOAL_NEXT_MS} ms"),
            ("tab's process, most", f"{self.renderer_bytes / 2**20:.0f} MiB", f"{GOAL_BYTES / 2**20:.0f} MiB"),
            ("JavaScript heap of it", f"{self.heap_bytes / 2**20:.0f} MiB", ""),
        ]
        return table(("project of 2-megapixel images", "measured", "goal, at most"), rows)


def photos(folder: Path, count: int = IMAGES) -> list[Path]:
    """Write different images of 2 megapixels into a folder."""
    paths = []
    with Image.open(io.BytesIO(photo())) as picture:
        for number in range(count):
            path = folder / f"{number:03}.jpg"
            ImageEnhance.Brightness(picture).enhance(0.6 + 0.8 * number / count).save(path, quality=90)
            paths.append(path)
    return paths


def measure_project(page: Page, url: str, paths: Sequence[Path], steps: int = STEPS) -> ProjectFigures:
    """Make a project of images in the page, open it again, and step through its images."""
    page.goto(f"{url}/ui")
    page.set_input_files("#file", paths)
    last = page.locator(f"#image-list li:nth-child({len(paths)})")
    last.wait_for(state="attached", timeout=IMPORT_TIMEOUT_MS)
    page.wait_for_selector("#about:not(:empty)")
    opened = []
    for _ in range(3):
        page.wait_for_timeout(1000)
        page.reload()
        last.wait_for(state="attached")
        page.wait_for_selector("#view:not([hidden])")
        opened.append(page.evaluate(PAINTED) / 1000)
        page.wait_for_selector("#about:not(:empty)")
    page.locator("#hover").set_checked(False)
    times, most = [], 0
    for _ in range(steps):
        with page.expect_response("**/embed"):  # of the image after the next one, which ends the encoding ahead
            times.append(page.evaluate(NEXT))
        page.wait_for_selector("#about:not(:empty)")
        page.wait_for_timeout(500)
        most = max(most, renderer_bytes())
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return ProjectFigures(len(paths), opened, times, int(metrics["JSHeapUsedSize"]), most)


def renderer_bytes() -> int:
    """Return the resident memory of the largest renderer process that this process has started."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    return max(each.memory_info().rss for each in children if "--type=renderer" in each.cmdline())
