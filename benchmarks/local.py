"""Masks that callers decode, and masks by the service: in the page, in the Python client, and for many annotators.

    python -m benchmarks.local

All take turns. A page that may decode takes the quicker way. Browser and service share the cores.
"""

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, Request
from tqdm import tqdm

from benchmarks import page as in_page
from benchmarks.photo import CLICK, new_photo, photo
from benchmarks.report import LOCAL, machine, write_blocks
from benchmarks.servers import click_request, image_fields
from benchmarks.service import OFFICIAL, running
from benchmarks.stats import percentile, ratios, seconds, short, table
from harness import Server
from harness.browser import chromium
from harness.load import Request as Call
from harness.load import closed_loop, crowd, json_request
from harness.repository import prepare
from mobile_sam_client import Client

COUNTS = (2, 15, 50, 40, 24)
"""Rounds; in each, clicks of a kind, hovers, clicks of the Python client, and minutes of annotators."""
SERVER, HERE = "by the service", "local decoding"
SITUATIONS = {"150 ms added": (150, 0), "50 ms": (50, 0), "50 others click": (0, 50), "0 ms": (0, 0)}
"""Milliseconds that the network adds to a request, and people who click every `PAUSE_S`. Hovers are in the last one."""
PAUSE_S, CLICKS_A_MINUTE, CALLERS = 2.0, 20, 4
PAINTED, HOVERED = "click to painted mask, p50 / p95 ms", "requests of 100 hovers"
CLICKED, CARRIED = "clicks per second of the Python client", "annotators"
OFF = {"local_decoding": False}
Found = dict[str, list[float]]


def visit(page: Page, server: Server, image: Path, clicks: int, hovers: int) -> Found:
    """Return the figures of a new visitor, who clicks and hovers on an image."""
    found: Found = {}
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))  # noqa: PLW0108 (Playwright takes no built-in functions)
    network, nothing = page.context.new_cdp_session(page), SimpleNamespace(decode=lambda: None)
    others = click_request(hashlib.sha256(photo()).hexdigest(), CLICK, "rle")
    for name, (delay_ms, people) in SITUATIONS.items():
        limits = {"offline": False, "latency": delay_ms, "downloadThroughput": -1, "uploadThroughput": -1}
        network.send("Network.emulateNetworkConditions", limits)
        with crowd(server.port, lambda: others, people, pause=PAUSE_S):
            times = in_page.measure(page, server.url, image, nothing, clicks)  # type: ignore[arg-type]
        if not found:
            megabytes: Any = [(each.url, sum(each.sizes().values()) / 1e6) for each in requests]  # type: ignore[arg-type]
            found["an image, MB"] = [sum(size for url, size in megabytes if "/embed" in url)]
            found["rest of a first visit, MB"] = [sum(size for url, size in megabytes if "/embed" not in url)]
        found[f"{PAINTED}: {name}"] = times.painted
    page.evaluate("document.getElementById('clear').click()")
    page.locator("#hover").set_checked(True)
    view, before = page.locator("#scene").bounding_box(), len(requests)
    assert view is not None
    for x, y in np.random.default_rng(2).uniform(0.05, 0.95, (hovers, 2)):
        page.mouse.move(view["x"] + x * view["width"], view["y"] + y * view["height"], steps=20)
        page.wait_for_timeout(in_page.REST_MS)
    return {**found, HOVERED: [100 * (len(requests) - before) / hovers]}


def annotators(server: Server, minutes: int, prompts: int) -> float:
    """Return how many annotators the service carries. Each opens an image a minute, and sends prompts or decodes."""
    work = []
    for file in (new_photo() for _ in range(minutes)):
        image_id = hashlib.sha256(file).hexdigest()
        later = [click_request(image_id, CLICK, "rle")] * prompts or [Call(f"/embeddings/{image_id}")]
        work.append([json_request(image_fields(file), "/embed"), *later])

    send = partial(closed_loop, server.port)
    with ThreadPoolExecutor(CALLERS) as callers:
        return 60 * minutes / seconds(lambda: [replies.all_ok() for replies in callers.map(send, work)])


def measure(server: Server, browser: Browser, folder: Path, counts: Sequence[int] = COUNTS) -> str:
    """Return the figures as text; `counts` as `COUNTS`."""
    rounds, clicks, hovers, decodes, minutes = counts
    image = folder / "photo.jpg"
    image.write_bytes(photo())
    figures = {where: defaultdict[str, list[float]](list) for where in (SERVER, HERE)}
    for _ in tqdm(range(rounds), desc="local", unit="round"):
        for where, found in figures.items():
            with Client(server.url, local=where == HERE) as client:
                click = partial(client.segment, client.embed(image), pos_coords=CLICK, segmented_image="none")
                click()
                found[CLICKED].append(decodes / seconds(partial(list, (click() for _ in range(decodes)))))
            with browser.new_page(viewport=in_page.VIEWPORT) as page:
                if where == SERVER:
                    page.route("**/info", lambda route: route.fulfill(json={**route.fetch().json(), **OFF}))
                for name, values in visit(page, server, image, clicks, hovers).items():
                    found[name] += values
            prompts = round(CLICKS_A_MINUTE * max(1, found[HOVERED][-1] / 100)) if where == SERVER else 0
            found[CARRIED].append(annotators(server, minutes, prompts))
    rows = [[name, *(shown(name, found[name]) for found in figures.values())] for name in figures[SERVER]]
    ratio = ratios(figures[HERE][CARRIED], figures[SERVER][CARRIED])
    return f"{table(('', *figures), rows)}\n\nRatio of annotators: {ratio}."


def shown(name: str, values: Sequence[float]) -> str:
    """Return the median, of clicks in the page also the 95th percentile."""
    return " / ".join(short(percentile(values, each)) for each in ((50, 95) if name.startswith(PAINTED) else (50,)))


def main() -> None:
    """Measure, print the figures and write them into the page."""
    with tempfile.TemporaryDirectory() as folder, running(prepare(OFFICIAL)) as server, chromium() as browser:
        figures = measure(server, browser, Path(folder))
    text = f"With the official weights. {machine(versions=False)} {COUNTS[0]} rounds.\n\n{figures}"
    write_blocks({LOCAL: text})
    print(text)


if __name__ == "__main__":
    main()
