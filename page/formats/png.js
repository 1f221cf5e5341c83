// Indexed and gray PNG images, of which a canvas cannot write or read the values.

import { crc32, deflate, inflate } from "./bytes.js";
import { FormatError, MAX_IMAGE_PIXELS, MAX_IMAGE_SIDE, isWhole } from "./project.js";

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const GRAY = 0, INDEXED = 3;
/** The type of a chunk of pixels, as a number. */
const IDAT = 0x49444154;
/** The filter that stores differences from the row above: rows of label maps are mostly alike. */
const UP = 2;

/**
 * Write a PNG image.
 * @param {Uint8Array | Uint16Array} values row by row; 16-bit values make a 16-bit gray image
 * @param {number} width
 * @param {number} height
 * @param {number[][] | null} palette red, green and blue by value, for an indexed image; null: gray
 */
export async function encodePng(values, width, height, palette) {
  const wide = values instanceof Uint16Array, bytesPerRow = wide ? 2 * width : width;
  const bytes = wide ? new Uint8Array(bytesPerRow * height) : values, view = new DataView(bytes.buffer);
  if (wide) values.forEach((value, i) => view.setUint16(2 * i, value));
  const filtered = new Uint8Array((bytesPerRow + 1) * height);
  let to = 0, from = 0;
  for (let y = 0; y < height; y++) {
    filtered[to++] = UP;
    for (let x = 0; x < bytesPerRow; x++, from++) filtered[to++] = y ? bytes[from] - bytes[from - bytesPerRow] : bytes[from];
  }
  const header = new DataView(new ArrayBuffer(13));
  [width, height].forEach((side, i) => header.setUint32(4 * i, side));
  [wide ? 16 : 8, palette ? INDEXED : GRAY].forEach((value, i) => header.setUint8(8 + i, value));
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
  if (SIGNATURE.some((byte, i) => bytes[i] !== byte)) throw new FormatError("not a PNG image");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), parts = [];
  const [width, height] = bytes.length < 33 ? [0, 0] : [view.getUint32(16), view.getUint32(20)], [depth, kind, , , interlaced] = bytes.subarray(24);
  if (!isWhole(width, 1, MAX_IMAGE_SIDE) || !isWhole(height, 1, MAX_IMAGE_SIDE) || width * height > MAX_IMAGE_PIXELS) {
    throw new FormatError("the size of the PNG image is not valid");
  }
  if (![GRAY, INDEXED].includes(kind) || interlaced) throw new FormatError("a label map must be an indexed or gray PNG image without interlacing");
  for (let at = SIGNATURE.length; at + 12 <= bytes.length; at += view.getUint32(at) + 12) {
    if (view.getUint32(at + 4) === IDAT) parts.push(bytes.subarray(at + 8, at + 8 + view.getUint32(at)));
  }
  const bytesPerRow = Math.ceil((width * depth) / 8), step = Math.ceil(depth / 8);
  const rows = await inflate(new Blob(parts), "deflate", (bytesPerRow + 1) * height);
  const values = new (depth === 16 ? Uint16Array : Uint8Array)(width * height);
  let above = new Uint8Array(bytesPerRow), to = 0;
  for (let y = 0; y < height; y++) {
    const filter = rows[y * (bytesPerRow + 1)], row = rows.subarray(y * (bytesPerRow + 1) + 1, (y + 1) * (bytesPerRow + 1));
    for (let x = 0; x < bytesPerRow; x++) {
      row[x] += predicted(filter, x < step ? 0 : row[x - step], above[x], x < step ? 0 : above[x - step]);
    }
    for (let x = 0; x < width; x++) {
      const bit = x * depth, byte = bit >> 3;
      if (depth === 16) values[to++] = (row[byte] << 8) | row[byte + 1];
      else values[to++] = (row[byte] >> (8 - depth - (bit & 7))) & ((1 << depth) - 1);
    }
    above = row;
  }
  return { values, width, height };
}

/** Return what a filter expects in place of a byte. */
function predicted(filter, left, above, corner) {
  if (filter <= 1) return filter && left;
  if (filter === UP) return above;
  if (filter === 3) return (left + above) >> 1;
  const guess = left + above - corner;
  const [fromLeft, fromAbove, fromCorner] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  if (fromLeft <= fromAbove && fromLeft <= fromCorner) return left;
  return fromAbove <= fromCorner ? above : corner;
}

function chunk(type, data) {
  const framed = new Uint8Array(data.length + 12), view = new DataView(framed.buffer);
  view.setUint32(0, data.length);
  new TextEncoder().encodeInto(type, framed.subarray(4));
  framed.set(data, 8);
  view.setUint32(data.length + 8, crc32(framed.subarray(4, -4)));
  return framed;
}
