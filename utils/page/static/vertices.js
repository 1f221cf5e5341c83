// Outlines with movable points: a mask as polygons, each a list of rings, the outline first and then its holes.

import { polygonsOf } from "./formats/polygons.js";
import { rasterize } from "./formats/rasterize.js";
import { Spans } from "./formats/spans.js";
import { handMask } from "./stroke.js";

/** @typedef {number[]} Ring x0, y0, x1, y1, ... in image pixels, from their edges; the last point is joined to the first */
/**
 * @typedef {object} Outlines
 * @property {Ring[][]} polygons
 * @property {Map<string, number[]>} details points of the exact outline between the ends of an edge, by the four numbers of
 *   the edge: an edge whose ends are not moved stays exact
 */

/**
 * Return the outlines of a mask.
 * @param {import("./rle.js").Mask} mask
 * @param {number} tolerance largest distance from the exact outline, in pixels
 * @returns {Outlines}
 */
export function trace(mask, tolerance) {
  const spans = new Spans(mask.width, mask.height);
  mask.forEachRun((x, top, bottom) => spans.add(x, top, bottom));
  const exact = polygonsOf(spans, "edges", 0), simple = polygonsOf(spans, "edges", tolerance);
  const details = new Map();
  simple.forEach((polygon, index) => addDetails(details, polygon, exact[index]));
  return { polygons: simple.map(withoutSeams), details };
}

function addDetails(details, simple, exact) {
  for (let i = 0, at = 0; i < simple.length; i += 2) {
    const next = following(simple, i), from = at + 2;
    do at += 2;
    while (at < exact.length && (next === 0 || exact[at] !== simple[next] || exact[at + 1] !== simple[next + 1]));
    const key = String([simple[i], simple[i + 1], simple[next], simple[next + 1]]);
    // Where the outline touches itself, two edges can be the same: both stay straight.
    details.set(key, details.has(key) ? [] : exact.slice(from, at));
  }
}

/** Return a ring with the details of its edges. */
export function detailed(ring, details) {
  const points = [];
  for (let i = 0; i < ring.length; i += 2) {
    const next = following(ring, i);
    const between = details.get(String([ring[i], ring[i + 1], ring[next], ring[next + 1]])) ?? [];
    points.push(ring[i], ring[i + 1], ...between);
  }
  return points;
}

/** Return outlines as a mask. */
export function fill({ polygons, details }, { width, height }) {
  const exact = polygons.map((rings) => withSeams(rings.map((ring) => detailed(ring, details))));
  return handMask(rasterize(exact, "edges", width, height));
}

/** Split a polygon at its seams: lines that are walked there and back, which join a hole to the outline. */
function withoutSeams(polygon) {
  const count = polygon.length / 2;
  const point = (index) => [polygon[2 * (index % count)], polygon[2 * (index % count) + 1]];
  const lines = new Set(Array.from({ length: count }, (_, i) => String([point(i), point(i + 1)])));
  const rings = [], open = [{ ring: [], back: null }];
  for (let i = 0; i < count; i++) {
    const there = String([point(i), point(i + 1)]), back = String([point(i + 1), point(i)]);
    if (open.at(-1).back === there) {
      rings.push(open.pop().ring);
      continue;
    }
    open.at(-1).ring.push(...point(i));
    if (lines.has(back)) open.push({ ring: [], back });
  }
  // The lines of a simplified outline can cross, and then look like seams that are not nested.
  if (open.length > 1) return [withoutRepeats(polygon)];
  return [open[0].ring, ...rings].map(withoutRepeats).filter((ring) => ring.length >= 6);
}

/** Return a ring without points that are equal to the one before. */
function withoutRepeats(ring) {
  const isRepeat = (at) => ring[at] === ring.at(at - 2) && ring[at + 1] === ring.at(at - 1);
  return ring.filter((_, index) => !isRepeat(index - (index % 2)));
}

/** Join rings by lines that are walked there and back, and so change no pixel in an even-odd fill. */
function withSeams([outline, ...holes]) {
  const start = outline.slice(0, 2);
  return [...outline, ...start, ...holes.flatMap((hole) => [...hole, ...hole.slice(0, 2), ...start])];
}

/** Return the index of the point after that at an index. */
export function following(ring, at) {
  return (at + 2) % ring.length;
}

/** Return the middle of the edge that begins at an index. */
export function middle(ring, at) {
  const to = following(ring, at);
  return { x: (ring[at] + ring[to]) / 2, y: (ring[at + 1] + ring[to + 1]) / 2 };
}

/** Return the length of the edge that begins at an index. */
export function edgeLength(ring, at) {
  const to = following(ring, at);
  return Math.hypot(ring[to] - ring[at], ring[to + 1] - ring[at + 1]);
}

/** Return the distance of a point from the edge that begins at an index. */
export function edgeDistance(ring, at, { x, y }) {
  const to = following(ring, at);
  const dx = ring[to] - ring[at], dy = ring[to + 1] - ring[at + 1], squared = dx * dx + dy * dy;
  const share = squared ? Math.min(1, Math.max(0, ((x - ring[at]) * dx + (y - ring[at + 1]) * dy) / squared)) : 0;
  return Math.hypot(x - ring[at] - share * dx, y - ring[at + 1] - share * dy);
}
