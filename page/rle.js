// Masks with their scores, as the page shows and stores them.

import { cached } from "./cached.js";
import { canvasOf } from "./dom.js";
import { ringsOf } from "./formats/polygons.js";
import { Spans, decodeRuns, paint } from "./formats/spans.js";

/** A mask with more runs is noise: drawing its outline would take too long. */
const MAX_OUTLINE_RUNS = 40_000;

/**
 * @typedef {object} MaskRecord a mask as plain data, to be stored
 * @property {[number, number]} size height and width
 * @property {string} counts
 * @property {number | null} score
 * @property {number} area
 * @property {number[]} box
 * @property {import("./objects.js").Point | null} point
 */

/**
 * Return the same record of a mask each time, so that a state stores it once.
 * @type {(mask: Mask) => MaskRecord}
 */
const recordOf = cached(({ height, width, counts, score, area, box, point }) => ({ size: [height, width], counts, score, area, box, point }));

/** A mask with its score, area and box. */
export class Mask {
  /**
   * @param {{size: [number, number], counts: string}} rle
   * @param {{score: number | null, area: number, box: number[], point?: import("./objects.js").Point | null, isHere?: boolean}} properties
   *   score: null for a mask made by hand; box: x0, y0, x1, y1; x1 and y1 are exclusive; isHere: made in this browser
   */
  constructor(rle, properties) {
    this.height = rle.size[0];
    this.width = rle.size[1];
    this.counts = rle.counts;
    this.score = properties.score;
    this.area = properties.area;
    this.box = properties.box;
    this.runs = decodeRuns(rle.counts);
    /** @type {import("./objects.js").Point | null} the grid click that found the mask, from "Segment everything" */
    this.point = properties.point ?? null;
    this.isHere = properties.isHere ?? false;
  }

  /** @returns {MaskRecord} */
  get record() {
    return recordOf(this);
  }

  /** @param {MaskRecord} record */
  static fromRecord(record) {
    return new Mask(record, record);
  }

  /**
   * @param {Spans} spans
   * @param {number | null} score
   */
  static fromSpans(spans, score) {
    return new Mask(spans.encode(), { score, area: spans.area, box: spans.box });
  }

  /** The score for the user, who knows 1 as the best one. */
  get scoreText() {
    return this.score === null ? "by hand" : Math.min(this.score, 1).toFixed(2);
  }

  /** Return every `step`-th pixel of every `step`-th row as spans, in units of `step`. */
  spans(step = 1) {
    return Spans.fromRuns(this.runs, this.width, this.height, step);
  }

  /** Return whether pixel (x, y) is in the mask. */
  has(x, y) {
    const [x0, y0, x1, y1] = this.box;
    if (x < x0 || y < y0 || x >= x1 || y >= y1) return false;
    const index = x * this.height + y;
    let at = 0;
    for (let i = 0; i + 1 < this.runs.length; i += 2) {
      at += this.runs[i];
      if (index < at) return false;
      at += this.runs[i + 1];
      if (index < at) return true;
    }
    return false;
  }

  /**
   * Render the mask in one colour, at every `step`-th pixel of every `step`-th row.
   * @param {number} step
   * @param {number} colour little-endian RGBA word
   * @returns {{pixels: ImageData, x: number, y: number} | null} null for an empty mask; x and y in units of `step`
   */
  pixels(step, colour) {
    const spans = this.spans(step), { box } = spans, [x, y, x1, y1] = box;
    if (!spans.area) return null;
    const words = paint(Uint32Array, box, [{ spans, value: colour }]);
    return { pixels: new ImageData(new Uint8ClampedArray(words.buffer), x1 - x, y1 - y), x, y };
  }

  /** Return the mask as `pixels` does, on a canvas, which blends with others. */
  canvas(step, colour) {
    const painted = this.pixels(step, colour);
    if (!painted) return null;
    const { pixels, x, y } = painted;
    return { canvas: canvasOf(pixels.width, pixels.height, (context) => context.putImageData(pixels, 0, 0)), x, y };
  }

  /**
   * Return the mask's outline along its pixel edges, or null for noise.
   * @param {number} step as in `pixels`
   */
  outline(step) {
    if (this.runs.length > MAX_OUTLINE_RUNS) return null;
    const rings = ringsOf(this.spans(step)).flat();
    return new Path2D(rings.map((ring) => `M${ring.map((at) => at * step).join(" ")}Z`).join(""));
  }
}
