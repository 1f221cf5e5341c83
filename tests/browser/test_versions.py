"""Several loaded versions of the model, and weights that are used in another way."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from playwright.sync_api import Browser, expect

from benchmarks.fleet import SMALL
from harness import Server, serving
from harness.repository import make_repository
from sam_onnx import Preparer
from tests.browser.page_driver import DISC, MEADOW, RED, PageDriver
from tests.browser.test_accessibility import violations
from tests.browser.test_errors import problem
from tests.browser.test_export import copied
from tests.browser.test_local import MIN_IOU, expect_made, iou, needs_runtime, wait_kept
from tests.browser.test_project import reload, wait_saved
from tests.services import write_other_weights

PATHS = ("**/embed", "**/mobile_sam", "**/everything")
NARROW = {"width": 390, "height": 760}
ADMIN_KEY = "an-operators-own-key"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the built-in weights as version 1, and others as version 2."""
    folder = make_repository(
        tmp_path_factory.mktemp("two_versions") / "model_repository", "builtin"
    )
    write_other_weights(folder, version=2)
    return folder


@pytest.fixture(scope="module")
def two_versions(repository: Path) -> Iterator[Server]:
    with serving(
        repository.parent / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_MODEL_CONTROL_MODE="explicit",
        MOBILE_SAM_ADMIN_KEYS=f"ops:{ADMIN_KEY}",
        **SMALL,
    ) as running:
        yield running


@pytest.fixture
def chooser(browser: Browser, two_versions: Server, photo: Path) -> Iterator[PageDriver]:
    """A user with `photo` open who has the choice of two versions."""
    with PageDriver.open_page(browser, two_versions) as driver:
        driver.open(photo)
        yield driver


def choose(driver: PageDriver, version: int) -> None:
    """Choose a version by keyboard, and wait until the open image is encoded."""
    select = driver.page.get_by_label("weights", exact=True)
    select.focus()
    with driver.page.expect_response("**/embed"):
        driver.page.keyboard.press("ArrowUp" if version == 1 else "ArrowDown")
    expect(select).to_have_value(str(version))
    driver.page.wait_for_selector("#about:not(:empty)")


def info_of(server: Server) -> dict[str, Any]:
    answer: dict[str, Any] = requests.get(f"{server.url}/info", timeout=60).json()
    return answer


def described(info: dict[str, Any], **descriptor: Any) -> list[dict[str, Any]]:
    """Return `loaded` of `/info` with other values in the descriptor."""
    return [{**one, "descriptor": {**one["descriptor"], **descriptor}} for one in info["loaded"]]


@pytest.fixture
def info(builtin_server: Server) -> dict[str, Any]:
    return info_of(builtin_server)


def test_chosen_version_answers_further_clicks_and_objects_keep_their_masks(chooser):
    select = chooser.page.get_by_label("weights", exact=True)
    expect(select.locator("option")).to_have_text(["builtin, version 1", "other, version 2"])
    expect(select).to_have_value("2")
    chooser.click(*DISC)
    first = chooser.visible_mask()
    assert np.array_equal(first, chooser.request_masks(pos_coords=[DISC], model_version=2)[0])
    assert not np.array_equal(first, chooser.request_masks(pos_coords=[DISC], model_version=1)[0])

    bodies = {path: chooser.answer(path, {}) for path in PATHS}
    choose(chooser, 1)
    assert np.array_equal(chooser.visible_mask(), first)
    assert bodies["**/mobile_sam"] == []
    expect(chooser.page.locator("#banner")).to_contain_text("Built-in weights")
    chooser.page.get_by_role("application").focus()
    chooser.press("n")
    chooser.page.locator("#hover").set_checked(True)
    chooser.page.mouse.move(*chooser.screen_xy(*RED))
    chooser.wait_for(lambda: bodies["**/mobile_sam"] != [])
    chooser.page.locator("#hover").set_checked(False)
    chooser.click(*RED)
    assert np.array_equal(
        chooser.visible_mask(), chooser.request_masks(pos_coords=[RED], model_version=1)[0]
    )
    assert np.array_equal(chooser.visible_mask("others"), first)
    chooser.segment_everything()
    assert {body["model_version"] for path in PATHS for body in bodies[path]} == {1}

    for _ in range(2):  # the proposals, then the click
        chooser.press("Control+z")
    chooser.page.locator("#objects li").first.locator(".pick").click()
    assert "model_version=2)" in copied(chooser, "Copy Python")
    assert np.array_equal(chooser.visible_mask(), first)
    chooser.click(*MEADOW)
    chooser.wait_idle()
    marks = {"pos_coords": [DISC, MEADOW], "model_version": 1}
    assert np.array_equal(chooser.visible_mask(), chooser.request_masks(**marks)[0])
    assert violations(chooser.page) == []


