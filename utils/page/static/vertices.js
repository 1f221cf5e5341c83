// Outlines with points that can be moved: polygons, each a list of rings, the outline first and then its holes.

import { polygonsOf, simplify } from "./formats/polygons.js";
import { rasterize } from "./formats/rasterize.js";
import { Spans } from "./formats/spans.js";
import { handMask } from "./stroke.js";

/** A thin ring with less than three points at this tolerance keeps all of them. */
const MIN_TOLERANCE = 0.1;

/**
 * @typedef {object} Vertex in image pixels, from their edges
 * @property {number} x
 * @property {number} y
 * @property {number[]} detail points of the exact outline up to the next vertex, x0, y0, ...: kept until one of the two is moved
 * @typedef {Vertex[]} Ring the last vertex is joined to the first
 */

/**
 * Return the outlines of a mask.
 * @param {import("./rle.js").Mask} mask
 * @param {number} tolerance largest distance between an edge and the exact outline, in pixels
 * @returns {Ring[][]}
 */
export function trace(mask, tolerance) {
  const spans = new Spans(mask.width, mask.height);
  mask.forEachRun((x, top, bottom) => spans.add(x, top, bottom));
  return polygonsOf(spans, "edges", 0).map((polygon) => withoutSeams(polygon).map((ring) => simplified(ring, tolerance)));
}

/** Return outlines as a mask. */
export function fill(polygons, { width, height }) {
  return handMask(rasterize(polygons.map((rings) => withSeams(rings.map(exact))), "edges", width, height));
}

/** Return a ring's points with their details, x0, y0, ... */
export function exact(ring) {
  return ring.flatMap(({ x, y, detail }) => [x, y, ...detail]);
}

/** Return a ring of points as one of vertices: at least three. */
function simplified(points, tolerance) {
  const closed = [...points, points[0], points[1]];
  let kept = simplify(closed, tolerance);
  while (kept.length < 8) {
    tolerance /= 2;
    kept = tolerance > MIN_TOLERANCE ? simplify(closed, tolerance) : closed;
  }
  const ring = [];
  for (let i = 0; i < points.length; i += 2) {
    const [x, y] = [points[i], points[i + 1]], next = 2 * ring.length;
    if (next < kept.length - 2 && x === kept[next] && y === kept[next + 1]) ring.push({ x, y, detail: [] });
    else ring.at(-1).detail.push(x, y);
  }
  return ring;
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
  // Where the outline touches a hole, an edge can look like a seam.
  if (open.length > 1) return [withoutRepeats(polygon)];
  return [open[0].ring, ...rings].map(withoutRepeats).filter((ring) => ring.length >= 6);
}

/** Return points without those that are equal to the one before. */
function withoutRepeats(points) {
  const isRepeat = (at) => points[at] === points.at(at - 2) && points[at + 1] === points.at(at - 1);
  return points.filter((_, index) => !isRepeat(index - (index % 2)));
}

/** Join rings of points by lines that are walked there and back, and so change no pixel in an even-odd fill. */
function withSeams([outline, ...holes]) {
  const start = outline.slice(0, 2);
  return [...outline, ...start, ...holes.flatMap((hole) => [...hole, ...hole.slice(0, 2), ...start])];
}

// ---- changes of a ring, by the index of a vertex

function endOf(ring, index) {
  return ring[(index + 1) % ring.length];
}

function forgetDetails(ring, index) {
  ring[index].detail = ring.at(index - 1).detail = [];
}

export function moveVertex(ring, index, { x, y }) {
  Object.assign(ring[index], { x, y });
  forgetDetails(ring, index);
}

export function deleteVertex(ring, index) {
  forgetDetails(ring, index);
  ring.splice(index, 1);
}

/** Add a vertex on the edge that begins at a vertex. */
export function insertVertex(ring, index, { x, y }) {
  ring[index].detail = [];
  ring.splice(index + 1, 0, { x, y, detail: [] });
}

/** Return the middle of the edge that begins at a vertex. */
export function middle(ring, index) {
  const from = ring[index], to = endOf(ring, index);
  return { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
}

/** Return the length of the edge that begins at a vertex. */
export function edgeLength(ring, index) {
  const from = ring[index], to = endOf(ring, index);
  return Math.hypot(to.x - from.x, to.y - from.y);
}

/** Return the distance of a point from the edge that begins at a vertex. */
export function edgeDistance(ring, index, { x, y }) {
  const from = ring[index], to = endOf(ring, index);
  const dx = to.x - from.x, dy = to.y - from.y, squared = dx * dx + dy * dy;
  const share = squared ? Math.min(1, Math.max(0, ((x - from.x) * dx + (y - from.y) * dy) / squared)) : 0;
  return Math.hypot(x - from.x - share * dx, y - from.y - share * dy);
}
