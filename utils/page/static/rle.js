// Masks as COCO's compressed run lengths: column by column, runs of 0 and 1 in turn, the first of 0.

/** Runs too many to draw a line around: a mask like noise. */
const MOST_RUNS = 40_000;
const TILE = 32;

/**
 * Run lengths out of COCO's text (`rleFrString` of pycocotools).
 * @param {string} text
 * @returns {number[]}
 */
function runsOf(text) {
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

/** A mask of an image. */
export class Mask {
  /**
   * @param {{size: [number, number], counts: string}} rle
   * @param {{score: number, area: number, box: number[]}} facts box: x0, y0, x1, y1; the last two one pixel outside
   */
  constructor(rle, facts) {
    [this.height, this.width] = rle.size;
    this.counts = rle.counts;
    this.score = facts.score;
    this.area = facts.area;
    this.box = facts.box;
    this.runs = runsOf(rle.counts);
  }

  /** Calls `draw(x, y0, y1)` for each run of ones in a column, from the left and the top. */
  eachColumn(draw) {
    const { height, runs } = this;
    let at = 0;
    for (let i = 0; i + 1 < runs.length; i += 2) {
      at += runs[i];
      const end = at + runs[i + 1];
      while (at < end) {
        const x = Math.floor(at / height), y = at - x * height;
        const length = Math.min(height - y, end - at);
        draw(x, y, y + length);
        at += length;
      }
    }
  }

  /** Whether pixel (x, y) is in the mask. */
  has(x, y) {
    const [x0, y0, x1, y1] = this.box;
    if (x < x0 || y < y0 || x >= x1 || y >= y1) return false;
    const wanted = x * this.height + y;
    let at = 0;
    for (let i = 0; i + 1 < this.runs.length; i += 2) {
      at += this.runs[i];
      if (wanted < at) return false;
      at += this.runs[i + 1];
      if (wanted < at) return true;
    }
    return false;
  }

  /**
   * The mask as pixels of one colour, every `step`-th of each `step`-th row.
   * @param {number} step
   * @param {number} colour as a little-endian RGBA word
   * @returns {{pixels: ImageData, x: number, y: number} | null} null where the mask is empty; x, y in steps
   */
  pixels(step, colour) {
    if (!this.area) return null;
    const [x0, y0, x1, y1] = this.box;
    const left = Math.ceil(x0 / step), top = Math.ceil(y0 / step);
    const width = Math.ceil(x1 / step) - left, height = Math.ceil(y1 / step) - top;
    if (width <= 0 || height <= 0) return null;
    const columns = new Uint8Array(width * height);
    this.eachColumn((x, start, end) => {
      if (x % step) return;
      const column = (x / step - left) * height - top;
      columns.fill(1, column + Math.ceil(start / step), column + Math.ceil(end / step));
    });
    const pixels = new ImageData(width, height);
    const rows = new Uint32Array(pixels.data.buffer);
    // By tiles: columns lie far from each other, and a tile of both fits the processor's nearest cache.
    for (let tx = 0; tx < width; tx += TILE) {
      const right = Math.min(tx + TILE, width);
      for (let ty = 0; ty < height; ty += TILE) {
        const bottom = Math.min(ty + TILE, height);
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
   * The line around the mask, along the edges of its pixels; null for a mask like noise, which has too many.
   * @param {number} step as of `pixels`
   */
  outline(step) {
    if (this.runs.length > MOST_RUNS) return null;
    const path = new Path2D();
    const line = (x0, y0, x1, y1) => {
      path.moveTo(x0, y0);
      path.lineTo(x1, y1);
    };
    const columns = new Map();
    this.eachColumn((x, start, end) => {
      if (x % step) return;
      const from = Math.ceil(start / step) * step, to = Math.ceil(end / step) * step;
      if (from === to) return;
      if (!columns.has(x)) columns.set(x, []);
      columns.get(x).push(from, to);
    });
    // Edges that go on from column to column are one line: by height, where it began.
    const open = new Map();
    for (let x = Math.ceil(this.box[0] / step) * step; x < this.box[2] + step; x += step) {
      const before = columns.get(x - step) ?? [], here = columns.get(x) ?? [];
      for (const [from, to] of differences(before, here)) line(x, from, x, to);
      for (const [y, begun] of open) {
        if (here.includes(y)) continue;
        line(begun, y, x, y);
        open.delete(y);
      }
      for (const y of here) if (!open.has(y)) open.set(y, x);
    }
    return path;
  }
}

/**
 * Where exactly one of two columns is covered.
 * @param {number[]} one starts and ends in turn, rising
 * @param {number[]} other likewise
 * @returns {[number, number][]}
 */
function differences(one, other) {
  const edges = [...one, ...other].sort((a, b) => a - b);
  const found = [];
  for (let i = 0; i + 1 < edges.length; i += 2) {
    if (edges[i] !== edges[i + 1]) found.push([edges[i], edges[i + 1]]);
  }
  return found;
}
