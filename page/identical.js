// Imported objects that an image has already.

import { cached } from "./cached.js";

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
 * @returns {{kept: Added[], identical: number, otherClass: number, replaced: Set<number>}}
 *   identical: number of those left out; otherClass: number of those kept that have the mask of an
 *   object of another class; replaced: ids of proposals with the mask of one that is kept
 */
export function withoutIdentical(added, known) {
  const result = { kept: [], identical: 0, otherClass: 0, replaced: new Set() };
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
    for (const { id, proposal } of same) if (proposal) result.replaced.add(id);
    result.kept.push(object);
    byPlace.set(place, [...near, { mask: drawn, classId }]);
    if (object.box) boxes.add(boxKey(object));
  }
  return result;
}

/** Return what equal masks have in common, and is known without decoding them. */
function placeOf({ area, box }) {
  return `${area} ${box}`;
}

/** @param {{classId: number, box?: number[] | null}} object */
function boxKey({ classId, box }) {
  return `${classId} ${box}`;
}
