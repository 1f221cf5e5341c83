// How the pixels of a file are turned for display. One rule for the service, the client and this page: EXIF's orientation,
// a SHORT, in the segment APP1 of a JPEG file or in the chunk eXIf before the pixels of a PNG file. Nothing else turns an image.

import { crc32 } from "./formats/bytes.js";
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

const LITTLE_ENDIAN = "II*\0", BIG_ENDIAN = "MM\0*", TIFF_HEADER_BYTES = 8, ENTRY_BYTES = 12;
const ORIENTATION_TAG = 0x112, EXIF_DIRECTORY_TAG = 0x8769, SHORT = 3, LONG = 4;
const EXIF = "Exif\0", LIKE_EXIF = /^exif/i, EXIF_HEADER_BYTES = 6, XMP = "http://ns.adobe.com/xap/1.0/\0";
/** An orientation other than upright in XMP. */
const TURNED_XMP = /Orientation(?:\s*=\s*["']|>)\s*[2-8]/;
/** Keywords of PNG texts in which programs store EXIF or XMP. */
const PNG_TEXT_CHUNKS = ["tEXt", "zTXt", "iTXt"], METADATA_TEXT = /^(Raw profile type (exif|APP1|xmp)|XML:com\.adobe\.xmp)\0/;

/** What is read of EXIF without a directory, in which other programs may find one. */
const DAMAGED = { orientation: UPRIGHT, isTurned: true };

/** Browsers ignore a larger chunk. */
const MAX_PNG_EXIF_BYTES = 2 ** 22;
const PNG_SIGNATURE = "\x89PNG\r\n\x1a\n", PNG_HEADER_END = 33, CHUNK_BYTES = 12;
/** Colour types of PNG whose samples may have 16 bits: all but palettes. */
const DIRECT_COLOURS = [0, 2, 4, 6];
const JPEG_START_BYTES = 2, JPEG_APP1 = 0xe1, JPEG_SCAN = 0xda;
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
  const tiff = [...new TextEncoder().encode(BIG_ENDIAN), 0, 0, 0, TIFF_HEADER_BYTES, 0, 1, ...entry, 0, 0, 0, 0];
  if (kind === "png") return { from: PNG_HEADER_END, to: PNG_HEADER_END, bytes: chunk("eXIf", Uint8Array.from(tiff)) };
  const payload = [...new TextEncoder().encode(`${EXIF}\0`), ...tiff];
  const bytes = Uint8Array.from([0xff, JPEG_APP1, 0, payload.length + 2, ...payload]);
  return { from: JPEG_START_BYTES, to: JPEG_START_BYTES, bytes };
}

/** @returns {Layout} */
function jpegLayout(bytes) {
  const view = viewOf(bytes), edits = [];
  let exif = null, stored = null;
  for (const { marker, from, start, end } of segmentsOf(bytes)) {
    if (isFrameHeader(marker) && end - start >= 5) {
      stored = { width: view.getUint16(start + 3), height: view.getUint16(start + 1) };
    }
    if (marker !== JPEG_APP1) continue;
    const isExif = textAt(bytes, start, EXIF.length) === EXIF && end - start > EXIF_HEADER_BYTES;
    const found = isExif ? readExif(bytes.subarray(start + EXIF_HEADER_BYTES, end)) : null;
    exif ??= found;
    // Some programs ignore case, and the zeros.
    const isLike = !isExif && LIKE_EXIF.test(textAt(bytes, start, EXIF.length));
    const isXmp = textAt(bytes, start, XMP.length) === XMP && TURNED_XMP.test(textAt(bytes, start, end - start));
    if (found?.isTurned || isLike || isXmp) edits.push({ from, to: end, bytes: new Uint8Array() });
  }
  const orientation = exif?.orientation ?? UPRIGHT;
  return { kind: "jpeg", orientation, stored: stored?.height ? stored : null, isDeep: false, edits };
}

/** Yield the segments of a JPEG file up to its first scan. Their content is from `start` to `end`. */
function* segmentsOf(bytes) {
  const view = viewOf(bytes);
  for (let at = JPEG_START_BYTES; at + 4 <= bytes.length;) {
    const marker = bytes[at + 1];
    // Decoders skip bytes between segments.
    if (bytes[at] !== 0xff || !hasContent(marker)) {
      at++;
      continue;
    }
    if (marker === JPEG_SCAN) return;
    const end = Math.min(at + 2 + Math.max(view.getUint16(at + 2), 2), bytes.length);
    yield { marker, from: at, start: at + 4, end };
    at = end;
  }
}

/** Return whether a length and content follow a JPEG marker. */
function hasContent(marker) {
  return (marker >= 0xc0 && marker <= 0xcf) || (marker >= 0xda && marker <= 0xef) || marker === 0xfe;
}

/** Return whether a JPEG marker begins the header with the size. */
function isFrameHeader(marker) {
  return marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
}

/** @returns {Layout} */
function pngLayout(bytes) {
  const view = viewOf(bytes), edits = [];
  const stored = bytes.length < PNG_HEADER_END ? null : { width: view.getUint32(16), height: view.getUint32(20) };
  let exif = null, isAfterPixels = false;
  for (let at = PNG_SIGNATURE.length; at + CHUNK_BYTES <= bytes.length;) {
    const type = textAt(bytes, at + 4, 4), start = at + 8, end = start + view.getUint32(at), to = end + 4;
    if (to > bytes.length) break;
    isAfterPixels ||= type === "IDAT";
    let isTurned = false;
    if (type === "eXIf") {
      const found = readExif(bytes.subarray(start, end)), isIntact = crc32(bytes.subarray(at + 4, end)) === view.getUint32(end);
      if (!isAfterPixels && isIntact) exif ??= end - start > MAX_PNG_EXIF_BYTES ? DAMAGED : found;
      isTurned = found.isTurned;
    }
    if (PNG_TEXT_CHUNKS.includes(type)) isTurned = METADATA_TEXT.test(textAt(bytes, start, Math.min(end - start, 80)));
    if (isTurned) edits.push({ from: at, to, bytes: new Uint8Array() });
    at = to;
  }
  const isDeep = bytes[24] === 16 && DIRECT_COLOURS.includes(bytes[25]);
  return { kind: "png", orientation: exif?.orientation ?? UPRIGHT, stored, isDeep, edits };
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
  return readExif(textAt(bytes, 0, EXIF.length) === EXIF ? bytes.subarray(EXIF_HEADER_BYTES) : bytes);
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
 * Read the orientation in EXIF.
 * @param {Uint8Array<ArrayBuffer>} bytes without the signature that a JPEG file has before it
 * @returns {{orientation: number, isTurned: boolean}} orientation: by the rule; isTurned: whether any program might turn the
 *   image by it
 */
function readExif(bytes) {
  const order = textAt(bytes, 0, 4), isLittle = order === LITTLE_ENDIAN;
  if ((!isLittle && order !== BIG_ENDIAN) || bytes.length < TIFF_HEADER_BYTES) return DAMAGED;
  const { orientation, isTurned } = readDirectory(viewOf(bytes), viewOf(bytes).getUint32(4, isLittle), isLittle, true);
  return { orientation: orientation || UPRIGHT, isTurned };
}

/** Read the first valid orientation in a directory, or in the EXIF directory that the root names; 0: there is none. */
function readDirectory(view, start, isLittle, isRoot) {
  const complete = Math.max(0, Math.floor((view.byteLength - start - 2) / ENTRY_BYTES));
  const entries = start + 2 <= view.byteLength ? view.getUint16(start, isLittle) : Infinity;
  const count = Math.min(entries, complete);
  // Other programs read incomplete directories in their own ways.
  let orientation = 0, isTurned = entries > complete, isFirst = isRoot;
  for (let index = 0; index < count; index++) {
    const at = start + 2 + ENTRY_BYTES * index;
    const tag = view.getUint16(at, isLittle), type = view.getUint16(at + 2, isLittle), values = view.getUint32(at + 4, isLittle);
    if (tag === ORIENTATION_TAG) {
      const value = view.getUint16(at + 8, isLittle), isShort = type === SHORT && values === 1;
      if (isShort && isOrientation(value)) orientation ||= value;
      isTurned ||= !isShort || value !== UPRIGHT;
    } else if (isFirst && tag === EXIF_DIRECTORY_TAG && type === LONG && values === 1) {
      isFirst = false; // of several, the first counts
      const inner = readDirectory(view, view.getUint32(at + 8, isLittle), isLittle, false);
      orientation ||= inner.orientation;
      isTurned ||= inner.isTurned;
    }
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
