// PNG images of which a canvas cannot write or read the values: indexed, gray, and with samples of 16 bits.

import { crc32, deflate, inflate } from "./bytes.js";
import { FormatError, MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE, isWhole } from "./project.js";

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const GRAY = 0, INDEXED = 3;
/** Colour types by number of samples of a pixel. */
const COLOUR_TYPES = { 1: GRAY, 2: 4, 3: 2, 4: 6 };
/** The type of a chunk of pixels, as a number. */
const IDAT = 0x49444154;
const SUB = 1, UP = 2, AVERAGE = 3, PAETH = 4;

/**
 * Write a PNG image.
 * @param {Uint8Array | Uint16Array} values row by row; 16-bit values make an image of 16 bits
 * @param {number} width
 * @param {number} height
 * @param {number[][] | null} palette red, green and blue by value, for an indexed image; null: gray or colours
 * @param {number} samples of a pixel: 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA
 */
export async function encodePng(values, width, height, palette, samples = 1) {
  const wide = values instanceof Uint16Array, bytesPerRow = (wide ? 2 : 1) * samples * width;
  const bytes = wide ? new Uint8Array(bytesPerRow * height) : values, view = new DataView(bytes.buffer);
  if (wide) values.forEach((value, i) => view.setUint16(2 * i, value));
  const filtered = new Uint8Array((bytesPerRow + 1) * height);
  let to = 0, from = 0;
  for (let y = 0; y < height; y++) {
    filtered[to++] = UP; // rows of label maps are mostly alike
    for (let x = 0; x < bytesPerRow; x++, from++) filtered[to++] = y ? bytes[from] - bytes[from - bytesPerRow] : bytes[from];
  }
  const header = new DataView(new ArrayBuffer(13));
  [width, height].forEach((side, i) => header.setUint32(4 * i, side));
  [wide ? 16 : 8, palette ? INDEXED : COLOUR_TYPES[samples]].forEach((value, i) => header.setUint8(8 + i, value));
  return new Blob([
    Uint8Array.from(SIGNATURE),
    chunk("IHDR", new Uint8Array(header.buffer)),
    ...(palette ? [chunk("PLTE", Uint8Array.from(palette.flat()))] : []),
    chunk("IDAT", await deflate(filtered, "deflate")),
    chunk("IEND", new Uint8Array(0)),
  ], { type: "image/png" });
}

/**
 * Read the values of a PNG image: palette indices, or gray.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<{values: Uint8Array | Uint16Array, width: number, height: number}>} values row by row
 * @throws {FormatError} the image is damaged, in colour, or interlaced
 */
export async function decodePng(bytes) {
  const { width, height, depth, kind, interlaced, pixels } = readPng(bytes);
  if (![GRAY, INDEXED].includes(kind) || interlaced) throw new FormatError("a label map must be an indexed or gray PNG image without interlacing");
  const bytesPerRow = Math.ceil((width * depth) / 8), step = Math.ceil(depth / 8);
  const rows = await inflate(pixels, "deflate", (bytesPerRow + 1) * height);
  const values = new (depth === 16 ? Uint16Array : Uint8Array)(width * height);
  unfilter(rows, bytesPerRow, step);
  for (let y = 0, to = 0; y < height; y++) {
    const row = rows.subarray(y * (bytesPerRow + 1) + 1, (y + 1) * (bytesPerRow + 1));
    for (let x = 0; x < width; x++) {
      const bit = x * depth, byte = bit >> 3;
      if (depth === 16) values[to++] = (row[byte] << 8) | row[byte + 1];
      else values[to++] = (row[byte] >> (8 - depth - (bit & 7))) & ((1 << depth) - 1);
    }
  }
  return { values, width, height };
}

/**
 * Read the header of a PNG image, and find its compressed pixels.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {{width: number, height: number, depth: number, kind: number, interlaced: number, pixels: Blob}} kind: colour type
 * @throws {FormatError} no PNG image, or its size is not valid
 */
export function readPng(bytes) {
  if (SIGNATURE.some((byte, i) => bytes[i] !== byte)) throw new FormatError("not a PNG image");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), parts = [];
  const [width, height] = bytes.length < 33 ? [0, 0] : [view.getUint32(16), view.getUint32(20)], [depth, kind, , , interlaced] = bytes.subarray(24);
  if (!isWhole(width, 1, MAX_IMAGE_SIDE) || !isWhole(height, 1, MAX_IMAGE_SIDE) || width * height > MAX_IMAGE_PIXELS) {
    throw new FormatError("the size of the PNG image is not valid");
  }
  for (let at = SIGNATURE.length; at + 12 <= bytes.length; at += view.getUint32(at) + 12) {
    if (view.getUint32(at + 4) === IDAT) parts.push(bytes.subarray(at + 8, at + 8 + view.getUint32(at)));
  }
  return { width, height, depth, kind, interlaced, pixels: new Blob(parts) };
}

/**
 * Replace rows as they are stored, each after the number of its filter, by their bytes.
 * @param {Uint8Array} rows
 * @param {number} bytesPerRow without the number
 * @param {number} step bytes of a pixel, at least 1
 */
export function unfilter(rows, bytesPerRow, step) {
  /** @type {Uint8Array} */
  let above = new Uint8Array(bytesPerRow);
  for (let start = 1; start < rows.length; start += bytesPerRow + 1) {
    const filter = rows[start - 1], row = rows.subarray(start, start + bytesPerRow);
    // A loop for each filter: one that chooses it for each byte takes several times as long.
    if (filter === SUB) {
      for (let x = step; x < bytesPerRow; x++) row[x] += row[x - step];
    } else if (filter === UP) {
      for (let x = 0; x < bytesPerRow; x++) row[x] += above[x];
    } else if (filter === AVERAGE) {
      for (let x = 0; x < bytesPerRow; x++) row[x] += ((x < step ? 0 : row[x - step]) + above[x]) >> 1;
    } else if (filter === PAETH) {
      for (let x = 0; x < bytesPerRow; x++) row[x] += x < step ? above[x] : paeth(row[x - step], above[x], above[x - step]);
    } else if (filter) {
      throw new FormatError("the PNG image is damaged");
    }
    above = row;
  }
}

/** Return the neighbour that is nearest to their plane. */
function paeth(left, above, corner) {
  const guess = left + above - corner;
  const [fromLeft, fromAbove, fromCorner] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  if (fromLeft <= fromAbove && fromLeft <= fromCorner) return left;
  return fromAbove <= fromCorner ? above : corner;
}

/** Return a chunk of a PNG image. */
export function chunk(type, data) {
  const framed = new Uint8Array(data.length + 12), view = new DataView(framed.buffer);
  view.setUint32(0, data.length);
  new TextEncoder().encodeInto(type, framed.subarray(4));
  framed.set(data, 8);
  view.setUint32(data.length + 8, crc32(framed.subarray(4, -4)));
  return framed;
}