def test_version_that_knows_the_image_is_not_sent_the_file_again(chooser):
    bodies = chooser.answer("**/embed", {})
    choose(chooser, 1)
    choose(chooser, 2)
    assert bodies[0]["image_id"] == bodies[-1]["image_id"]
    assert [body["model_version"] for body in bodies if "input_image" in body] in ([], [1])
    assert bodies[-1]["model_version"] == 2


def test_choice_outlives_a_reload_and_falls_back_when_the_version_is_gone(chooser):
    choose(chooser, 1)
    bodies = chooser.answer("**/embed", {})
    chooser.click(*DISC)
    wait_saved(chooser)
    reload(chooser)
    select, hint = chooser.page.get_by_label("weights", exact=True), chooser.page.locator("#hint")
    expect(select).to_have_value("1")
    chooser.wait_for(lambda: bodies != [])
    assert [body["model_version"] for body in bodies] == [1]

    gone = "model_version: expected a loaded version; GET /info lists them, got 1"
    loaded = [one for one in info_of(chooser.server)["loaded"] if one["version"] == 2]
    chooser.answer_info(loaded=loaded, model_versions=[2], weights=loaded[0]["weights"])
    bodies = chooser.answer(
        "**/mobile_sam", *2 * [problem(422, "invalid-request", "Invalid", gone)], {}
    )
    chooser.page.get_by_role("application").focus()
    chooser.press("n")
    chooser.click(*RED)
    expect(hint).to_have_text("Version 1 of the model is no longer loaded: version 2 is used")
    chooser.wait_for(lambda: chooser.visible_mask().any())
    # Of the press, the click, and again.
    assert [body.get("model_version") for body in bodies] == [
        1,
        1,
        None,
    ]
    expect(chooser.page.locator("#version")).to_be_hidden()
    expect(chooser.page.locator("#weights-name")).to_have_text("other")
    expect(chooser.page.get_by_role("alert")).to_be_hidden()
    assert chooser.page.evaluate("localStorage.getItem('mobile-sam-version')") is None


def test_versions_are_offered_once_the_service_has_started(chooser):
    starting = {
        **info_of(chooser.server),
        "loaded": [],
        "model_versions": [],
        "weights": None,
        "engine": None,
    }
    asked = chooser.answer("**/info", {"json": starting})
    chooser.page.reload()
    chooser.wait_for(lambda: len(asked) > 1)  # the page has the first answer, and asked again
    expect(chooser.page.locator("#version")).to_be_hidden()
    chooser.page.unroute("**/info")
    expect(chooser.page.locator("#version")).to_be_visible()
    expect(chooser.page.get_by_role("alert")).to_be_hidden()


def test_versions_fit_a_phone(chooser):
    chooser.page.set_viewport_size(NARROW)
    select = chooser.page.get_by_label("weights", exact=True)
    expect(select).to_be_in_viewport(ratio=1)
    assert chooser.page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert select.bounding_box()["width"] > 100


def test_single_version_is_not_offered(opened):
    expect(opened.page.locator("#version")).to_be_hidden()
    expect(opened.page.locator("#weights-name")).to_have_text("builtin")
    bodies = opened.answer("**/mobile_sam", {})
    opened.click(*DISC)
    assert ["model_version" in body for body in bodies] == [False]


def test_weights_for_boxes_only_send_no_clicks(open_page, photo, info):
    with open_page(info={"loaded": described(info, prompts=["boxes"])}) as driver:
        driver.image = photo
        driver.page.set_input_files("#file", photo)
        driver.page.wait_for_selector("#about:not(:empty)")
        hint = driver.page.locator("#hint")
        expect(hint).to_have_text("These weights accept boxes only: drag one around an object")
        bodies, everything = driver.answer("**/mobile_sam", {}), driver.answer("**/everything", {})
        driver.press("e")
        expect(hint).to_be_hidden()
        driver.page.mouse.move(*driver.screen_xy(*DISC))
        for button in ("left", "right"):
            driver.click(*DISC, button=button)
            expect(hint).to_contain_text("boxes only")
        for name in ("#everything", "#hover"):
            expect(driver.page.locator(name)).to_be_disabled()
            expect(driver.page.locator(name)).to_have_attribute(
                "title", "These weights accept boxes only"
            )
        assert bodies == everything == []
        driver.drag((80, 90), (220, 230))
        assert [body["box"] for body in bodies] == [[80, 90, 220, 230]]
        assert driver.visible_mask().any()
        driver.click(*RED)
        assert len(bodies) == 1
        expect(driver.page.locator("#objects li")).to_have_count(1)


