"""Use without a mouse or a screen: axe-core in every state of the page, the keyboard,
announcements.
"""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, MEADOW, RED

SERIOUS_IMPACTS = {"serious", "critical"}
COLOUR_RULES = {"runOnly": ["color-contrast", "link-in-text-block"]}
RUN_AXE = """async (options) => {
  const rules = { "label-content-name-mismatch": { enabled: true } };
  return (await axe.run({ resultTypes: ["violations"], rules, ...options })).violations;
}"""


# Contrast of the text of elements, by the formula of WCAG 2: axe-core leaves disabled controls out.
CONTRASTS = """(selector) => {
  const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = (node, name) => getComputedStyle(node)[name];
  const ground = (node) => {
    const colour = style(node, "backgroundColor");
    return (channels(colour)[3] ?? 1) === 1 ? colour : ground(node.parentElement);
  };
  const isSolid = (node) => !node || (style(node, "opacity") === "1" && isSolid(node.parentElement));
  const contrast = (node) => {
    const [text, behind] = [style(node, "color"), ground(node)].map(luminance);
    return isSolid(node) ? (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05) : 1;
  };
  const nodes = [...document.querySelectorAll(selector)].filter((node) => node.checkVisibility());
  return nodes.map((node) => [node.id || node.textContent, contrast(node)]);
}"""
MIN_CONTRAST = 4.5


def violations(page) -> list[str]:
    """Return the serious violations of axe-core's rules; those about colours apply to the dark
    scheme too.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    found = []
    for scheme, options in (("dark", COLOUR_RULES), ("light", {})):
        page.emulate_media(color_scheme=scheme)
        found += page.evaluate(RUN_AXE, options)
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}:"
        f" {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in found
        if rule["impact"] in SERIOUS_IMPACTS
    ]


def test_names_of_hidden_objects_can_be_read(opened):
    opened.click(*DISC)
    opened.press_button("Hide object 1")
    assert violations(opened.page) == []
    names = "#objects .hidden-object .name, #objects .hidden-object .score"
    for scheme in ("dark", "light"):
        opened.page.emulate_media(color_scheme=scheme)
        contrasts = opened.page.evaluate(CONTRASTS, names)
        assert len(contrasts) == 2
        assert min(contrast for _, contrast in contrasts) >= MIN_CONTRAST, contrasts


def test_page_states_have_no_serious_violations(driver, photo, large):
    assert violations(driver.page) == []
    driver.open(photo)
    driver.click(*DISC)
    driver.click(*MEADOW, button="right")
    driver.drag((290, 80), (410, 220))
    driver.press("i")
    driver.segment_everything()
    assert violations(driver.page) == []
    driver.press_button("New")
    driver.press("g")
    for corner in (DISC, RED, MEADOW):
        driver.page.mouse.click(*driver.screen_xy(*corner))
    assert violations(driver.page) == []
    driver.press("Enter")
    assert violations(driver.page) == []
    driver.press("v")
    driver.drag((290, 80), (410, 220))
    expect(driver.page.get_by_role("alertdialog")).to_be_focused()
    driver.press("Escape")
    driver.open(large)
    for _ in range(6):
        driver.press("+")
    driver.press_button("Refine here")
    expect(driver.page.get_by_role("button", name="Refine here")).to_have_attribute(
        "aria-pressed", "true"
    )
    control, tools = (driver.page.locator(name).bounding_box() for name in ("#refine", "#tools"))
    assert control["y"] + control["height"] <= tools["y"]
    driver.page.route("**/mobile_sam", lambda route: route.abort())
    driver.click(1200, 800, keys=("Shift",))
    driver.page.wait_for_selector("#alert:not([hidden])")
    assert violations(driver.page) == []
    driver.page.get_by_role("button", name="Help and shortcuts").click()
    assert violations(driver.page) == []
    driver.page.keyboard.press("Escape")
    driver.page.get_by_role("button", name="Export", exact=True).click()
    assert violations(driver.page) == []


def test_disabled_controls_can_be_read(opened):
    opened.page.locator("#object-menu-open").click()
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        contrasts = opened.page.evaluate(CONTRASTS, "button:disabled, #candidates:disabled b")
        assert {"undo", "save-mask", "Automatic"} <= {name for name, _ in contrasts}
        assert [name for name, contrast in contrasts if contrast < MIN_CONTRAST] == [], scheme


def test_keys_click_and_draw_a_box(opened):
    opened.page.locator("#view").focus()
    for key in ["Shift+ArrowLeft"] * 4 + ["ArrowLeft"] * 10:
        opened.page.keyboard.press(key)
    opened.press("Enter")
    opened.assert_mask_is_the_apis(pos_coords=[[150, 160]])
    opened.page.keyboard.press("Shift+ArrowRight")
    opened.press("Shift+Enter")
    opened.assert_mask_is_the_apis(pos_coords=[[150, 160]], neg_coords=[[170, 160]])

    opened.press("n")
    opened.page.keyboard.press("b")
    for key in ["Shift+ArrowDown"] * 3 + ["Shift+ArrowRight"] * 5:
        opened.page.keyboard.press(key)
    opened.press("b")
    opened.assert_mask_is_the_apis(box=[170, 160, 270, 220])
    assert opened.visible_mask("others").any()


def test_shortcuts_match_the_help_and_are_ignored_in_names(opened):
    page = opened.page
    name = page.get_by_label("Name of object 1")
    name.fill("")
    name.press_sequentially("next box 3")
    name.press("Enter")
    expect(page.locator("#objects li")).to_have_count(1)
    expect(page.get_by_label("Name of next box 3")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("x")
    expect(page.get_by_label("Exclude")).to_be_checked()
    page.keyboard.press("h")
    expect(page.locator("#hover")).to_be_checked()
    page.keyboard.press("h")
    page.keyboard.press("]")
    expect(page.get_by_label("Opacity")).to_have_value("60")
    page.keyboard.press("+")
    zoomed = page.locator("#zoom-fit").inner_text()
    page.keyboard.press("0")
    assert page.locator("#zoom-fit").inner_text() != zoomed


def test_result_is_announced_and_tab_reaches_every_control(clicked):
    status = clicked.page.get_by_role("status")
    clicked.wait_for(lambda: "object 1: " in status.inner_text())
    assert "% of the image, score 0." in status.inner_text()
    reached = set()
    for _ in range(70):
        clicked.page.keyboard.press("Tab")
        reached.add(
            clicked.page.evaluate("document.activeElement.id || document.activeElement.className")
        )
    controls = [
        "view",
        "undo",
        "clear",
        "new-object",
        "everything",
        "opacity",
        "object-menu-open",
        "export-open",
        "add-class",
        "add-images",
    ]
    assert {*controls, "marker positive"} <= reached
