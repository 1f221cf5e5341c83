// How the pixels of a file are turned for display. One rule for the service, the client and this page: EXIF's orientation,
// a SHORT, in the segment APP1 of a JPEG file or in the chunk eXIf before the pixels of a PNG file. Nothing else turns an image.

import { chunk } from "./formats/png.js";

/**
 * @typedef {"jpeg" | "png" | "webp"} Kind
 * @typedef {{from: number, to: number, bytes: Uint8Array<ArrayBuffer>}} Edit bytes of a file, and what replaces them
 * @typedef {object} Layout what a file's bytes say about the display of its pixels
 * @property {Kind | null} kind null: none that the service reads
 * @property {number} orientation 1 to 8, by the rule
 * @property {{width: number, height: number} | null} stored size of the pixels as stored; null: unknown
 * @property {boolean} isDeep whether it is a PNG file with samples of 16 bits
 * @property {Edit[]} edits remove all that any program might turn the pixels by
 */

export const UPRIGHT = 1;
const LAST_ORIENTATION = 8;
/** From this orientation on, width and height are exchanged. */
const FIRST_TRANSPOSED = 5;

const ORIENTATION_TAG = 0x112, SHORT = 3;
const TIFF_MAGIC = 42, TIFF_HEADER_BYTES = 8, ENTRY_BYTES = 12;
const EXIF = "Exif\0", EXIF_HEADER_BYTES = 6, XMP = "http://ns.adobe.com/xap/1.0/\0";
/** An orientation other than upright in XMP. */
const TURNED_XMP = /Orientation(?:\s*=\s*["']|>)\s*[2-8]/;
/** Keywords of PNG texts in which programs store EXIF or XMP. */
const PNG_TEXT_CHUNKS = ["tEXt", "zTXt", "iTXt"], METADATA_TEXT = /^(Raw profile type (exif|APP1|xmp)|XML:com\.adobe\.xmp)\0/;

const PNG_SIGNATURE = "\x89PNG\r\n\x1a\n", PNG_HEADER_END = 33, CHUNK_BYTES = 12;
/** Colour types of PNG whose samples may have 16 bits: all but palettes. */
const DIRECT_COLOURS = [0, 2, 4, 6];
const JPEG_START_BYTES = 2, JPEG_APP1 = 0xe1, JPEG_SCAN = 0xda, JPEG_END = 0xd9;
/** Offset of the chunks of a WebP file, and of the flags in its chunk VP8X. */
const WEBP_CHUNKS = 12, WEBP_HEADER_BYTES = 8, WEBP_FLAGS = 20, WEBP_METADATA_FLAGS = 0x0c;

/**
 * Read the layout of an image file.
 * @param {Uint8Array<ArrayBuffer>} bytes of the whole file
 * @returns {Layout}
 */
export function layoutOf(bytes) {
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpegLayout(bytes);
  if (textAt(bytes, 0, 8) === PNG_SIGNATURE) return pngLayout(bytes);
  if (textAt(bytes, 0, 4) === "RIFF" && textAt(bytes, 8, 4) === "WEBP") return webpLayout(bytes);
  return { kind: null, orientation: UPRIGHT, stored: null, isDeep: false, edits: [] };
}

/** Return whether a value is an orientation. */
export function isOrientation(value) {
  return Number.isInteger(value) && value >= UPRIGHT && value <= LAST_ORIENTATION;
}

/**
 * Return the size of an image after it was turned, or before: both exchange the same sides.
 * @param {{width: number, height: number}} size
 * @param {number} orientation
 */
export function turnedSize({ width, height }, orientation) {
  return orientation >= FIRST_TRANSPOSED ? { width: height, height: width } : { width, height };
}

/**
 * Return how an orientation turns pixels: the sides that are mirrored, as stored, and whether these are exchanged afterwards.
 * @param {number} orientation
 */
export function flipsOf(orientation) {
  return {
    flipsX: [2, 3, 7, 8].includes(orientation),
    flipsY: [3, 4, 6, 7].includes(orientation),
    isTransposed: orientation >= FIRST_TRANSPOSED,
  };
}

/**
 * Return pixels turned by an orientation.
 * @template {Uint16Array | Uint8ClampedArray} Values
 * @param {Values} values row by row as stored
 * @param {{width: number, height: number}} size as stored
 * @param {number} samples of a pixel
 * @param {number} orientation
 * @returns {Values}
 */
export function turnedValues(values, { width, height }, samples, orientation) {
  if (orientation === UPRIGHT) return values;
  const { flipsX, flipsY, isTransposed } = flipsOf(orientation), made = /** @type {Values} */ (values.slice());
  const [columns, rows] = isTransposed ? [height, width] : [width, height];
  for (let row = 0, to = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const [across, down] = isTransposed ? [row, column] : [column, row];
      const x = flipsX ? width - 1 - across : across, y = flipsY ? height - 1 - down : down;
      const from = (y * width + x) * samples;
      for (let sample = 0; sample < samples; sample++) made[to++] = values[from + sample];
    }
  }
  return made;
}

/**
 * Return a file with the same pixels that browsers turn by an orientation, without decoding it.
 * @param {Blob} file
 * @param {Layout} layout of it; a WebP file can only be upright
 * @param {number} orientation
 */
export function withOrientation(file, { kind, edits }, orientation) {
  const added = orientation === UPRIGHT ? [] : [orientationPart(kind, orientation)];
  /** @type {BlobPart[]} */
  const parts = [];
  let from = 0;
  for (const { from: start, to, bytes } of [...added, ...edits]) {
    parts.push(file.slice(from, start), bytes);
    from = to;
  }
  return parts.length ? new Blob([...parts, file.slice(from)], { type: file.type }) : file;
}

/**
 * Return the insertion that turns a file, at its start.
 * @param {Kind | null} kind
 * @param {number} orientation
 * @returns {Edit}
 */
function orientationPart(kind, orientation) {
  const entry = [ORIENTATION_TAG >> 8, ORIENTATION_TAG & 0xff, 0, SHORT, 0, 0, 0, 1, 0, orientation, 0, 0];
  const tiff = [0x4d, 0x4d, 0, TIFF_MAGIC, 0, 0, 0, TIFF_HEADER_BYTES, 0, 1, ...entry, 0, 0, 0, 0];
  if (kind === "png") return { from: PNG_HEADER_END, to: PNG_HEADER_END, bytes: chunk("eXIf", Uint8Array.from(tiff)) };
  const payload = [...new TextEncoder().encode(`${EXIF}\0`), ...tiff];
  const bytes = Uint8Array.from([0xff, JPEG_APP1, 0, payload.length + 2, ...payload]);
  return { from: JPEG_START_BYTES, to: JPEG_START_BYTES, bytes };
}

/** @returns {Layout} */
function jpegLayout(bytes) {
  const view = viewOf(bytes), edits = [];
  let orientation = 0, stored = null;
  for (const { marker, from, start, end } of segmentsOf(bytes)) {
    if (isFrameHeader(marker) && end - start >= 5) {
      stored = { width: view.getUint16(start + 3), height: view.getUint16(start + 1) };
    }
    if (marker !== JPEG_APP1) continue;
    const isExif = textAt(bytes, start, EXIF.length) === EXIF;
    const exif = isExif ? exifOf(bytes.subarray(Math.min(start + EXIF_HEADER_BYTES, end), end)) : null;
    orientation ||= exif?.orientation ?? 0;
    const isXmp = textAt(bytes, start, XMP.length) === XMP && TURNED_XMP.test(textAt(bytes, start, end - start));
    if (exif?.isTurned || isXmp) edits.push({ from, to: end, bytes: new Uint8Array() });
  }
  return { kind: "jpeg", orientation: orientation || UPRIGHT, stored: stored?.height ? stored : null, isDeep: false, edits };
}

/** Yield the segments of a JPEG file up to its first scan. Their content is from `start` to `end`. */
function* segmentsOf(bytes) {
  const view = viewOf(bytes);
  let at = JPEG_START_BYTES;
  while (at < bytes.length) {
    // Decoders skip bytes between segments; a marker may have fill bytes ahead of it.
    while (at < bytes.length && bytes[at] !== 0xff) at++;
    while (bytes[at + 1] === 0xff) at++;
    const marker = bytes[at + 1], from = at;
    at += 2;
    if (marker === JPEG_SCAN || marker === JPEG_END) return;
    if (hasNoContent(marker)) continue;
    if (at + 2 > bytes.length) return;
    const end = at + Math.max(view.getUint16(at), 2);
    if (end > bytes.length) return;
    yield { marker, from, start: at + 2, end };
    at = end;
  }
}

/** Return whether a JPEG marker stands alone: a zero after 0xff is no marker at all. */
function hasNoContent(marker) {
  return marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

/** Return whether a JPEG marker begins the header with the size. */
function isFrameHeader(marker) {
  return marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
}

/** @returns {Layout} */
function pngLayout(bytes) {
  const view = viewOf(bytes), edits = [];
  const stored = bytes.length < PNG_HEADER_END ? null : { width: view.getUint32(16), height: view.getUint32(20) };
  let orientation = 0, isAfterPixels = false;
  for (let at = PNG_SIGNATURE.length; at + CHUNK_BYTES <= bytes.length;) {
    const type = textAt(bytes, at + 4, 4), start = at + 8, end = start + view.getUint32(at), to = end + 4;
    if (to > bytes.length) break;
    isAfterPixels ||= type === "IDAT";
    let isTurned = false;
    if (type === "eXIf") {
      const exif = exifOf(bytes.subarray(start, end));
      if (!isAfterPixels) orientation ||= exif.orientation;
      isTurned = exif.isTurned;
    }
    if (PNG_TEXT_CHUNKS.includes(type)) isTurned = METADATA_TEXT.test(textAt(bytes, start, Math.min(end - start, 80)));
    if (isTurned) edits.push({ from: at, to, bytes: new Uint8Array() });
    at = to;
  }
  const isDeep = bytes[24] === 16 && DIRECT_COLOURS.includes(bytes[25]);
  return { kind: "png", orientation: orientation || UPRIGHT, stored, isDeep, edits };
}

/** @returns {Layout} */
function webpLayout(bytes) {
  const view = viewOf(bytes), edits = [];
  let stored = null;
  for (let at = WEBP_CHUNKS; at + WEBP_HEADER_BYTES <= bytes.length;) {
    const type = textAt(bytes, at, 4), length = view.getUint32(at + 4, true), start = at + WEBP_HEADER_BYTES;
    const end = start + length;
    if (end > bytes.length) break;
    stored ??= webpSize(type, view, start, length);
    const isExif = type === "EXIF" && webpExif(bytes.subarray(start, end)).isTurned;
    // Readers skip chunks whose names they do not know.
    if (isExif || (type === "XMP " && TURNED_XMP.test(textAt(bytes, start, length)))) {
      edits.push({ from: at, to: at + 4, bytes: new TextEncoder().encode("JUNK") });
    }
    at = end + (length % 2);
  }
  if (edits.length && textAt(bytes, WEBP_CHUNKS, 4) === "VP8X") {
    const flags = Uint8Array.of(bytes[WEBP_FLAGS] & ~WEBP_METADATA_FLAGS);
    edits.unshift({ from: WEBP_FLAGS, to: WEBP_FLAGS + 1, bytes: flags });
  }
  return { kind: "webp", orientation: UPRIGHT, stored, isDeep: false, edits };
}

/** Read the EXIF of a WebP file, to which some programs add the header that it has in JPEG files. */
function webpExif(bytes) {
  return exifOf(textAt(bytes, 0, EXIF.length) === EXIF ? bytes.subarray(EXIF_HEADER_BYTES) : bytes);
}

/** Return the size in a chunk of a WebP file, or null if it has none. */
function webpSize(type, view, start, length) {
  if (length < 10) return null;
  if (type === "VP8X") {
    const side = (at) => 1 + (view.getUint16(at, true) | (view.getUint8(at + 2) << 16));
    return { width: side(start + 4), height: side(start + 7) };
  }
  if (type === "VP8L") {
    const bits = view.getUint32(start + 1, true);
    return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >> 14) & 0x3fff) };
  }
  if (type === "VP8 ") {
    return { width: view.getUint16(start + 6, true) & 0x3fff, height: view.getUint16(start + 8, true) & 0x3fff };
  }
  return null;
}

