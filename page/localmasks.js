// Masks from the decoder's logits, by the steps of the service (orchestrator/masks.py).

import { Spans, decodeRuns } from "./formats/spans.js";

/** Sides of the decoder's masks, and of the frame in which it takes points. */
export const SIDE = 256, FRAME = 1024;

/** Return the pixel before a place in a scaled row, and the share of the next pixel, as OpenCV's linear interpolation. */
function placeOf(at, from, to) {
  const place = Math.min(Math.max(((at + 0.5) * from) / to - 0.5, 0), from - 1), first = Math.floor(place);
  return [first, place - first];
}

/**
 * Return how a side of the decoder's masks is scaled: for each pixel the first of three logits, and their weights.
 * `size`: pixels of the image; `valid`: of the image in the frame; `isSquashed`: it fills the frame, and is scaled in one step.
 */
export function scaling(size, valid, isSquashed) {
  const firsts = new Int32Array(size), weights = new Float32Array(3 * size), side = isSquashed ? SIDE : FRAME;
  for (let at = 0; at < size; at++) {
    const [pixel, share] = placeOf(at, isSquashed ? SIDE : valid, size);
    firsts[at] = Math.min(placeOf(pixel, SIDE, side)[0], SIDE - 3);
    for (const [between, weight] of [[pixel, 1 - share], [pixel + 1, share]]) {
      const [first, part] = placeOf(between, SIDE, side), index = 3 * at + first - firsts[at];
      weights[index] += weight * (1 - part);
      weights[index + 1] += weight * part;
    }
  }
  return { firsts, weights };
}

/**
 * Return where logits, (256, 256) row by row, are above a threshold in an image.
 * `origin`: first pixel of the part that was encoded; `scalings`: of that part's width and height.
 */
export function spansAbove(logits, threshold, { width, height, origin: [left, top], scalings: [columns, rows] }) {
  const spans = new Spans(width, height), line = new Float32Array(SIDE);
  const scaled = (values, i, weights, at) => weights[at] * values[i] + weights[at + 1] * values[i + 1] + weights[at + 2] * values[i + 2];
  columns.firsts.forEach((first, x) => {
    for (let row = 0; row < SIDE; row++) line[row] = scaled(logits, row * SIDE + first, columns.weights, 3 * x);
    if (!line.some((value) => value > threshold)) return;
    let start = -1;
    for (let y = 0; y <= rows.firsts.length; y++) {
      const isAbove = scaled(line, rows.firsts[y], rows.weights, 3 * y) > threshold; // false after the last row
      if (!isAbove && start >= 0) spans.add(left + x, top + start, top + y);
      if (isAbove !== start >= 0) start = isAbove ? y : -1;
    }
  });
  return spans;
}

/** Fill holes and remove islands below an area in pixels; the largest island stays. */
export function smoothed(spans, minArea) {
  const inverse = (one) => Spans.fromRuns([0, ...decodeRuns(one.encode().counts)], one.width, one.height);
  return withoutSmall(inverse(withoutSmall(inverse(spans), minArea)), minArea, true);
}

/** Remove regions below an area; pixels that touch at a corner are in one region. */
function withoutSmall(spans, minArea, keepsLargest = false) {
  const { columns, tops, bottoms } = spans, parents = [...columns.keys()], areas = columns.map(() => 0);
  const rootOf = (i) => {
    while (parents[i] !== i) i = parents[i] = parents[parents[i]];
    return i;
  };
  for (let i = 0, left = 0; i < columns.length; i++) {
    while (columns[left] < columns[i] - 1 || (columns[left] < columns[i] && bottoms[left] < tops[i])) left++;
    for (let j = left; columns[j] < columns[i] && tops[j] <= bottoms[i]; j++) parents[rootOf(j)] = rootOf(i);
  }
  columns.forEach((_, i) => (areas[rootOf(i)] += bottoms[i] - tops[i]));
  const least = keepsLargest ? Math.min(minArea, areas.reduce((one, other) => Math.max(one, other), 0)) : minArea;
  const kept = new Spans(spans.width, spans.height);
  columns.forEach((column, i) => areas[rootOf(i)] >= least && kept.add(column, tops[i], bottoms[i]));
  return kept;
}
