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
  const columns = [];
  mask.forEachRun((x, start, end) => {
    const from = Math.max(start, y0), to = Math.min(end, y1 + 1);
    if (x >= x0 && x <= x1 && from < to) columns.push([x, from, to]);
  });
  return maskOf(columns, mask.width, mask.height, mask.score);
}

/** Return a mask scaled to a size: each pixel is the nearest one's. */
export function scaled(mask, { width, height }) {
  if (width === mask.width && height === mask.height) return mask;
  const [scaleX, scaleY] = [width / mask.width, height / mask.height];
  const firstAt = (at, scale) => Math.ceil(at * scale - 0.5);
  const columns = [];
  mask.forEachRun((x, start, end) => {
    const from = firstAt(start, scaleY), to = firstAt(end, scaleY);
    for (let newX = firstAt(x, scaleX); from < to && newX < firstAt(x + 1, scaleX); newX++) columns.push([newX, from, to]);
  });
  // Enlarged columns repeat; the sort is stable, so each keeps its order from top to bottom.
  columns.sort((one, other) => one[0] - other[0]);
  return maskOf(columns, width, height, mask.score);
}

/** Return a mask moved right and down by `x` and `y`, within an image of another size. */
export function moved(mask, { x, y }, { width, height }) {
  const columns = [];
  mask.forEachRun((column, start, end) => columns.push([column + x, start + y, end + y]));
  return maskOf(columns, width, height, mask.score);
}

/**
 * Return the mask of these pixels.
 * @param {number[][]} columns x, y0, y1 of vertical runs, from left to right and top to bottom; y1 is exclusive
 */
function maskOf(columns, width, height, score) {
  const spans = new Spans(width, height);
  for (const [x, y0, y1] of columns) spans.add(x, y0, y1);
  return new Mask(spans.encode(), { score, area: spans.area, box: spans.area ? spans.box : [0, 0, 0, 0] });
}
