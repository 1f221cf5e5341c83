"""Masks that the browser makes by itself: they are the service's, and need no request."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
from PIL import Image
from playwright.sync_api import Page, Route, expect
from pycocotools import mask as coco_mask

from harness import ROOT, Server
from tests.browser.page_driver import DISC, MEADOW, RED, PageDriver
from tests.browser.test_loading import HAS_LOADED_AHEAD
from tests.browser.test_project import wait_saved
from tests.e2e.pictures import as_base64, scene

RUNTIME = ROOT / "page" / "onnxruntime" / "ort.mjs"
needs_runtime = pytest.mark.skipif(
    not RUNTIME.exists(), reason="no ONNX Runtime Web: make page/onnxruntime"
)
pytestmark = needs_runtime
MIN_IOU = 0.999
SIZES = [(480, 320), (320, 480), (1024, 1024), (90, 70), (1600, 1000), (700, 1900)]
KEEP = """async ([id, drawn, fields, weights]) => {
  const { keep } = await import(new URL("local.js", document.querySelector("script[type=module]").src));
  await keep({ id, drawn }, fields, weights, {});
}"""
DECODE = """async ([id, fields]) => {
  const { decode } = await import(new URL("local.js", document.querySelector("script[type=module]").src));
  const masks = await decode(id, fields, () => Promise.reject(), undefined, true).catch(() => []);
  return masks.map(({ record }) => record);
}"""
GATE = """
const { postMessage } = Worker.prototype;
let opened = Promise.resolve();
window.sent = window.answered = 0;
window.closeGate = () => { opened = new Promise((resolve) => (window.openGate = resolve)); };
Worker.prototype.postMessage = function (message, [port]) {
  const { port1, port2 } = new MessageChannel();
  window.sent++;
  port1.onmessage = ({ data }) => {
    window.answered++;
    port.postMessage(data);
  };
  opened.then(() => postMessage.call(this, message, [port2]));
};
"""
"""Holds back messages to workers on demand; counts them and their answers."""


def decoded(page: Page, image_id: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the masks of a request, made by the browser; none if it cannot yet."""
    masks: list[dict[str, Any]] = page.evaluate(DECODE, [image_id, fields])
    return masks


def wait_kept(driver: PageDriver, **fields: Any) -> None:
    """Wait until masks of the open image can be made in the browser."""
    image_id = hashlib.sha256(driver.image.read_bytes()).hexdigest()
    driver.wait_for(lambda: decoded(driver.page, image_id, pos_coords=[DISC], **fields) != [])


@pytest.fixture
def near(
    open_page: Callable[..., AbstractContextManager[PageDriver]], photo: Path
) -> Iterator[PageDriver]:
    """A user with `photo` open, whose browser can make masks."""
    with open_page(decodes=True, script=GATE) as driver:
        driver.open(photo)
        wait_kept(driver)
        yield driver


def images() -> list[bytes]:
    samples = sorted((ROOT / "page" / "samples").glob("*.jpg"))
    return [*map(Path.read_bytes, samples), *[scene(seed, size) for seed, size in enumerate(SIZES)]]


