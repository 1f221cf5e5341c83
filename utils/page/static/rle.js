// Masks in COCO's compressed RLE: column-major, alternating runs of 0 and 1, starting with 0.

/** A mask with more runs is noise: drawing its outline would take too long. */
const MAX_OUTLINE_RUNS = 40_000;
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
 * @typedef {object} MaskRecord a mask as plain data, to be stored
 * @property {[number, number]} size height and width
 * @property {string} counts
 * @property {number | null} score
 * @property {number} area
 * @property {number[]} box
 * @property {import("./objects.js").Point | null} point
 */

/** @type {WeakMap<Mask, MaskRecord>} one record per mask, so that a state stores it once */
const records = new WeakMap();

/**
 * Encode run lengths as COCO's RLE string, like `rleToString` of pycocotools.
 * @param {number[]} runs
 * @returns {string}
 */
export function encodeRuns(runs) {
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

/** Call `visit(x, y0, y1)` for each run of ones within a column, from left to right and top to bottom. */
export function forEachRun(runs, height, visit) {
  let at = 0;
  for (let i = 0; i + 1 < runs.length; i += 2) {
    at += runs[i];
    const end = at + runs[i + 1];
    while (at < end) {
      const x = Math.floor(at / height), y = at - x * height;
      const length = Math.min(height - y, end - at);
      visit(x, y, y + length);
      at += length;
    }
  }
}

/** A mask with its score, area and box. */
export class Mask {
  /**
   * @param {{size: [number, number], counts: string}} rle
   * @param {{score: number | null, area: number, box: number[]}} properties score: null for a mask made by hand;
   *   box: x0, y0, x1, y1; x1 and y1 are exclusive
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
    this.point = null;
  }

  /** @returns {MaskRecord} */
  get record() {
    if (!records.has(this)) {
      const { height, width, counts, score, area, box, point } = this;
      records.set(this, { size: [height, width], counts, score, area, box, point });
    }
    return records.get(this);
  }

  /** @param {MaskRecord} record */
  static fromRecord(record) {
    const mask = new Mask(record, record);
    mask.point = record.point;
    return mask;
  }

  /** The score for the user. */
  get scoreText() {
    return this.score === null ? "by hand" : this.score.toFixed(2);
  }

  /** As the function of this name. */
  forEachRun(visit) {
    forEachRun(this.runs, this.height, visit);
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
    if (!this.area) return null;
    const [x0, y0, x1, y1] = this.box;
    const left = Math.ceil(x0 / step), top = Math.ceil(y0 / step);
    const width = Math.ceil(x1 / step) - left, height = Math.ceil(y1 / step) - top;
    if (width <= 0 || height <= 0) return null;
    const columns = new Uint8Array(width * height);
    this.forEachRun((x, start, end) => {
      if (x % step) return;
      const column = (x / step - left) * height - top;
      columns.fill(1, column + Math.ceil(start / step), column + Math.ceil(end / step));
    });
    const pixels = new ImageData(width, height);
    const rows = new Uint32Array(pixels.data.buffer);
    // Transpose in tiles that fit the L1 cache.
    for (let tx = 0; tx < width; tx += TILE_PIXELS) {
      const right = Math.min(tx + TILE_PIXELS, width);
      for (let ty = 0; ty < height; ty += TILE_PIXELS) {
        const bottom = Math.min(ty + TILE_PIXELS, height);
        for (let y = ty; y < bottom; y++) {
          for (let x = tx; x < right; x++) {
            if (columns[x * height + y]) rows[y * width + x] = colour;
          }
        }
      }
    }
    return { pixels, x: left, y: top };
  }

  /**
   * Return the mask's outline along its pixel edges, or null for noise.
   * @param {number} step as in `pixels`
   */
  outline(step) {
    if (this.runs.length > MAX_OUTLINE_RUNS) return null;
    const path = new Path2D();
    const line = (x0, y0, x1, y1) => {
      path.moveTo(x0, y0);
      path.lineTo(x1, y1);
    };
    const columns = new Map();
    this.forEachRun((x, start, end) => {
      if (x % step) return;
      const from = Math.ceil(start / step) * step, to = Math.ceil(end / step) * step;
      if (from === to) return;
      if (!columns.has(x)) columns.set(x, []);
      columns.get(x).push(from, to);
    });
    // Horizontal edges that continue over several columns become one line: start column by height.
    const open = new Map();
    for (let x = Math.ceil(this.box[0] / step) * step; x < this.box[2] + step; x += step) {
      const previous = columns.get(x - step) ?? [], current = columns.get(x) ?? [];
      for (const [from, to] of differences(previous, current)) line(x, from, x, to);
      for (const [y, startX] of open) {
        if (current.includes(y)) continue;
        line(startX, y, x, y);
        open.delete(y);
      }
      for (const y of current) if (!open.has(y)) open.set(y, x);
    }
    return path;
  }
}

/**
 * Return the intervals covered by exactly one of two columns.
 * @param {number[]} one alternating starts and ends, ascending
 * @param {number[]} other like `one`
 * @returns {number[][]}
 */
function differences(one, other) {
  const edges = [...one, ...other].sort((a, b) => a - b);
  const found = [];
  for (let i = 0; i + 1 < edges.length; i += 2) {
    if (edges[i] !== edges[i + 1]) found.push([edges[i], edges[i + 1]]);
  }
  return found;
}
