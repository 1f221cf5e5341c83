// Imported objects that an image has already.

import { cached } from "./cached.js";
import { overlap } from "./regions.js";

/** Masks with a higher IoU are hardly different, as after an export as polygons. */
const ALMOST_EQUAL_IOU = 0.9;

/**
 * @typedef {import("./objects.js").ImageObject} ImageObject
 * @typedef {Pick<ImageObject, "drawn" | "classId"> & Partial<ImageObject>} Added `drawn` is its mask
 * @typedef {Pick<ImageObject, "classId"> & Partial<ImageObject> & {mask: import("./rle.js").Mask}} Known
 */

/** Return the run lengths of a mask in their only form: other programs may write runs of length 0. */
const runsOf = cached((mask) => mask.spans().encode().counts);

/**
 * Sort out imported objects that are there already: the same mask, or the same box, with the same
 * class. Each one that is added counts for those after it.
 * @param {Added[]} added masks of the image's size
 * @param {Known[]} known the objects of the image that have a mask
 * @returns {{kept: Added[], identical: number, similar: number, otherClass: number, replaced: Set<number>}}
 *   identical: number of those left out; similar: number of those kept that are almost equal to an
 *   object of the same class; otherClass: number of those kept that have the mask of an object of
 *   another class; replaced: ids of proposals with the mask of one that is kept
 */
export function withoutIdentical(added, known) {
  const result = { kept: [], identical: 0, similar: 0, otherClass: 0, replaced: new Set() };
  const byPlace = Map.groupBy(known, ({ mask }) => placeOf(mask));
  const boxes = new Set(known.filter(({ box, proposal }) => box && !proposal).map(boxKey));
  for (const object of added) {
    const { drawn, classId } = object, place = placeOf(drawn), near = byPlace.get(place) ?? [];
    const same = near.filter(({ mask }) => runsOf(mask) === runsOf(drawn));
    const objects = same.filter(({ proposal }) => !proposal);
    if (objects.some((other) => other.classId === classId) || (object.box && boxes.has(boxKey(object)))) {
      result.identical++;
      continue;
    }
    if (objects.length) result.otherClass++;
    if (known.some((other) => other.classId === classId && !other.proposal && isSimilar(other.mask, drawn))) result.similar++;
    for (const { id, proposal } of same) if (proposal) result.replaced.add(id);
    result.kept.push(object);
    byPlace.set(place, [...near, { mask: drawn, classId }]);
    if (object.box) boxes.add(boxKey(object));
  }
  return result;
}

/**
 * Return those of some objects that the image does not have already: no object of their class with an almost equal mask.
 * @param {Added[]} added masks of the image's size
 * @param {Known[]} known the objects of the image that have a mask
 */
export function withoutSimilar(added, known) {
  const hasAlready = ({ drawn, classId }) => known.some((other) => other.classId === classId && isSimilar(other.mask, drawn));
  return added.filter((object) => !hasAlready(object));
}

/** @param {import("./rle.js").Mask} one @param {import("./rle.js").Mask} other */
function isSimilar(one, other) {
  // The ratio of the areas bounds the overlap, and is known without decoding.
  const [smaller, larger] = [one.area, other.area].sort((a, b) => a - b);
  return smaller > ALMOST_EQUAL_IOU * larger && overlap(one, other) > ALMOST_EQUAL_IOU;
}

/** Return what equal masks have in common, and is known without decoding them. */
function placeOf({ area, box }) {
  return `${area} ${box}`;
}

/** @param {{classId: number, box?: number[] | null}} object */
function boxKey({ classId, box }) {
  return `${classId} ${box}`;
}
