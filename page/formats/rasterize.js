// Polygons as masks.

import { FormatError, MAX_IMAGE_SIDE } from "./project.js";
import { Spans } from "./spans.js";

/** Crossings of columns by the edges of one object; more would take seconds. */
const MAX_CROSSINGS = 10_000_000;
/** Packs a span's first and last row into one number, which sorts fast. */
const ROWS = MAX_IMAGE_SIDE + 1;

/**
 * Return the union of polygons as a mask. Each is filled by the even-odd rule.
 *
 * The frame is as in polygons.js. "edges": a pixel is inside when its centre is. "pixels": points are rounded, and the
 * pixels under the outline are inside too, as OpenCV's fillPoly paints them.
 * @param {import("./polygons.js").Polygon[]} polygons finite numbers, possibly outside the image
 * @param {import("./polygons.js").Frame} frame
 * @throws {FormatError} the polygons are too complex
 */
export function rasterize(polygons, frame, width, height) {
  const raster = new Raster(width, height);
  for (const polygon of polygons) {
    if (frame === "edges") {
      raster.fill(polygon, 0);
    } else {
      const rounded = polygon.map(Math.round);
      raster.fill(rounded, 0.5);
      raster.outline(rounded);
    }
  }
  return raster.spans();
}

/**
 * Return the whole of a box as a mask that stands for it.
 * @param {number[]} corners x0, y0, x1, y1 in the frame "edges"
 */
export function rasterizeBox(corners, width, height) {
  const spans = rasterize([boxPolygon(corners)], "edges", width, height);
  spans.isBox = true;
  return spans;
}

/**
 * Return a box as a polygon of the frame "edges".
 * @param {number[]} corners x0, y0, x1, y1
 */
export function boxPolygon([x0, y0, x1, y1]) {
  return [x0, y0, x1, y0, x1, y1, x0, y1];
}

/** Spans collected in any order. */
class Raster {
  #steps = 0;
  /** @type {Map<number, number[]>} unsorted spans by column, each as `top * ROWS + bottom` */
  #columns = new Map();

  constructor(width, height) {
    this.width = width;
    this.height = height;
  }

  /** Fill a polygon by the even-odd rule at pixel centres, with the polygon moved right and down by `shift`. */
  fill(polygon, shift) {
    /** @type {Map<number, number[]>} heights of the crossings by column */
    const crossings = new Map();
    forEachEdge(polygon, (ax, ay, bx, by) => {
      const [x0, y0, x1, y1] = ax < bx ? [ax, ay, bx, by] : [bx, by, ax, ay];
      const first = Math.max(0, Math.ceil(x0 + shift - 0.5)), end = Math.min(this.width, Math.ceil(x1 + shift - 0.5));
      this.#count(end - first);
      for (let column = first; column < end; column++) {
        const y = y0 + ((column + 0.5 - shift - x0) * (y1 - y0)) / (x1 - x0);
        const rows = crossings.get(column);
        if (rows) rows.push(y + shift);
        else crossings.set(column, [y + shift]);
      }
    });
    for (const [column, rows] of crossings) {
      rows.sort((a, b) => a - b);
      for (let i = 0; i + 1 < rows.length; i += 2) this.#add(column, Math.ceil(rows[i] - 0.5), Math.ceil(rows[i + 1] - 0.5));
    }
  }

  /** Paint the pixels under a polygon's edges; the points are whole numbers. */
  outline(polygon) {
    forEachEdge(polygon, (ax, ay, bx, by) => {
      if (ax === bx) {
        this.#add(ax, Math.min(ay, by), Math.max(ay, by) + 1);
      } else if (Math.abs(by - ay) <= Math.abs(bx - ax)) {
        this.#paint(ax, ay, bx, by, this.width, (x, y) => this.#add(x, y, y + 1));
      } else {
        this.#paint(ay, ax, by, bx, this.height, (y, x) => this.#add(x, y, y + 1));
      }
    });
  }

  /** Call `visit(u, v)` for each whole `u` from 0 to `size` along a line that is not steeper than 1. */
  #paint(au, av, bu, bv, size, visit) {
    const [u0, v0, u1, v1] = au < bu ? [au, av, bu, bv] : [bu, bv, au, av];
    const first = Math.max(0, u0), last = Math.min(size - 1, u1);
    this.#count(last - first + 1);
    for (let u = first; u <= last; u++) visit(u, Math.round(v0 + ((u - u0) * (v1 - v0)) / (u1 - u0)));
  }

  #add(column, from, to) {
    const top = Math.max(0, from), bottom = Math.min(this.height, to);
    if (column < 0 || column >= this.width || top >= bottom) return;
    const spans = this.#columns.get(column);
    if (spans) spans.push(top * ROWS + bottom);
    else this.#columns.set(column, [top * ROWS + bottom]);
  }

  #count(steps) {
    this.#steps += Math.max(0, steps);
    if (this.#steps > MAX_CROSSINGS) throw new FormatError("the polygons have too many points");
  }

  spans() {
    const spans = new Spans(this.width, this.height);
    for (const column of [...this.#columns.keys()].sort((a, b) => a - b)) {
      const sorted = this.#columns.get(column).sort((a, b) => a - b);
      for (const span of sorted) spans.add(column, Math.floor(span / ROWS), span % ROWS);
    }
    return spans;
  }
}

function forEachEdge(polygon, visit) {
  const count = polygon.length;
  for (let i = 0; i < count; i += 2) {
    const following = (i + 2) % count;
    visit(polygon[i], polygon[i + 1], polygon[following], polygon[following + 1]);
  }
}
