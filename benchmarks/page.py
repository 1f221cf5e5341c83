"""Time in the page from a click to its mask, compared with the raw decoder.

python -m benchmarks.page
"""

import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, ViewportSize

from benchmarks.photo import SIZE, photo
from benchmarks.raw import RawModel
from benchmarks.report import CLICKS_IN_PAGE, machine, write_blocks
from benchmarks.servers import engines_of
from benchmarks.service import running
from benchmarks.stats import percentile, seconds, table
from harness import ROOT
from harness.browser import chromium
from mobile_sam_client import Client, Prompt

RUNS = 2
CLICKS = 60
WARM_UP = 5
OBJECTS = 100
"""Objects on the image."""
PAUSE_MS = 400
"""Pause before each click: the page is idle then, and has saved the last one."""
HOLD_MS = 80
"""How long a person holds the button in a click: 87 ms at the age of 25 to 34, longer later (ClickSense, 2026)."""
REST_MS = 250
"""Rest of the pointer before a click with previews."""
HOW: dict[str, dict[str, Any]] = {
    "pressed and released at once": {},
    f"held for {HOLD_MS} ms": {"hold_ms": HOLD_MS},
    "where the pointer rested": {"previews": True},
}
GOAL_MS = 45
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}


@dataclass(frozen=True)
class Clicks:
    """Latencies in milliseconds of clicks on a known image, with runs of the raw decoder between them."""

    painted: list[float]
    service: list[float]
    """Part of `painted`: the time until the page had the answer."""
    decoder: list[float]


def as_table(runs: Sequence[tuple[str, Clicks]]) -> str:
    """Return a table with one row per run, each with its name."""
    columns = ("click to painted mask, p50", "p95", "part of the service, p50", "raw decoder, p50", "over it", "ratio")
    rows = []
    for name, run in runs:
        painted, service, decoder = (statistics.median(times) for times in (run.painted, run.service, run.decoder))
        times = painted, percentile(run.painted, 95), service, decoder, painted - decoder
        rows.append([name, *(f"{value:.0f} ms" for value in times), f"{painted / decoder:.1f}"])
    return table(("clicks", *columns), rows)


def write_annotations(url: str, path: Path, count: int = OBJECTS) -> Path:
    """Write a COCO file with the masks of `count` clicks on `photo`, named photo.jpg."""
    points = (np.random.default_rng(1).uniform(0.05, 0.95, (count, 2)) * SIZE).astype(int).tolist()
    with Client(url) as client:
        found = client.segment_many(photo(), [Prompt(pos_coords=point) for point in points], segmented_image="none")
    document = {
        "images": [{"id": 1, "file_name": "photo.jpg", "width": SIZE[0], "height": SIZE[1]}],
        "categories": [{"id": 1, "name": "object"}],
        "annotations": [each for n, mask in enumerate(found, start=1) for each in mask.to_coco(first_id=n)],
    }
    path.write_text(json.dumps(document))
    return path


def measure(
    page: Page,
    url: str,
    image: Path,
    raw: RawModel,
    clicks: int = CLICKS,
    *,
    objects: Path | None = None,
    previews: bool = False,
    hold_ms: int = 0,
) -> Clicks:
    """Click on an image in the page; its time begins when the button is released.

    Args:
        page: an open page of the browser.
        url: URL of the service.
        image: image file.
        raw: raw model with the same weights.
        clicks: clicks to measure, after a few to warm up.
        objects: file with annotations of the image.
        previews: switch previews on, and rest the pointer before each click, as a person does.
        hold_ms: time from the press of the button to its release.
    """
    page.goto(f"{url}/ui")
    page.set_input_files("#file", image)
    page.wait_for_selector("#about:not(:empty)")
    if objects:
        page.set_input_files("#annotations", objects)
        page.locator("#objects li").nth(1).wait_for(state="attached")
        page.wait_for_selector("#about:not(:empty)")
    page.locator("#hover").set_checked(previews)
    view = page.locator("#scene").bounding_box()
    assert view is not None
    spots = np.random.default_rng(0).uniform(0.05, 0.95, (clicks + WARM_UP, 2))
    found: list[tuple[float, float, float]] = []
    for x, y in spots:
        page.wait_for_selector("#view[aria-busy=false]")
        page.evaluate("document.getElementById('clear').click()")
        page.wait_for_timeout(PAUSE_MS)
        page.evaluate("document.getElementById('latency').removeAttribute('data-milliseconds')")
        place = view["x"] + x * view["width"], view["y"] + y * view["height"]
        if previews:
            page.mouse.move(*place, steps=20)
            page.wait_for_timeout(REST_MS)
        page.mouse.click(*place, delay=hold_ms)
        chip = page.wait_for_selector("#latency[data-milliseconds]", state="attached")
        assert chip is not None
        painted, service = (float(chip.get_attribute(f"data-{name}") or 0) for name in ("milliseconds", "service"))
        found.append((painted, service, 1000 * seconds(raw.decode)))
    return Clicks(*map(list, zip(*found[WARM_UP:], strict=True)))


def main() -> None:
    """Run the command: measure, print a table and write it into docs/performance-details.md."""
    repository = ROOT / "model_repository"
    weights = json.loads((repository / "mobile_sam" / "1" / "weights.json").read_bytes())["name"]
    with tempfile.TemporaryDirectory() as folder, running(repository) as service, chromium() as browser:
        image = Path(folder) / "photo.jpg"
        image.write_bytes(photo())
        objects = write_annotations(service.url, Path(folder) / "objects.json")
        encoder, decoder = engines_of(service)
        raw = RawModel(repository, encoder, decoder)
        load, runs = os.getloadavg()[0], []
        for name, how in [*HOW.items()] * RUNS:
            with browser.new_page(viewport=VIEWPORT) as page:
                runs.append((name, measure(page, service.url, image, raw, objects=objects, **how)))
    on = f"Load average at the start: {load:.1f}. {machine(versions=False)}"
    about = f"With the {weights} weights, decoder {decoder}. {on}"
    goal = (
        f"There are {OBJECTS} objects on the image, and times begin when the button is released. "
        f"The goal is at most {GOAL_MS} ms over the raw decoder."
    )
    text = f"{about}\n\n{as_table(runs)}\n\n{goal}"
    print(text)
    write_blocks({CLICKS_IN_PAGE: text})


if __name__ == "__main__":
    main()
