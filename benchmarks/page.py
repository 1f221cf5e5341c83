"""Latency from a click in the page to the painted mask, compared with the raw decoder.

python -m benchmarks.page
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, ViewportSize

from benchmarks.arms import engines_of
from benchmarks.browser import chromium
from benchmarks.figures import percentile, seconds, table
from benchmarks.photo import photo
from benchmarks.raw import RawModel
from benchmarks.report import CLICKS_IN_PAGE, machine, write_blocks
from benchmarks.service import ROOT, running

RUNS = 2
CLICKS = 60
WARM_UP = 5
GOAL_MS = 60
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}


@dataclass(frozen=True)
class Clicks:
    """Latencies in milliseconds of clicks on a known image, with runs of the raw decoder between them."""

    painted: list[float]
    service: list[float]
    """Part of `painted`: the time until the page had the answer."""
    decoder: list[float]

    def row(self) -> list[str]:
        """Return the cells of a row of `as_table`, without the first."""
        painted, service, decoder = (statistics.median(times) for times in (self.painted, self.service, self.decoder))
        worst = percentile(self.painted, 95)
        return [f"{value:.0f} ms" for value in (painted, worst, service, decoder, painted - decoder)]


def as_table(runs: Sequence[Clicks]) -> str:
    """Return a table with one row per run."""
    columns = ("click to painted mask, p50", "p95", "of it the service, p50", "raw decoder, p50", "over it")
    return table(("run", *columns), [(number, *run.row()) for number, run in enumerate(runs, 1)])


def measure(page: Page, url: str, image: Path, raw: RawModel, clicks: int = CLICKS) -> Clicks:
    """Click on an image in the page.

    Args:
        page: an open page of the browser.
        url: URL of the service.
        image: image file.
        raw: raw model with the same weights.
        clicks: clicks to measure, after a few to warm up.
    """
    page.goto(f"{url}/ui")
    page.set_input_files("#file", image)
    page.wait_for_selector("#about:not(:empty)")
    page.locator("#hover").set_checked(False)
    view = page.locator("#scene").bounding_box()
    assert view is not None
    spots = np.random.default_rng(0).uniform(0.05, 0.95, (clicks + WARM_UP, 2))
    found: list[tuple[float, float, float]] = []
    for x, y in spots:
        page.keyboard.press("Escape")
        page.evaluate("document.getElementById('latency').removeAttribute('data-milliseconds')")
        page.mouse.click(view["x"] + x * view["width"], view["y"] + y * view["height"])
        chip = page.wait_for_selector("#latency[data-milliseconds]", state="attached")
        assert chip is not None
        painted, service = (float(chip.get_attribute(f"data-{name}") or 0) for name in ("milliseconds", "service"))
        found.append((painted, service, 1000 * seconds(raw.decode)))
    counted = found[WARM_UP:]
    return Clicks(*([float(row[column]) for row in counted] for column in range(3)))


def main() -> None:
    """Run the command: measure, print a table and write it into docs/performance-details.md."""
    repository = ROOT / "model_repository"
    weights = json.loads((repository / "mobile_sam" / "1" / "weights.json").read_bytes())["name"]
    with tempfile.TemporaryDirectory() as folder, running(repository) as service, chromium() as browser:
        image = Path(folder) / "photo.jpg"
        image.write_bytes(photo())
        page = browser.new_page(viewport=VIEWPORT)
        encoder, decoder = engines_of(service)
        raw = RawModel(repository, encoder, decoder)
        runs = [measure(page, service.url, image, raw) for _ in range(RUNS)]
    about = f"With the {weights} weights, decoder {decoder}. {machine(versions=False)}"
    text = f"{about}\n\n{as_table(runs)}\n\nThe goal is at most {GOAL_MS} ms over the raw decoder."
    print(text)
    write_blocks({CLICKS_IN_PAGE: text})


if __name__ == "__main__":
    main()
