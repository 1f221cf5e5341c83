// Masks in Label Studio's brush RLE: a stream of bits, as bytes, of an RGBA image, row by row.
//
//     32 bits      number of values, 4 for each pixel
//     5 bits       bits of a value, less 1
//     4 x 4 bits   bits of the lengths of runs, less 1
//     then pieces: 1 bit (1: one value for all, 0: a value for each), 2 bits (which length),
//                  the length less 1, and the value or values
//
// A pixel is in the mask if its alpha, the last of its values, is at least half of the highest.

import { FormatError, MAX_IMAGE_SIDE, isWhole } from "./project.js";
import { Spans, paint } from "./spans.js";

const CHANNELS = 4;
const VALUE_BITS = 8, INSIDE = 128;
/** Bits of the lengths of runs, smallest first, as Label Studio writes them. */
const LENGTH_BITS = [3, 4, 8, 16];
const LONGEST_RUN = 2 ** 16;
/** Packs a column and rows into one number, which sorts fast. */
const SIDES = MAX_IMAGE_SIDE + 1;

/**
 * Return a mask as the bytes of its brush RLE.
 * @param {Spans} spans
 * @returns {number[]}
 */
export function encodeBrush(spans) {
  const bits = new BitWriter();
  bits.write(spans.width * spans.height * CHANNELS, 32);
  bits.write(VALUE_BITS - 1, 5);
  for (const width of LENGTH_BITS) bits.write(width - 1, 4);
  let end = 0;
  for (const [start, length] of rowRuns(spans)) {
    writeRun(bits, (start - end) * CHANNELS, 0);
    writeRun(bits, length * CHANNELS, 255);
    end = start + length;
  }
  writeRun(bits, (spans.width * spans.height - end) * CHANNELS, 0);
  return bits.finish();
}

/**
 * Return the runs of ones, row by row: the index of the first pixel, and the number of pixels.
 * @param {Spans} spans
 * @returns {[number, number][]}
 */
function rowRuns(spans) {
  if (!spans.area) return [];
  const [x0, y0, x1, y1] = spans.box, width = x1 - x0;
  const pixels = paint(Uint8Array, [x0, y0, x1, y1], [{ spans, value: 1 }]);
  /** @type {[number, number][]} */
  const runs = [];
  for (let y = y0; y < y1; y++) {
    const row = pixels.subarray((y - y0) * width, (y - y0 + 1) * width);
    for (let from = row.indexOf(1); from >= 0;) {
      const gap = row.indexOf(0, from), to = gap < 0 ? width : gap;
      const start = y * spans.width + x0 + from, last = runs.at(-1);
      if (last && last[0] + last[1] === start) last[1] += to - from;
      else runs.push([start, to - from]);
      from = gap < 0 ? -1 : row.indexOf(1, to);
    }
  }
  return runs;
}

function writeRun(bits, length, value) {
  for (let rest = length; rest > 0; rest -= LONGEST_RUN) {
    const piece = Math.min(rest, LONGEST_RUN);
    const index = LENGTH_BITS.findIndex((width) => piece <= 2 ** width);
    bits.write(1, 1);
    bits.write(index, 2);
    bits.write(piece - 1, LENGTH_BITS[index]);
    bits.write(value, VALUE_BITS);
  }
}

class BitWriter {
  /** @type {number[]} */
  #bytes = [];
  #byte = 0;
  #used = 0;

  /** Write the lowest `count` bits of a number, the highest first. */
  write(value, count) {
    for (let at = count - 1; at >= 0; at--) {
      this.#byte = (this.#byte << 1) | (Math.floor(value / 2 ** at) & 1);
      if (++this.#used === 8) this.#flush();
    }
  }

  #flush() {
    this.#bytes.push(this.#byte);
    this.#byte = this.#used = 0;
  }

  /** Return the bytes. Like Label Studio's encoder, this pads also a full last byte. */
  finish() {
    this.#byte <<= 8 - this.#used;
    this.#flush();
    return this.#bytes;
  }
}

/**
 * Decode a brush RLE.
 *
 * The work and the memory are bounded: the number of values must be that of the image, each piece
 * takes bits of the input, and there are at most `maxSpans` spans.
 * @param {unknown} rle
 * @param {{width: number, height: number}} image a checked size
 * @param {number} maxSpans
 * @returns {Spans}
 * @throws {FormatError} the bytes are damaged, or of an image of another size
 */
