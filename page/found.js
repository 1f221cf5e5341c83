// The proposals of "Segment everything": new ones only, sorted, and hidden by size and score.

import { element } from "./dom.js";
import { counted } from "./notices.js";
import { labelSlider } from "./options.js";
import { overlap } from "./regions.js";

/** Two masks with a higher intersection over union are of the same object. */
const MAX_OVERLAP = 0.8;
/** Sort keys, highest first. */
const RANKS = { size: (mask) => mask.area, score: (mask) => mask.score };

/**
 * Return the found masks that are of no object on the image yet.
 * @param {import("./rle.js").Mask[]} found
 * @param {import("./session.js").Session} session
 */
export function withoutKnown(found, { objects, masks }) {
  const known = objects.list.map((object) => masks.get(object)).filter((mask) => mask?.area);
  const isSame = (one, other) => {
    // The ratio of their areas bounds the overlap, and is known without decoding.
    const [smaller, larger] = [one.area, other.area].sort((a, b) => a - b);
    return smaller > MAX_OVERLAP * larger && overlap(one, other) > MAX_OVERLAP;
  };
  return found.filter((mask) => !known.some((other) => isSame(mask, other)));
}

/** Return the displayed objects: all but the proposals that the filter hides; proposals last if they are sorted. */
export function listed({ list, active, filter }) {
  const isListed = ({ id, proposal, found }) =>
    !proposal || id === active.id || (100 * found.area >= filter.size * found.width * found.height && found.score >= filter.score);
  const rank = RANKS[filter.sort];
  const objects = list.filter(isListed);
  if (!rank) return objects;
  const proposals = proposalsOf(objects).sort((one, other) => rank(other.found) - rank(one.found));
  return [...objects.filter(({ proposal }) => !proposal), ...proposals];
}

/** Return the displayed objects from bottom to top: proposals, smaller ones higher, then the objects in their order. */
export function stacked(objects) {
  const shown = listed(objects);
  return [...proposalsOf(shown).sort((one, other) => other.found.area - one.found.area), ...shown.filter(({ proposal }) => !proposal)];
}

export function proposalsOf(objects) {
  return objects.filter(({ proposal }) => proposal);
}

const CONTROLS = { size: "found-size", score: "found-score", sort: "found-sort" };
/** @type {(() => void)[]} */
let showValues = [];

/** Call an action with the filter that the user has set. */
export function connectFilter(change) {
  showValues = [labelSlider("found-size", (value) => `${value} %`), labelSlider("found-score", (value) => value.toFixed(2))];
  const values = () => ({ size: element("found-size").valueAsNumber, score: element("found-score").valueAsNumber, sort: element("found-sort").value });
  for (const id of Object.values(CONTROLS)) element(id).addEventListener("input", () => change(values()));
}

/** Show the filter and the number of proposals, while there are any. */
export function showFound(objects) {
  const total = proposalsOf(objects.list).length, shown = proposalsOf(listed(objects)).length;
  if (total && element("found").hidden) element("everything-section").open = true;
  element("found").hidden = !total;
  element("found-count").textContent = `${shown} of ${counted(total, "proposal")} shown`;
  element("found-accept").toggleAttribute("disabled", !shown);
  for (const [field, id] of Object.entries(CONTROLS)) element(id).value = String(objects.filter[field]);
  for (const show of showValues) show();
}
