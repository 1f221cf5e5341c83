// Operations on masks: overlap, clipping to a box, scaling, moving.

import { Spans } from "./formats/spans.js";
import { Mask } from "./rle.js";

/**
 * Return the intersection over union of two masks of the same image; 0 for two empty masks.
 * @param {Mask} one
 * @param {Mask} other
 */
export function overlap(one, other) {
  let common = 0;
  let [i, j, start, otherStart] = [1, 1, one.runs[0], other.runs[0]];
  while (i < one.runs.length && j < other.runs.length) {
    const end = start + one.runs[i], otherEnd = otherStart + other.runs[j];
    common += Math.max(0, Math.min(end, otherEnd) - Math.max(start, otherStart));
    if (end <= otherEnd) {
      start = end + one.runs[i + 1];
      i += 2;
    } else {
      otherStart = otherEnd + other.runs[j + 1];
      j += 2;
    }
  }
  return common / (one.area + other.area - common || 1);
}

/**
 * Return the part of a mask inside a box.
 * @param {Mask} mask
 * @param {number[]} box x0, y0, x1, y1, all inclusive
 */
export function clipped(mask, [x0, y0, x1, y1]) {
  const spans = new Spans(mask.width, mask.height);
  mask.spans().forEach((x, start, end) => {
    const from = Math.max(start, y0), to = Math.min(end, y1 + 1);
    if (x >= x0 && x <= x1 && from < to) spans.add(x, from, to);
  });
  return Mask.fromSpans(spans, mask.score);
}

/** Return a mask scaled to a size: each pixel is the nearest one's. */
export function scaled(mask, { width, height }) {
  if (width === mask.width && height === mask.height) return mask;
  const [scaleX, scaleY] = [width / mask.width, height / mask.height];
  const firstAt = (at, scale) => Math.ceil(at * scale - 0.5);
  const columns = [];
  mask.spans().forEach((x, start, end) => {
    const from = firstAt(start, scaleY), to = firstAt(end, scaleY);
    for (let newX = firstAt(x, scaleX); from < to && newX < firstAt(x + 1, scaleX); newX++) columns.push([newX, from, to]);
  });
  return Mask.fromSpans(Spans.union(width, height, columns), mask.score);
}

/** Return a mask moved right and down by `x` and `y`, within an image of another size. */
export function moved(mask, { x, y }, { width, height }) {
  const spans = new Spans(width, height);
  mask.spans().forEach((column, start, end) => spans.add(column + x, start + y, end + y));
  return Mask.fromSpans(spans, mask.score);
}
