// Compression and checksums, as PNG and ZIP need them.

import { FormatError } from "./project.js";

/** @typedef {"deflate" | "deflate-raw"} Coding with zlib's header, or without */

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** Return the CRC-32 of bytes, as PNG and ZIP use it. */
export function crc32(bytes) {
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = (crc >>> 8) ^ CRC_TABLE[(crc ^ bytes[i]) & 0xff];
  return ~crc >>> 0;
}

/** @param {Coding} coding */
export async function deflate(bytes, coding) {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream(coding));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Decompress bytes.
 * @param {Blob} blob
 * @param {Coding} coding
 * @param {number} size expected size in bytes
 * @throws {FormatError} the data is damaged, or has another size
 */
export async function inflate(blob, coding, size) {
  // Deflate packs at most 1,032 to 1: a larger size is false, and must not be allocated.
  if (size > 1040 * blob.size + 64) throw new FormatError("the compressed data is damaged");
  const unpacked = new Uint8Array(size);
  let at = 0;
  try {
    const reader = blob.stream().pipeThrough(new DecompressionStream(coding)).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (at + part.value.length > size) {
        await reader.cancel();
        at = Infinity;
        break;
      }
      unpacked.set(part.value, at);
      at += part.value.length;
    }
  } catch {
    throw new FormatError("the compressed data is damaged");
  }
  if (at !== size) throw new FormatError(`the compressed data should have ${size} bytes, but has ${at < size ? at : "more"}`);
  return unpacked;
}
