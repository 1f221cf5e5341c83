// PNG images of masks: indexed and gray ones are written, all but interlaced ones are read.

import { concatenate, crc32, deflate, inflate } from "./bytes.js";
import { FormatError, MAX_IMAGE_PIXELS } from "./project.js";

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const GRAY = 0, INDEXED = 3;
/** Samples per pixel by colour type. */
const SAMPLES = new Map([[GRAY, 1], [2, 3], [INDEXED, 1], [4, 2], [6, 4]]);
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
  const bytes = wide ? bigEndian(values) : values;
  const filtered = new Uint8Array((bytesPerRow + 1) * height);
  let to = 0, from = 0;
  for (let y = 0; y < height; y++) {
    filtered[to++] = UP;
    for (let x = 0; x < bytesPerRow; x++, from++) filtered[to++] = y ? bytes[from] - bytes[from - bytesPerRow] : bytes[from];
  }
  const header = new Uint8Array(13), view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header[8] = wide ? 16 : 8;
  header[9] = palette ? INDEXED : GRAY;
  return concatenate([
    Uint8Array.from(SIGNATURE),
    chunk("IHDR", header),
    ...(palette ? [chunk("PLTE", Uint8Array.from(palette.flat()))] : []),
    chunk("IDAT", await deflate(filtered, "deflate")),
    chunk("IEND", new Uint8Array(0)),
  ]);
}

function bigEndian(values) {
  const bytes = new Uint8Array(2 * values.length);
  values.forEach((value, i) => {
    bytes[2 * i] = value >> 8;
    bytes[2 * i + 1] = value;
  });
  return bytes;
}

function chunk(type, data) {
  const body = concatenate([new TextEncoder().encode(type), data]);
  const framed = new Uint8Array(body.length + 8), view = new DataView(framed.buffer);
  view.setUint32(0, data.length);
  framed.set(body, 4);
  view.setUint32(body.length + 4, crc32(body));
  return framed;
}

/**
 * Read a PNG image as a mask: a pixel is 1 unless its gray value, palette index or colour is 0.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {Promise<{width: number, height: number, pixels: Uint8Array}>} row by row
 * @throws {FormatError}
 */
export async function decodePngMask(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 33 || SIGNATURE.some((byte, i) => bytes[i] !== byte)) throw new FormatError("not a PNG image");
  const width = view.getUint32(16), height = view.getUint32(20), depth = bytes[24], type = bytes[25];
  const samples = SAMPLES.get(type);
  if (!width || !height || width * height > MAX_IMAGE_PIXELS || !samples || !(samples > 1 ? [8, 16] : [1, 2, 4, 8, 16]).includes(depth)) {
    throw new FormatError("the PNG image has an invalid header");
  }
  if (bytes[28]) throw new FormatError("interlaced PNG images are not supported");
  const data = [];
  for (let at = 8; at + 12 <= bytes.length;) {
    const length = view.getUint32(at), end = at + 8 + length;
    if (end > bytes.length) break;
    if (String.fromCharCode(...bytes.subarray(at + 4, at + 8)) === "IDAT") data.push(bytes.subarray(at + 8, end));
    at = end + 4;
  }
  const bits = samples * depth, bytesPerRow = Math.ceil((width * bits) / 8), stride = Math.max(1, bits >> 3);
  const rows = await inflate(new Blob(data), "deflate", (bytesPerRow + 1) * height);
  const pixels = new Uint8Array(width * height);
  // Alpha is the last sample, and does not count.
  const used = samples === 2 || samples === 4 ? stride - (depth >> 3) : stride;
  let above = new Uint8Array(bytesPerRow);
  for (let y = 0; y < height; y++) {
    const start = y * (bytesPerRow + 1), row = rows.subarray(start + 1, start + 1 + bytesPerRow);
    unfilter(rows[start], row, above, stride);
    for (let x = 0; x < width; x++) {
      let value = 0;
      if (bits < 8) value = (row[(x * bits) >> 3] >> (8 - bits - ((x * bits) & 7))) & ((1 << bits) - 1);
      else for (let i = 0; i < used; i++) value |= row[x * stride + i];
      pixels[y * width + x] = value ? 1 : 0;
    }
    above = row;
  }
  return { width, height, pixels };
}

/** Undo a row's filter in place. */
function unfilter(filter, row, above, stride) {
  if (filter > 4) throw new FormatError("the PNG image has an unknown filter");
  for (let i = 0; i < row.length; i++) {
    const left = i < stride ? 0 : row[i - stride], up = above[i], corner = i < stride ? 0 : above[i - stride];
    if (filter === 1) row[i] += left;
    else if (filter === 2) row[i] += up;
    else if (filter === 3) row[i] += (left + up) >> 1;
    else if (filter === 4) {
      const p = left + up - corner, a = Math.abs(p - left), b = Math.abs(p - up), c = Math.abs(p - corner);
      row[i] += a <= b && a <= c ? left : b <= c ? up : corner;
    }
  }
}
