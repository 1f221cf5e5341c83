// Outlines with points that can be moved: polygons, each a list of rings, the outline first and then its holes.

import { ringsOf, simplify, squaredDistance } from "./formats/polygons.js";
import { rasterize } from "./formats/rasterize.js";
import { Mask } from "./rle.js";

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
  return ringsOf(mask.spans()).map((rings) => rings.map((ring) => simplified(ring, tolerance)));
}

/** Return outlines as a mask made by hand, which has no score. */
export function fill(polygons, { width, height }) {
  return Mask.fromSpans(rasterize(polygons.map((rings) => withSeams(rings.map(exact))), "edges", width, height), null);
}

/** @returns {Vertex} */
export function vertexAt({ x, y }) {
  return { x, y, detail: [] };
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
export function insertVertex(ring, index, point) {
  ring[index].detail = [];
  ring.splice(index + 1, 0, vertexAt(point));
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
  return Math.sqrt(squaredDistance(x - from.x, y - from.y, to.x - from.x, to.y - from.y));
}