export function decodeBrush(rle, { width, height }, maxSpans) {
  if (!Array.isArray(rle) || !rle.every((byte) => isWhole(byte, 0, 255))) {
    throw new FormatError("its rle must be a list of bytes");
  }
  const bits = new BitReader(rle), total = width * height * CHANNELS, count = bits.read(32);
  if (count !== total) {
    throw new FormatError(`its mask has ${count} values, not ${total} as ${width} x ${height} pixels`);
  }
  if (bits.read(5) !== VALUE_BITS - 1) throw new FormatError("its mask does not have 8 bits per value");
  const lengthBits = LENGTH_BITS.map(() => bits.read(4) + 1);
  const rows = new RowsToSpans(width, height, maxSpans);
  for (let at = 0; at < total;) {
    const isRun = bits.read(1) === 1, end = at + bits.read(lengthBits[bits.read(2)]) + 1;
    if (end > total) throw new FormatError("its mask has more values than the image");
    if (isRun) {
      // The pixels whose alpha, the last of four values, is in the run.
      const isInside = bits.read(VALUE_BITS) >= INSIDE;
      if (isInside) rows.add(Math.floor(at / CHANNELS), Math.floor(end / CHANNELS));
      at = end;
      continue;
    }
    for (; at < end; at++) {
      const isInside = bits.read(VALUE_BITS) >= INSIDE;
      if (isInside && at % CHANNELS === CHANNELS - 1) {
        rows.add((at - CHANNELS + 1) / CHANNELS, (at + 1) / CHANNELS);
      }
    }
  }
  return rows.spans();
}

class BitReader {
  #at = 0;

  /** @param {number[]} bytes */
  constructor(bytes) {
    this.bytes = bytes;
  }

  /** Return the next `count` bits as a number. */
  read(count) {
    if (this.#at + count > this.bytes.length * 8) throw new FormatError("its mask ends early");
    let value = 0, missing = count;
    while (missing > 0) {
      const free = 8 - (this.#at & 7), taken = Math.min(free, missing);
      const part = (this.bytes[this.#at >> 3] >> (free - taken)) & ((1 << taken) - 1);
      value = value * 2 ** taken + part;
      this.#at += taken;
      missing -= taken;
    }
    return value;
  }
}

/** Runs of pixels that come row by row, as vertical spans. The work grows with the changes between rows. */
class RowsToSpans {
  /** @type {number[]} column, first row and row after the last, packed into one number */
  #done = [];
  /** @type {number[]} starts and ends of the runs of the row before, and of the row that is read */
  #before = [];
  #row = [];
  #y = 0;

  constructor(width, height, maxSpans) {
    this.width = width;
    this.height = height;
    this.maxSpans = maxSpans;
    /** The first row of the span that is open in a column. */
    this.tops = new Uint16Array(width);
  }

  /** Add a run by the indices of its first pixel and of the pixel after the last. */
  add(start, end) {
    let at = start;
    while (at < end) {
      const y = Math.floor(at / this.width), x = at - y * this.width;
      const to = Math.min(this.width, x + end - at);
      this.#goTo(y);
      const row = this.#row;
      if (row.length && row.at(-1) === x) row[row.length - 1] = to;
      else row.push(x, to);
      at += to - x;
    }
  }

  #goTo(y) {
    if (y === this.#y) return;
    this.#close();
    this.#y++;
    // Empty rows between two runs end all spans at once.
    if (y > this.#y && this.#before.length) this.#close();
    this.#y = y;
  }

  /** Begin and end spans where the row that was read differs from the row before. */
  #close() {
    const edges = [...new Set([...this.#before, ...this.#row])].sort((a, b) => a - b);
    const isIn = (runs) => {
      let at = 0;
      return (x) => {
        while (at < runs.length && runs[at + 1] <= x) at += 2;
        return at < runs.length && runs[at] <= x;
      };
    };
    const wasInside = isIn(this.#before), isInside = isIn(this.#row);
    for (let i = 0; i + 1 < edges.length; i++) {
      const [from, to] = [edges[i], edges[i + 1]], was = wasInside(from), is = isInside(from);
      if (is && !was) this.tops.fill(this.#y, from, to);
      if (was && !is) this.#end(from, to);
    }
    this.#before = this.#row;
    this.#row = [];
  }

  #end(from, to) {
    if (this.#done.length + to - from > this.maxSpans) throw new FormatError("its mask has too many edges");
    for (let x = from; x < to; x++) this.#done.push((x * SIDES + this.tops[x]) * SIDES + this.#y);
  }

  spans() {
    this.#close();
    this.#y++;
    this.#close();
    const spans = new Spans(this.width, this.height);
    for (const span of Float64Array.from(this.#done).sort()) {
      const bottom = span % SIDES, start = (span - bottom) / SIDES, top = start % SIDES;
      spans.add((start - top) / SIDES, top, bottom);
    }
    return spans;
  }
}