def test_box_for_an_object_with_clicks_replaces_them_if_the_version_accepts_boxes_only(
    browser, two_versions, photo
):
    first, second = info_of(two_versions)["loaded"]
    second["descriptor"]["prompts"] = ["boxes"]
    with PageDriver.open_page(browser, two_versions, info={"loaded": [first, second]}) as driver:
        driver.image = photo
        driver.page.set_input_files("#file", photo)
        driver.page.wait_for_selector("#about:not(:empty)")
        expect(driver.page.locator("#everything")).to_be_disabled()
        choose(driver, 1)
        expect(driver.page.locator("#everything")).to_be_enabled()
        driver.click(*DISC)
        choose(driver, 2)
        bodies = driver.answer("**/mobile_sam", {})
        driver.drag((80, 90), (220, 230))
        assert [
            (body.get("pos_coords"), body["box"], body["model_version"]) for body in bodies
        ] == [(None, [80, 90, 220, 230], 2)]
        driver.press("Control+z")
        assert driver.visible_mask().any()
        assert len(bodies) == 1
        expect(driver.page.locator(".marker.positive")).to_have_count(1)


def test_squashed_weights_get_the_whole_square_and_the_side_decides_on_refining(
    open_page, photo, info
):
    with open_page(info={"loaded": described(info, resize="squash", side=400)}) as driver:
        driver.open(photo)
        bodies = driver.answer("**/mobile_sam", {})
        driver.press("r")
        driver.drag(MEADOW, MEADOW)
        driver.press("v")
        driver.click(*RED)
        sent = np.load(io.BytesIO(base64.b64decode(bodies[-1]["mask_input"])))
        assert sent[MEADOW[1] * 256 // 320, MEADOW[0] * 256 // 480] == 20
        for _ in range(4):
            driver.press("+")
        expect(driver.page.get_by_role("button", name="Refine here")).to_be_visible()


@pytest.mark.parametrize(
    ("encode_s", "text"), [(1.9, "Encoding the image"), (12.4, "Encoding the image, about 12 s")]
)
def test_time_of_a_slow_encoder_is_told(open_page, photo, encode_s, text):
    with open_page(info={"encode_s": encode_s}) as driver:
        held = driver.hold("**/embed")
        driver.page.set_input_files("#file", photo)
        driver.wait_for(lambda: bool(held))
        expect(driver.page.locator("#busy")).to_have_text(text)


@pytest.fixture
def near(browser: Browser, two_versions: Server, photo: Path) -> Iterator[PageDriver]:
    """A user with `photo` open, whose browser can make masks with version 2."""
    with PageDriver.open_page(browser, two_versions, decodes=True) as driver:
        driver.open(photo)
        wait_kept(driver, model_version=2)
        yield driver


def click_offline(driver: PageDriver, point: tuple[int, int]) -> np.ndarray:
    """Begin an object with a click that the service does not get, and return its mask."""
    driver.page.context.set_offline(True)
    driver.page.get_by_role("application").focus()
    driver.press("n")
    driver.click(*point)
    expect_made(driver, "here")
    driver.page.context.set_offline(False)
    return driver.visible_mask()


@needs_runtime
def test_browser_makes_masks_with_the_chosen_version(near):
    for version, point in ((1, DISC), (2, RED)):
        choose(near, version)
        wait_kept(near, model_version=version)
        expected = near.request_masks(pos_coords=[point], model_version=version)[0]
        assert iou(click_offline(near, point), expected) >= MIN_IOU


@needs_runtime
def test_browser_mixes_no_weights_when_a_version_is_replaced(near, repository):
    old = near.request_masks(pos_coords=[DISC], model_version=2)[0]
    Preparer(repository, print, version=2).prepare("builtin")
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    assert (
        requests.post(
            f"{near.server.url}/admin/models/load", headers=headers, timeout=120
        ).status_code
        == 200
    )
    assert iou(click_offline(near, DISC), old) >= MIN_IOU
    near.click(*MEADOW, keys=("Shift",))
    near.wait_for(lambda: len(fetched(near)) == 2)
    wait_kept(near, model_version=2)
    new = near.request_masks(pos_coords=[RED], model_version=2)[0]
    assert iou(click_offline(near, RED), new) >= MIN_IOU


def fetched(driver: PageDriver) -> list[str]:
    return [url for url in driver.requests if "/embeddings/" in url]
