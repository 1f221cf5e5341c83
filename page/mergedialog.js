// The dialog that decides about differences between the open project and a saved one.

import { agreementOf, agreementTable, differenceOf, isDifference, pairsOf, wordsOf } from "./agreement.js";
import { create, element } from "./dom.js";
import { download } from "./exports.js";
import { counted } from "./notices.js";
import { viewOf } from "./view.js";

/**
 * @typedef {import("./agreement.js").Comparison} Comparison
 * @typedef {import("./merging.js").MergedImage} MergedImage
 */

/** @type {["mine", "theirs"]} */
const SIDES = ["mine", "theirs"];
/** Size of the picture of a difference on the screen, and the least part of the image around it, in pixels. */
const PICTURE_PIXELS = 140, MARGIN_PIXELS = 16;
/** Colours of the outlines, which the legend of the dialog shows too. */
const COLOURS = { mine: "#ffd400", theirs: "#ff4fd8" };

/**
 * Show how far the objects on common images agree, and let the user choose where they differ. The choices are kept in the
 * comparisons.
 * @param {MergedImage[]} merged
 * @returns {Promise<boolean>} whether to merge
 */
export function decideMerge(merged) {
  const dialog = element("merge-projects"), all = merged.flatMap(({ comparisons }) => comparisons);
  const differences = all.filter(isDifference);
  const agreed = `${counted(merged.length, "image")} in both projects: ${agreementText(all)}`;
  element("merge-summary").textContent = `${agreed}; ${counted(differences.length, "difference")}`;
  const sections = merged.map(sectionOf);
  element("merge-images").replaceChildren(...sections.map(({ section }) => section));
  for (const side of SIDES) {
    const button = element(`merge-all-${side}`);
    button.disabled = !differences.length;
    button.onclick = () => {
      for (const comparison of differences) comparison.choice = side;
      for (const { showChoices } of sections) showChoices();
    };
  }
  element("merge-table").onclick = () => download(new Blob([agreementTable(merged)], { type: "text/csv" }), "agreement.csv");
  drawPictures(dialog, sections);
  return new Promise((resolve) => {
    dialog.returnValue = "";
    element("merge-apply").onclick = () => dialog.close("apply");
    element("merge-cancel").onclick = () => dialog.close("");
    dialog.onclose = () => {
      element("merge-images").replaceChildren();
      resolve(dialog.returnValue === "apply");
    };
    dialog.showModal();
  });
}

/** Return the agreement in words. @param {Comparison[]} comparisons */
function agreementText(comparisons) {
  const agreement = agreementOf(comparisons);
  if (agreement === null) return "no objects to compare";
  return `agreement ${agreement.toFixed(2)} over ${counted(comparisons.length, "object")}`;
}

/** Return what was merged and decided, in words. @param {MergedImage[]} merged */
export function decidedText(merged) {
  const all = merged.flatMap(({ comparisons }) => comparisons), decided = all.filter(isDifference).length;
  return `${counted(merged.length, "image")} merged: ${agreementText(all)}; ${counted(decided, "difference")} decided`;
}

/** Return the part of the dialog about an image. @param {MergedImage} merged */
function sectionOf({ image, name, comparisons }) {
  const { count, meanIou } = pairsOf(comparisons);
  const [here, there] = SIDES.map((side) => comparisons.filter((one) => one[side]).length);
  const mean = meanIou === null ? "" : `; mean IoU of ${counted(count, "pair")} ${meanIou.toFixed(2)}`;
  const rows = comparisons.filter(isDifference).map((comparison, index) => rowOf(comparison, `${image.id}-${index}`));
  const facts = create("p", { className: "quiet", textContent: `${counted(here, "object")} here, ${there} there${mean}` });
  const list = rows.length ? [create("ul", {}, ...rows.map(({ item }) => item))] : [create("p", { textContent: "No differences" })];
  const section = create("section", { ariaLabel: name }, create("h3", { textContent: name }), facts, ...list);
  return { section, image, rows, showChoices: () => rows.forEach(({ showChoice }) => showChoice()) };
}

/** Return the row of a difference. @param {Comparison} comparison @param {string} key of the row in the dialog */
function rowOf(comparison, key) {
  const { mine, theirs, iou } = comparison;
  const what = differenceOf(comparison) + (mine && theirs ? `, IoU ${iou.toFixed(2)}` : "");
  const sides = SIDES.filter((side) => comparison[side]).map((side) => {
    const object = comparison[side];
    return create("span", { className: side, textContent: `${side}: ${wordsOf(object)}, ${object.category}` });
  });
  const canvas = create("canvas", { width: PICTURE_PIXELS, height: PICTURE_PIXELS, ariaHidden: "true" });
  const fields = Object.entries(choicesOf(comparison)).map(([value, text]) => {
    const onchange = () => (comparison.choice = /** @type {import("./agreement.js").Choice} */ (value));
    const field = create("input", { type: "radio", name: `merge-${key}`, value, checked: comparison.choice === value, onchange });
    return { field, label: create("label", {}, field, ` ${text}`) };
  });
  const legend = create("legend", {}, create("b", { textContent: what }), ...sides);
  const item = create("li", {}, canvas, create("fieldset", {}, legend, ...fields.map(({ label }) => label)));
  const showChoice = () => fields.forEach(({ field }) => (field.checked = field.value === comparison.choice));
  return { item, canvas, comparison, showChoice };
}

/** Return the texts of the choices. @param {Comparison} comparison */
function choicesOf({ mine, theirs }) {
  if (!theirs) return { mine: "keep", theirs: "drop" };
  if (!mine) return { theirs: "add", mine: "leave out" };
  return { mine: "mine", theirs: "theirs", both: "both" };
}

/** Draw the pictures of all differences, image by image, while the dialog is open. */
async function drawPictures(dialog, sections) {
  for (const { image, rows, section } of sections) {
    if (!rows.length) continue;
    try {
      const { picture } = await viewOf(image.file, { orientation: image.orientation });
      const bitmap = await createImageBitmap(picture);
      for (const { canvas, comparison } of rows) draw(canvas.getContext("2d"), bitmap, comparison);
      bitmap.close();
    } catch (error) {
      section.append(create("p", { className: "quiet", textContent: `No pictures: ${error.message}` }));
    }
    if (!dialog.open) return;
  }
}

/** Draw the image around the objects, with their outlines. */
function draw(context, bitmap, { mine, theirs }) {
  const boxes = [mine, theirs].filter(Boolean).map(({ mask }) => mask.box);
  const [x0, y0] = [0, 1].map((at) => Math.min(...boxes.map((box) => box[at])) - MARGIN_PIXELS);
  const [x1, y1] = [2, 3].map((at) => Math.max(...boxes.map((box) => box[at])) + MARGIN_PIXELS);
  const scale = PICTURE_PIXELS / Math.max(x1 - x0, y1 - y0);
  context.setTransform(scale, 0, 0, scale, -x0 * scale, -y0 * scale);
  context.drawImage(bitmap, 0, 0);
  context.lineWidth = 2 / scale;
  for (const side of SIDES) {
    const outline = { mine, theirs }[side]?.mask.outline(1);
    context.strokeStyle = COLOURS[side];
    // Dashed, so that both are seen where they are equal.
    context.setLineDash(side === "theirs" ? [6 / scale, 6 / scale] : []);
    if (outline) context.stroke(outline);
  }
}
