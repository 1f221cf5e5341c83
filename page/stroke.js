// A stroke of the brush or the eraser. Points are in image pixels: pixel (x, y) is the square from x, y to x + 1, y + 1.

import { Spans } from "./formats/spans.js";
import { Mask } from "./rle.js";

/** A mask's pixels while a stroke changes them. */
export class Stroke {
  #last = null;

  /**
   * @param {Mask | null} mask null: empty
   * @param {{width: number, height: number}} image
   * @param {{radius: number, erases: boolean}} [brush] radius in pixels; pixels with their centre in it are changed
   */
  constructor(mask, { width, height }, { radius, erases } = { radius: 0, erases: false }) {
    this.width = width;
    this.height = height;
    this.radius = radius;
    this.erases = erases;
    /** 1 in the mask, column by column. */
    this.columns = new Uint8Array(width * height);
    /** x0, y0, x1, y1 around all pixels of the mask; x1 and y1 are exclusive. */
    this.box = [width, height, 0, 0];
    if (mask) this.fill(mask, 1);
  }

  /** Add the pixels of a mask with 1, or remove them with 0. */
  fill(mask, value) {
    mask.spans().forEach((x, top, bottom) => this.columns.fill(value, x * this.height + top, x * this.height + bottom));
    if (value && mask.area) extend(this.box, mask.box);
  }

  /**
   * Draw a line from the last point to this one.
   * @param {{x: number, y: number}} point
   * @returns {[number, number, number, number]} box of the changed pixels, like `box`; x0 >= x1 if there are none
   */
  lineTo(point) {
    const from = this.#last ?? point, value = this.erases ? 0 : 1;
    this.#last = point;
    const left = Math.max(0, Math.ceil(Math.min(from.x, point.x) - this.radius - 0.5));
    const right = Math.min(this.width, Math.floor(Math.max(from.x, point.x) + this.radius - 0.5) + 1);
    /** @type {[number, number, number, number]} */
    const changed = [this.width, this.height, 0, 0];
    for (let x = left; x < right; x++) {
      const [entry, exit] = this.#crossing(from, point, x + 0.5);
      const top = Math.max(0, Math.ceil(entry - 0.5)), bottom = Math.min(this.height, Math.floor(exit - 0.5) + 1);
      if (top >= bottom) continue;
      this.columns.fill(value, x * this.height + top, x * this.height + bottom);
      extend(changed, [x, top, x + 1, bottom]);
    }
    if (value) extend(this.box, changed);
    return changed;
  }

  /** Return where a vertical line enters and leaves the area within the radius of a line: it is convex. */
  #crossing(from, to, x) {
    const heights = [];
    for (const end of [from, to]) {
      const half = Math.sqrt(this.radius ** 2 - (x - end.x) ** 2);
      if (half >= 0) heights.push(end.y - half, end.y + half);
    }
    const length = Math.hypot(to.x - from.x, to.y - from.y);
    for (const side of length ? [-this.radius, this.radius] : []) {
      const startX = from.x - (side * (to.y - from.y)) / length, startY = from.y + (side * (to.x - from.x)) / length;
      const share = (x - startX) / (to.x - from.x);
      if (share >= 0 && share <= 1) heights.push(startY + share * (to.y - from.y));
    }
    return [Math.min(...heights), Math.max(...heights)];
  }

  /** Return the mask with the stroke, which has no score. */
  mask() {
    const [left, top, right, bottom] = this.box;
    const spans = new Spans(this.width, this.height);
    for (let x = left; x < right; x++) {
      const column = this.columns.subarray(x * this.height + top, x * this.height + bottom);
      for (let start = column.indexOf(1); start >= 0; ) {
        const zero = column.indexOf(0, start), end = zero < 0 ? column.length : zero;
        spans.add(x, top + start, top + end);
        start = column.indexOf(1, end);
      }
    }
    return Mask.fromSpans(spans, null);
  }
}

/** Extend a box to include another one. */
function extend(box, [x0, y0, x1, y1]) {
  box[0] = Math.min(box[0], x0);
  box[1] = Math.min(box[1], y0);
  box[2] = Math.max(box[2], x1);
  box[3] = Math.max(box[3], y1);
}
