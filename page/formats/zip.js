// ZIP files, written and read. No encryption, and at most 4 GB.

import { crc32, deflate, inflate } from "./bytes.js";
import { FormatError, cleanPath } from "./project.js";

const LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50;
const END_BYTES = 22, CENTRAL_BYTES = 46, LOCAL_BYTES = 30, MAX_COMMENT_BYTES = 65_535;
const STORED = 0, DEFLATED = 8, VERSION = 20;
const ENCRYPTED_FLAG = 1, UTF8_FLAG = 0x800;
const MAX_ENTRIES = 65_534, MAX_OFFSET = 2 ** 32 - 2;
const MAX_UNPACKED_BYTES = 4 * 2 ** 30;
/** Compressed already. */
const PACKED = /\.(png|jpe?g|webp|avif|gif|zip)$/i;

/**
 * Write files into a ZIP.
 * @param {import("./project.js").ProjectFile[]} files
 * @returns {Promise<Blob>}
 * @throws {FormatError} two files have the same path, or there are too many or too large files
 */
export async function zip(files) {
  if (files.length > MAX_ENTRIES) throw new FormatError(`a ZIP file takes at most ${MAX_ENTRIES} files`);
  const time = dosTime(new Date());
  /** @type {(Uint8Array<ArrayBuffer> | Blob)[]} */
  const parts = [];
  const directory = [], paths = new Set();
  let offset = 0;
  for (const { path, content } of files) {
    const name = new TextEncoder().encode(cleanPath(path));
    if (!name.length || name.length > 65_535 || paths.has(cleanPath(path))) throw new FormatError(`the path ${path} is invalid or occurs twice`);
    paths.add(cleanPath(path));
    const bytes = content instanceof Uint8Array ? content : new Uint8Array(await new Blob([content]).arrayBuffer());
    const packed = bytes.length && !PACKED.test(path) ? await deflate(bytes, "deflate-raw") : bytes;
    const isSmaller = packed.length < bytes.length, data = isSmaller ? packed : bytes;
    const common = [
      [2, VERSION], [2, UTF8_FLAG], [2, isSmaller ? DEFLATED : STORED], [4, time],
      [4, crc32(bytes)], [4, data.length], [4, bytes.length], [2, name.length], [2, 0],
    ];
    const header = record([[4, LOCAL], ...common]);
    directory.push(record([[4, CENTRAL], [2, VERSION], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]), name);
    // A blob stays where the browser keeps it; its bytes need not stay in memory.
    parts.push(header, name, !isSmaller && content instanceof Blob ? content : data);
    offset += header.length + name.length + data.length;
    if (offset > MAX_OFFSET) throw new FormatError("a ZIP file takes at most 4 GB");
  }
  const size = directory.reduce((total, { length }) => total + length, 0);
  const end = record([[4, END], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, size], [4, offset], [2, 0]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

/** Return little-endian numbers, each given as its size in bytes and its value. */
function record(fields) {
  const bytes = new Uint8Array(fields.reduce((total, [size]) => total + size, 0)), view = new DataView(bytes.buffer);
  let at = 0;
  for (const [size, value] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return bytes;
}

function dosTime(date) {
  const day = ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate();
  return ((day << 16) | (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1)) >>> 0;
}

/**
 * List the files in a ZIP; each is unpacked when its bytes are asked for.
 * @param {Blob} blob
 * @returns {Promise<{path: string, size: number, bytes: () => Promise<Uint8Array<ArrayBuffer>>}[]>}
 * @throws {FormatError} not a ZIP file, encrypted, damaged, or too large; also thrown by `bytes`
 */
export async function unzip(blob) {
  const tailStart = Math.max(0, blob.size - END_BYTES - MAX_COMMENT_BYTES);
  const tail = await viewOf(blob, tailStart, blob.size);
  let at = tail.byteLength - END_BYTES;
  while (at >= 0 && tail.getUint32(at, true) !== END) at--;
  if (at < 0) throw new FormatError("not a ZIP file, or its end is missing");
  const count = tail.getUint16(at + 10, true), size = tail.getUint32(at + 12, true), start = tail.getUint32(at + 16, true);
  if (count === 0xffff || start === 0xffffffff) throw new FormatError("ZIP files of more than 4 GB or 65,534 files are not supported");
  if (start + size > blob.size) throw new FormatError("the ZIP file is damaged: its directory is missing");
  return entries(blob, await viewOf(blob, start, start + size), count);
}

function entries(blob, directory, count) {
  const found = [];
  let at = 0, total = 0;
  for (let i = 0; i < count; i++) {
    if (at + CENTRAL_BYTES > directory.byteLength || directory.getUint32(at, true) !== CENTRAL) {
      throw new FormatError("the ZIP file is damaged: its directory ends early");
    }
    const [flags, method] = [8, 10].map((field) => directory.getUint16(at + field, true));
    const [crc, packedSize, size] = [16, 20, 24].map((field) => directory.getUint32(at + field, true));
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((field) => directory.getUint16(at + field, true));
    const offset = directory.getUint32(at + 42, true), nameEnd = at + CENTRAL_BYTES + nameLength;
    if (nameEnd > directory.byteLength) throw new FormatError("the ZIP file is damaged: its directory ends early");
    const name = new TextDecoder().decode(new Uint8Array(directory.buffer, at + CENTRAL_BYTES, nameLength));
    const path = cleanPath(name);
    at = nameEnd + extraLength + commentLength;
    if (!path || /[/\\]$/.test(name)) continue;
    if (flags & ENCRYPTED_FLAG) throw new FormatError(`${path} is encrypted: unpack the ZIP file first`);
    if (method !== STORED && method !== DEFLATED) throw new FormatError(`${path} is compressed by method ${method}, which is not supported`);
    total += size;
    if (total > MAX_UNPACKED_BYTES) throw new FormatError("the ZIP file is too large unpacked: at most 4 GB");
    found.push({ path, size, bytes: () => unpack(blob, { path, offset, method, packedSize, size, crc }) });
  }
  return found;
}

async function unpack(blob, { path, offset, method, packedSize, size, crc }) {
  const damaged = (reason) => new FormatError(`${path} is damaged in the ZIP file: ${reason}`);
  if (offset + LOCAL_BYTES > blob.size) throw damaged("its header is missing");
  const header = await viewOf(blob, offset, offset + LOCAL_BYTES);
  if (header.getUint32(0, true) !== LOCAL) throw damaged("its header is missing");
  const start = offset + LOCAL_BYTES + header.getUint16(26, true) + header.getUint16(28, true);
  if (start + packedSize > blob.size) throw damaged("its end is missing");
  if (method === STORED && size !== packedSize) throw damaged("its size is wrong");
  const data = blob.slice(start, start + packedSize);
  let bytes;
  try {
    bytes = method === STORED ? new Uint8Array(await data.arrayBuffer()) : await inflate(data, "deflate-raw", size);
  } catch (error) {
    throw damaged(error.message);
  }
  if (crc32(bytes) !== crc) throw damaged("its checksum is wrong");
  return bytes;
}

async function viewOf(blob, from, to) {
  return new DataView(await blob.slice(from, to).arrayBuffer());
}
