// Regions of the image, and operations on masks: overlap, clipping to a box, scaling.

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

/**
 * Return the part of a mask in a box as a mask of the box's size.
 * @param {Mask} mask
 * @param {number[]} box x0, y0, x1, y1; x1 and y1 are exclusive
 */
export function cut(mask, box) {
  const [x0, y0, x1, y1] = box, spans = new Spans(x1 - x0, y1 - y0);
  clipped(mask, [x0, y0, x1 - 1, y1 - 1]).spans().forEach((x, start, end) => spans.add(x - x0, start - y0, end - y0));
  return Mask.fromSpans(spans, mask.score);
}

/**
 * Return a region rounded outwards as the service does, so that small movements of the view lead to the same one.
 * @param {number[]} region x0, y0, x1, y1; x1 and y1 are exclusive
 * @param {{width: number, height: number}} image
 */
export function rounded(region, image) {
  const [x0, y0, x1, y1] = region, { width, height } = image;
  const step = 2 ** Math.max(0, 31 - Math.clz32(Math.max(x1 - x0, y1 - y0) / 8));
  const down = (at) => Math.floor(at / step) * step, up = (at, end) => Math.min(Math.ceil(at / step) * step, end);
  const found = [down(x0), down(y0), up(x1, width), up(y1, height)];
  return String(found) === String(region) ? found : rounded(found, image);
}
