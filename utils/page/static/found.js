// The objects found by "Segment everything": new ones only, sorted, filtered by size and score, deleted at once.

import { element } from "./dom.js";
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

/** Return the objects that are displayed and exported: all but those filtered out; the found ones last if they are sorted. */
export function listed({ list, active }) {
  const minShare = element("found-size").valueAsNumber / 100, minScore = element("found-score").valueAsNumber;
  const isListed = ({ id, found }) =>
    !found || id === active.id || (found.area >= minShare * found.width * found.height && found.score >= minScore);
  const rank = RANKS[element("found-sort").value];
  const objects = list.filter(isListed);
  if (!rank) return objects;
  const found = objects.filter((object) => object.found).sort((one, other) => rank(other.found) - rank(one.found));
  return [...objects.filter((object) => !object.found), ...found];
}

/** Show the controls while there are found objects. */
export function showFound(objects) {
  const count = (list) => list.filter((object) => object.found).length;
  const total = count(objects.list);
  element("found").hidden = !total;
  element("found-count").textContent = `${count(listed(objects))} of ${total} shown`;
}

/**
 * @param {() => void} onChange
 * @param {() => void} removeAll
 */
export function connectFound(onChange, removeAll) {
  element("found-sort").addEventListener("change", onChange);
  element("found-remove").addEventListener("click", removeAll);
  labelSlider("found-size", (value) => `${value} %`);
  labelSlider("found-score", (value) => value.toFixed(2));
  for (const id of ["found-size", "found-score"]) element(id).addEventListener("input", onChange);
}