def prompts(width: int, height: int, low_res: str) -> list[dict[str, Any]]:
    """Return the fields of five requests; `low_res` is an earlier mask."""

    def at(*shares: float) -> list[int]:
        return [
            round(share * side) for share, side in zip(shares, (width, height) * 2, strict=False)
        ]

    smooth = {"min_mask_region_area": max(20, width * height // 10_000)}
    return [
        {"pos_coords": [at(0.4, 0.5)], **smooth},
        {"box": at(0.2, 0.3, 0.7, 0.9), "neg_coords": [at(0.6, 0.4)], "mask_threshold": 1.5},
        {"pos_coords": [at(0.3, 0.4)], "multimask_output": True, "mask_threshold": -2, **smooth},
        {
            "pos_coords": [at(0.5, 0.5), at(0.6, 0.6)],
            "neg_coords": [at(0.1, 0.1)],
            "mask_input": low_res,
        },
        {"pos_coords": [at(0.45, 0.5)], "region": at(0.25, 0.25, 0.75, 0.75), **smooth},
    ]


def served(server: Server, **fields: Any) -> dict[str, Any]:
    """Return the service's answer to a request as a document."""
    body = {"mask_format": "rle", "segmented_image": "none", **fields}
    headers = {"Accept": "application/json"}
    answer = requests.post(f"{server.url}/mobile_sam", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def iou(one: np.ndarray, other: np.ndarray) -> float:
    union = (one | other).sum()
    return float((one & other).sum() / union) if union else 1.0


@pytest.fixture
def page(open_page: Callable[..., AbstractContextManager[PageDriver]]) -> Iterator[Page]:
    with open_page(decodes=True) as driver:
        driver.page.wait_for_selector("#weights:not([hidden])")
        yield driver.page


def test_masks_are_those_of_the_service(page, builtin_server):
    compared = 0
    for file in images():
        width, height = Image.open(io.BytesIO(file)).size
        click = {"pos_coords": [[width // 2, height // 2]], "low_res_mask": True}
        first = served(builtin_server, input_image=as_base64(file), **click)
        image_id, low_res = first["image_id"], first["masks"][0]["low_res_mask"]
        for fields in prompts(width, height, low_res):
            answer = served(builtin_server, image_id=image_id, **fields)
            drawn = {"name": "image", "width": width, "height": height, "orientation": 1}
            page.evaluate(KEEP, [image_id, drawn, fields, answer["weights"]["sha256"]])
            found = decoded(page, image_id, **fields)
            assert len(found) == (3 if "multimask_output" in fields else 1)
            for mask, expected in zip(found, answer["masks"], strict=True):
                one, other = (
                    np.asarray(coco_mask.decode(rle), bool) for rle in (mask, expected["rle"])
                )
                assert iou(one, other) >= MIN_IOU, (width, height, fields)
                assert mask["score"] == pytest.approx(expected["score"], abs=2e-3)
                ys, xs = np.nonzero(one)
                box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1] if len(xs) else [0, 0, 0, 0]
                assert (mask["area"], mask["box"]) == (len(xs), box)
            compared += 1
    assert compared == 60


def expect_made(driver: PageDriver, where: str) -> None:
    """Check that the chip says where the last mask was made."""
    chip = driver.page.locator("#latency")
    expect(chip).to_have_attribute("data-where", where)
    expect(chip).to_contain_text(f" ms, {where}")


def test_hovering_sends_nothing_and_clicks_work_and_are_kept_offline(near):
    near.page.wait_for_function(HAS_LOADED_AHEAD)
    near.page.locator("#hover").set_checked(True)
    before = len(near.requests)
    for step in range(20):
        near.page.mouse.move(*near.screen_xy(DISC[0] - 20 + 2 * step, DISC[1]))
    near.wait_for(lambda: near.visible_mask("preview")[DISC[1], DISC[0]])
    near.page.locator("#hover").set_checked(False)
    # The page asks whether the service is there, hovering or not.
    assert {urlsplit(url).path for url in near.requests[before:]} <= {"/readyz"}

    near.page.context.set_offline(True)
    near.click(*DISC)
    expect_made(near, "here")
    near.click(*RED, keys=("Shift",))
    near.click(*MEADOW, button="right")
    found = [near.visible_mask("others"), near.visible_mask()]
    expect(near.page.get_by_role("alert")).to_be_hidden()
    wait_saved(near)
    near.page.context.set_offline(False)
    expected = [{"pos_coords": [DISC]}, {"pos_coords": [RED], "neg_coords": [MEADOW]}]
    for mask, marks in zip(found, expected, strict=True):
        assert iou(mask, near.request_masks(**marks)[0]) >= MIN_IOU


def click_new(driver: PageDriver, point: tuple[int, int]) -> None:
    driver.press("n")
    driver.click(*point)


def test_first_clicks_are_made_both_ways_and_then_here_if_that_is_quicker_until_the_network_changes(
    near,
):
    held = near.hold("**/mobile_sam")
    for point in (DISC, RED, MEADOW):
        click_new(near, point)
        expect_made(near, "here")
        near.wait_for(lambda: bool(held))
        with near.page.expect_response("**/mobile_sam") as answer:
            held.pop().continue_()
        answer.value.finished()  # until then, the page measures the service's time
    click_new(near, (20, 20))
    expect_made(near, "here")
    assert held == []
    near.page.evaluate("dispatchEvent(new Event('online'))")
    click_new(near, (40, 20))
    near.wait_for(lambda: bool(held))


def test_clicks_are_made_by_the_service_if_that_is_quicker_and_here_if_it_fails(near):
    for point in (DISC, RED, MEADOW):
        near.page.evaluate("closeGate()")
        click_new(near, point)
        expect_made(near, "server")
        near.page.evaluate("openGate()")
        near.wait_for(lambda: near.page.evaluate("answered === sent"))
    sent = near.page.evaluate("sent")
    click_new(near, (20, 20))
    expect_made(near, "server")
    assert near.page.evaluate("sent") == sent
    near.page.route("**/mobile_sam", lambda route: route.abort())
    click_new(near, (40, 20))
    expect_made(near, "here")
    expect(near.page.get_by_role("alert")).to_be_hidden()


def test_embedding_is_fetched_anew_when_the_service_answers_by_other_weights(near):
    fetched = near.answer("**/embeddings/*", {})

    def answer(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        route.fulfill(
            response=response,
            json={**document, "weights": {**document["weights"], "sha256": "f" * 64}},
        )

    near.page.route("**/mobile_sam", answer)
    near.click(*DISC)
    near.wait_for(lambda: len(fetched) == 1)


@pytest.mark.parametrize(
    ("path", "status"),
    [("**/onnxruntime/ort.mjs", 404), ("**/decoder.onnx?*", 409), ("**/embeddings/*", 404)],
)
def test_service_makes_all_masks_if_something_is_missing(open_page, photo, path, status):
    with open_page(decodes=True) as driver:
        asked = driver.answer(path, {"status": status, "body": ""})
        driver.open(photo)
        driver.wait_for(lambda: bool(asked))
        for point in (DISC, RED):
            click_new(driver, point)
            expect_made(driver, "server")
            driver.assert_mask_is_the_apis(pos_coords=[point])
        expect(driver.page.get_by_role("alert")).to_be_hidden()


@pytest.mark.parametrize(
    "settings",
    [{"decodes": True, "info": {"local_decoding": False}}, {"decodes": False}],
)
def test_nothing_is_fetched_if_the_service_does_not_allow_it_or_the_browser_saves_data(
    open_page, photo, settings
):
    with open_page(**settings) as driver:
        driver.open(photo)
        driver.click(*DISC)
        expect_made(driver, "server")
        assert not any("onnx" in url or "/embeddings/" in url for url in driver.requests)


@pytest.mark.parametrize(
    ("drawn", "is_kept"),
    [
        ({}, True),
        ({"orientation": 3}, False),
        ({"width": 320, "height": 480}, False),
        ({"range": [0, 9]}, False),
    ],
)
def test_embedding_of_another_picture_is_not_used(page, builtin_server, photo, drawn, is_kept):
    click = {"pos_coords": [DISC]}
    answer = served(builtin_server, input_image=as_base64(photo.read_bytes()), **click)
    image = {"name": "scene.png", "width": 480, "height": 320, "orientation": 1, **drawn}
    page.evaluate(KEEP, [answer["image_id"], image, click, answer["weights"]["sha256"]])
    assert bool(decoded(page, answer["image_id"], **click)) == is_kept
