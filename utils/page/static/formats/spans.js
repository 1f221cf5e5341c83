// Masks as vertical spans: the runs of COCO's column-major RLE, split at the columns.

import { decodeRuns, encodeRuns, forEachRun } from "../rle.js";
import { FormatError, MAX_IMAGE_PIXELS, isWhole } from "./project.js";

/** Spans of ones, sorted by column, then row; spans of one column do not touch. */
export class Spans {
  /** @type {number[]} */
  columns = [];
  /** @type {number[]} first rows */
  tops = [];
  /** @type {number[]} rows after the last ones */
  bottoms = [];
  area = 0;

  constructor(width, height) {
    this.width = width;
    this.height = height;
  }

  /**
   * Decode a mask.
   * @param {{size: number[], counts: string | number[]}} rle compressed or uncompressed
   * @throws {FormatError} the runs do not fill the image
   */
  static decode({ size, counts }) {
    const [height, width] = size;
    const runs = typeof counts === "string" ? decodeRuns(counts) : counts;
    let total = 0;
    for (const run of runs) {
      if (!isWhole(run, 0, MAX_IMAGE_PIXELS)) throw new FormatError("run lengths must be whole numbers from 0");
      total += run;
    }
    if (total !== width * height) throw new FormatError(`the run lengths add up to ${total}, not to ${width} x ${height}`);
    const spans = new Spans(width, height);
    forEachRun(runs, height, (x, top, bottom) => spans.add(x, top, bottom));
    return spans;
  }

  /** Append a span; it must not start before the last one. Overlapping and touching spans are joined. */
  add(column, top, bottom) {
    const last = this.columns.length - 1;
    if (last >= 0 && this.columns[last] === column && top <= this.bottoms[last]) {
      this.area += Math.max(0, bottom - this.bottoms[last]);
      this.bottoms[last] = Math.max(bottom, this.bottoms[last]);
      return;
    }
    this.columns.push(column);
    this.tops.push(top);
    this.bottoms.push(bottom);
    this.area += bottom - top;
  }

  /**
   * Return the smallest box around the mask, which must not be empty.
   * @returns {[number, number, number, number]} x0, y0, x1, y1; x1 and y1 are exclusive
   */
  get box() {
    let top = this.height, bottom = 0;
    for (const y of this.tops) top = Math.min(top, y);
    for (const y of this.bottoms) bottom = Math.max(bottom, y);
    return [this.columns[0], top, this.columns.at(-1) + 1, bottom];
  }

  /** @returns {import("./project.js").Rle} */
  encode() {
    const runs = [];
    let end = 0;
    this.columns.forEach((column, i) => {
      const start = column * this.height + this.tops[i], length = this.bottoms[i] - this.tops[i];
      if (runs.length && start === end) runs[runs.length - 1] += length;
      else runs.push(start - end, length);
      end = start + length;
    });
    const rest = this.width * this.height - end;
    if (rest || !runs.length) runs.push(rest);
    return { size: [this.height, this.width], counts: encodeRuns(runs) };
  }
}

/**
 * Return the masks of an image's objects; objects without pixels are left out.
 * @param {import("./project.js").AnnotatedImage} image
 */
export function masksOf(image) {
  return image.objects
    .map((object) => {
      try {
        return { object, spans: Spans.decode(object.rle) };
      } catch (error) {
        throw new FormatError(`${image.name}: the mask of ${object.name} is damaged: ${error.message}`);
      }
    })
    .filter(({ spans }) => spans.area);
}
