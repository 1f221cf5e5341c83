// Clicks on a mask made by hand: each changes the region around it, and the rest stays as it was drawn.

import { scaled } from "./regions.js";
import { Stroke } from "./stroke.js";
import { fill, trace } from "./vertices.js";

/** Side of the model's masks, and logits of -20 and 20 as little-endian float32. */
const SIDE = 256, OUTSIDE = "\0\0\xa0\xc1", INSIDE = "\0\0\xa0\x41";
const NPY_HEADER = `\x93NUMPY\x01\0v\0${`{'descr': '<f4', 'fortran_order': False, 'shape': (${SIDE}, ${SIDE}), }`.padEnd(117)}\n`;

/**
 * Return a mask as `mask_input` of a request: the image is in the upper left of a square, or fills it without its shape.
 * @param {import("./rle.js").Mask} mask
 * @param {boolean} isSquashed whether the image fills the square
 */
export function maskInput(mask, isSquashed) {
  const longest = Math.max(mask.width, mask.height);
  const scaledSide = (side) => (isSquashed ? SIDE : Math.max(1, Math.round((side * SIDE) / longest)));
  const size = { width: scaledSide(mask.width), height: scaledSide(mask.height) };
  const logits = Array(SIDE * SIDE).fill(OUTSIDE);
  scaled(mask, size).spans().forEach((x, top, bottom) => {
    for (let y = top; y < bottom; y++) logits[y * SIDE + x] = INSIDE;
  });
  return btoa(NPY_HEADER + logits.join(""));
}

/**
 * Return a mask made by hand as later clicks change it: a positive one adds the island of the answer around it, outside of
 * the mask if it is outside; a negative one removes the island around it that is not in the answer.
 * @param {import("./rle.js").Mask} drawn
 * @param {import("./rle.js").Mask} sent the part of it that was sent
 * @param {import("./rle.js").Mask} answer
 * @param {import("./objects.js").Point[]} clicks
 */
export function withClicks(drawn, sent, answer, clicks) {
  const changed = new Stroke(drawn, drawn);
  for (const click of clicks) {
    const added = () => islandAt(click, answer, drawn.has(click.x, click.y) ? null : drawn);
    const island = click.label ? added() : islandAt(click, sent, answer);
    if (island) changed.fill(island, click.label);
  }
  return changed.mask();
}

/** Return the island of a mask around a click, without the pixels of another mask; undefined: the click is beside it. */
function islandAt({ x, y }, mask, other) {
  const rest = new Stroke(mask, mask);
  if (other) rest.fill(other, 0);
  return trace(rest.mask(), 0).map((island) => fill([island], mask)).find((island) => island.has(x, y));
}
