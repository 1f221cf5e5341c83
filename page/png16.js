// PNG files with samples of 16 bits as the service sees them: stretched by their own range to 8 bits. Browsers show the upper
// byte alone, in which medical and industrial images are black.

import { inflate } from "./formats/bytes.js";
import { readPng, unfilter } from "./formats/png.js";
import { FormatError } from "./formats/project.js";

/** Number of samples of a pixel by PNG's colour type. */
const SAMPLES = { 0: 1, 2: 3, 4: 2, 6: 4 };
const VALUES = 65_536, MAX_VALUE = VALUES - 1, MAX_BYTE = 255;
/** More pixels take gigabytes of memory. */
const MAX_PIXELS = 100_000_000;
/** Samples of each thousand that the ends of the range reach. */
const PER_MILLE = [1, 999];
/** An image that uses half of all values is not stretched. */
const FULL_RANGE_FROM = VALUES / 2;
/** First column, first row, and their steps, of the seven images of an interlaced file; one for all rows of another file. */
const PASSES = [[0, 0, 8, 8], [4, 0, 8, 8], [0, 4, 4, 8], [2, 0, 4, 4], [0, 2, 2, 4], [1, 0, 2, 2], [0, 1, 1, 2]];
const WHOLE = [[0, 0, 1, 1]];

/**
 * @typedef {object} Samples
 * @property {number} width
 * @property {number} height
 * @property {number} samples of a pixel: 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA
 * @property {Uint16Array} values row by row
 */

/**
 * Read the samples of a PNG file of 16 bits.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<Samples>}
 * @throws {FormatError} the file is damaged or too large
 */
export async function decodePng16(bytes) {
  const { width, height, kind, interlaced, pixels } = readPng(bytes);
  if (width * height > MAX_PIXELS) throw new FormatError(`PNG files of 16 bits may have at most ${MAX_PIXELS / 1e6} megapixels. Save it with 8 bits.`);
  const samples = SAMPLES[kind], step = 2 * samples;
  const passes = (interlaced ? PASSES : WHOLE)
    .map(([left, top, right, down]) => ({ left, top, right, down, columns: Math.ceil((width - left) / right), rows: Math.ceil((height - top) / down) }))
    .filter(({ columns, rows }) => columns > 0 && rows > 0);
  const size = passes.reduce((sum, { columns, rows }) => sum + rows * (1 + step * columns), 0);
  const unpacked = await inflate(pixels, "deflate", size), values = new Uint16Array(width * height * samples);
  let from = 0;
  for (const { left, top, right, down, columns, rows } of passes) {
    const bytesPerRow = step * columns, end = from + rows * (1 + bytesPerRow);
    unfilter(unpacked.subarray(from, end), bytesPerRow, step);
    for (let row = 0; row < rows; row++) {
      let to = ((top + row * down) * width + left) * samples;
      from++; // the filter
      for (let column = 0; column < columns; column++, to += (right - 1) * samples) {
        for (let sample = 0; sample < samples; sample++, from += 2) values[to++] = (unpacked[from] << 8) | unpacked[from + 1];
      }
    }
  }
  return { width, height, samples, values };
}

/** Return the number of samples of a pixel that are colours: alpha is none. */
function coloursIn(samples) {
  return samples < 3 ? 1 : 3;
}

/**
 * Return the values that become 0 and 255: the 0.1 and 99.9 percentiles of all samples but alpha, or all values. A percentile
 * is the smallest value that at least so many samples do not exceed.
 * @param {Samples} image
 * @returns {[number, number]}
 */
export function rangeOf({ samples, values }) {
  const colours = coloursIn(samples), counts = new Uint32Array(VALUES);
  for (let pixel = 0; pixel < values.length; pixel += samples) {
    for (let sample = 0; sample < colours; sample++) counts[values[pixel + sample]]++;
  }
  const count = (values.length / samples) * colours;
  const [low, high] = PER_MILLE.map((share) => {
    let value = 0;
    for (let atMost = counts[0]; 1000 * atMost < share * count; atMost += counts[value]) value++;
    return value;
  });
  return high === low || high - low >= FULL_RANGE_FROM ? [0, MAX_VALUE] : [low, high];
}

/**
 * Return the 8 bits for each value of 16 bits.
 * @param {number[] | null} range values that become 0 and 255; null: the upper byte, as older services see it
 */
export function tableOf(range) {
  const table = new Uint8Array(VALUES);
  if (!range) return table.map((_, value) => value >> 8);
  const [low, high] = range, width = high - low;
  // In whole numbers, and rounded half up, so that no result depends on how a division is rounded.
  return table.map((_, value) => Math.floor((2 * MAX_BYTE * (Math.min(Math.max(value, low), high) - low) + width) / (2 * width)));
}

/**
 * Return the picture of an image, RGBA with 8 bits; alpha is dropped, as by the service.
 * @param {Samples} image
 * @param {number[] | null} range
 */
export function stretched({ width, height, samples, values }, range) {
  const table = tableOf(range), picture = new Uint8ClampedArray(4 * width * height).fill(MAX_BYTE);
  const [green, blue] = coloursIn(samples) === 3 ? [1, 2] : [0, 0];
  for (let from = 0, to = 0; from < values.length; from += samples, to += 4) {
    picture[to] = table[values[from]];
    picture[to + 1] = table[values[from + green]];
    picture[to + 2] = table[values[from + blue]];
  }
  return picture;
}
