// Masks in COCO's compressed RLE (column-major, alternating runs of 0 and 1, starting with 0), and as vertical spans: the
// runs of ones, split at the columns.

import { FormatError, MAX_IMAGE_PIXELS, isWhole } from "./project.js";

const TILE_PIXELS = 32;

/**
 * Decode COCO's RLE string to run lengths, like `rleFrString` of pycocotools.
 * @param {string} text
 * @returns {number[]}
 */
export function decodeRuns(text) {
  const runs = [];
  let at = 0;
  while (at < text.length) {
    let value = 0, shift = 0, more = true;
    while (more) {
      const bits = text.charCodeAt(at++) - 48;
      value |= (bits & 0x1f) << shift;
      shift += 5;
      more = (bits & 0x20) !== 0;
      if (!more && bits & 0x10) value |= -1 << shift;
    }
    if (runs.length > 2) value += runs[runs.length - 2];
    runs.push(value);
  }
  return runs;
}

/**
 * Encode run lengths as COCO's RLE string, like `rleToString` of pycocotools.
 * @param {number[]} runs
 * @returns {string}
 */
function encodeRuns(runs) {
  const codes = [];
  runs.forEach((run, index) => {
    let value = index > 2 ? run - runs[index - 2] : run, more = true;
    while (more) {
      const bits = value & 0x1f;
      value >>= 5;
      more = bits & 0x10 ? value !== -1 : value !== 0;
      codes.push(String.fromCharCode(48 + (more ? bits | 0x20 : bits)));
    }
  });
  return codes.join("");
}

/** Spans of ones, sorted by column, then row; spans of one column do not touch. */
export class Spans {
  /** @type {number[]} */
  columns = [];
  /** @type {number[]} first rows */
  tops = [];
  /** @type {number[]} rows after the last ones */
  bottoms = [];
  area = 0;
  /** Whether the mask stands for a box, which has none in its file. */
  isBox = false;

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
    return Spans.fromRuns(runs, width, height);
  }

  /**
   * @param {number[]} runs alternating of zeros and ones, column by column
   * @param {number} width
   * @param {number} height
   * @param {number} step takes every `step`-th pixel of every `step`-th row; the spans are in units of it
   */
  static fromRuns(runs, width, height, step = 1) {
    const spans = new Spans(Math.ceil(width / step), Math.ceil(height / step));
    let at = 0;
    for (let i = 0; i + 1 < runs.length; i += 2) {
      at += runs[i];
      const end = at + runs[i + 1];
      while (at < end) {
        const x = Math.floor(at / height), y = at - x * height, length = Math.min(height - y, end - at);
        const top = Math.ceil(y / step), bottom = Math.ceil((y + length) / step);
        if (x % step === 0 && top < bottom) spans.add(x / step, top, bottom);
        at += length;
      }
    }
    return spans;
  }

  /**
   * Return the union of spans in any order.
   * @param {number} width
   * @param {number} height
   * @param {number[][]} list column, first row and row after the last of each; sorted in place
   */
  static union(width, height, list) {
    const spans = new Spans(width, height);
    list.sort(([x, top], [otherX, otherTop]) => x - otherX || top - otherTop);
    for (const [x, top, bottom] of list) spans.add(x, top, bottom);
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

  /** Call `visit(x, y0, y1)` for each span. */
  forEach(visit) {
    this.columns.forEach((column, i) => visit(column, this.tops[i], this.bottoms[i]));
  }

  /**
   * Return the smallest box around the mask; zeros for an empty mask.
   * @returns {[number, number, number, number]} x0, y0, x1, y1; x1 and y1 are exclusive
   */
  get box() {
    if (!this.area) return [0, 0, 0, 0];
    let top = this.height, bottom = 0;
    for (const y of this.tops) top = Math.min(top, y);
    for (const y of this.bottoms) bottom = Math.max(bottom, y);
    return [this.columns[0], top, this.columns.at(-1) + 1, bottom];
  }

  /** @returns {import("./project.js").Rle} */
  encode() {
    const runs = [];
    let end = 0;
    this.forEach((column, top, bottom) => {
      const start = column * this.height + top, length = bottom - top;
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
 * Paint masks, the later ones over the earlier ones.
 * @param {new (length: number) => Uint8Array | Uint16Array | Uint32Array} Type
 * @param {number[]} box x0, y0, x1, y1 around all masks; x1 and y1 are exclusive
 * @param {{spans: Spans, value: number}[]} masks
 * @returns {any} array of Type: the pixels in the box, row by row
 */
export function paint(Type, [x0, y0, x1, y1], masks) {
  const width = x1 - x0, height = y1 - y0;
  const columns = new Type(width * height), rows = new Type(width * height);
  for (const { spans, value } of masks) {
    spans.forEach((x, top, bottom) => columns.fill(value, (x - x0) * height + top - y0, (x - x0) * height + bottom - y0));
  }
  // Transpose in tiles that fit the L1 cache.
  for (let left = 0; left < width; left += TILE_PIXELS) {
    const right = Math.min(left + TILE_PIXELS, width);
    for (let top = 0; top < height; top += TILE_PIXELS) {
      const bottom = Math.min(top + TILE_PIXELS, height);
      for (let y = top; y < bottom; y++) {
        for (let x = left; x < right; x++) rows[y * width + x] = columns[x * height + y];
      }
    }
  }
  return rows;
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

/** Return the union of masks of one image. @param {Spans[]} parts */
export function union(parts) {
  const spans = [];
  for (const part of parts) part.forEach((...span) => spans.push(span));
  return Spans.union(parts[0].width, parts[0].height, spans);
}