/**
 * Read the first directory of TIFF data.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {{orientation: number, isTurned: boolean}} orientation: by the rule, 0 if there is none; isTurned: whether any
 *   program might turn the image by it
 */
function exifOf(bytes) {
  const view = viewOf(bytes), none = { orientation: 0, isTurned: false };
  if (bytes.length < TIFF_HEADER_BYTES) return none;
  const order = textAt(bytes, 0, 2), isLittle = order === "II";
  if ((!isLittle && order !== "MM") || view.getUint16(2, isLittle) !== TIFF_MAGIC) return none;
  const start = view.getUint32(4, isLittle);
  if (start + 2 > bytes.length) return none;
  const count = view.getUint16(start, isLittle);
  let orientation = 0, isTurned = false;
  for (let index = 0; index < count; index++) {
    const at = start + 2 + ENTRY_BYTES * index;
    if (at + ENTRY_BYTES > bytes.length) break;
    if (view.getUint16(at, isLittle) !== ORIENTATION_TAG) continue;
    const isShort = view.getUint16(at + 2, isLittle) === SHORT && view.getUint32(at + 4, isLittle) === 1;
    const value = view.getUint16(at + 8, isLittle);
    if (isShort && isOrientation(value)) orientation ||= value;
    isTurned ||= !isShort || value !== UPRIGHT;
  }
  return { orientation, isTurned };
}

function viewOf(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Return bytes as Latin-1. */
function textAt(bytes, start, length) {
  let text = "";
  // In parts: a call takes a limited number of arguments.
  for (let at = start; at < start + length; at += 10_000) {
    text += String.fromCharCode(...bytes.subarray(at, Math.min(at + 10_000, start + length)));
  }
  return text;
}
