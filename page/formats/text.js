// The text of annotation files, in the encoding that the file has.

import { FormatError } from "./project.js";

/** What a file in UTF-16 or UTF-8 may begin with. */
const BYTE_ORDER_MARKS = { "utf-8": [0xef, 0xbb, 0xbf], "utf-16le": [0xff, 0xfe], "utf-16be": [0xfe, 0xff] };
const XML_ENCODING = /^\s*<\?xml\b[^>]*?\sencoding\s*=\s*["']([\w.:-]+)["']/;
const XML_ENCODING_BYTES = 400;
/** Names that Python and Windows programs write, and browsers do not know. */
const OTHER_NAMES = { "latin-1": "latin1", cp936: "gbk", ms936: "gbk", cp932: "shift_jis", cp949: "euc-kr", cp950: "big5" };
/** All that Chinese class names have beside ASCII: ideographs, and punctuation and letters of full width. */
// deno-lint-ignore no-control-regex
const CHINESE = /^[\x00-\x7f\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]*$/;

/**
 * Decode a text file: in the encoding of its byte order mark or XML declaration, and otherwise in UTF-8.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @throws {FormatError} the bytes are not text in this encoding
 */
export function decodeText(bytes) {
  const encoding = encodingOf(bytes);
  const text = decodedAs(encoding, bytes);
  if (text === null) throw new FormatError(`not text in ${encoding.toUpperCase()}${firstBadByte(encoding, bytes)}`);
  return text;
}

/**
 * Decode a file of class names: as decodeText does, or else in GBK, which labelling programs on Chinese Windows write.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @returns {{text: string, isGuess: boolean}} isGuess: whether it was read as GBK, which the file does not say
 * @throws {FormatError} the bytes are text in neither
 */
export function decodeNames(bytes) {
  const encoding = encodingOf(bytes);
  const text = decodedAs(encoding, bytes);
  if (text !== null) return { text, isGuess: false };
  const chinese = decodedAs("gbk", bytes);
  if (chinese !== null && CHINESE.test(chinese)) return { text: chinese, isGuess: true };
  throw new FormatError(`not text in ${encoding.toUpperCase()}${firstBadByte(encoding, bytes)}, nor Chinese text in GBK; save it in UTF-8`);
}

function encodingOf(bytes) {
  for (const [encoding, mark] of Object.entries(BYTE_ORDER_MARKS)) {
    if (mark.every((byte, i) => bytes[i] === byte)) return encoding;
  }
  // Annotation files begin with ASCII, of which UTF-16 has every second byte 0.
  if (bytes.length > 1 && bytes[0] && !bytes[1]) return "utf-16le";
  if (bytes.length > 1 && !bytes[0] && bytes[1]) return "utf-16be";
  const start = new TextDecoder("latin1").decode(bytes.subarray(0, XML_ENCODING_BYTES));
  const declared = XML_ENCODING.exec(start)?.[1].toLowerCase() ?? "utf-8";
  const encoding = OTHER_NAMES[declared] ?? declared;
  // The declaration could not be read as ASCII if it were true.
  return /^(utf-?16|ucs-?2|unicode)/.test(encoding) ? "utf-8" : encoding;
}

/** Return the text, or null if the bytes are none in this encoding. */
function decodedAs(encoding, bytes) {
  let decoder;
  try {
    decoder = new TextDecoder(encoding, { fatal: true });
  } catch {
    throw new FormatError(`the encoding ${encoding}, which its XML declaration names, is not known: save it in UTF-8`);
  }
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

/** Return where text in UTF-8 is damaged, as the end of a sentence. */
function firstBadByte(encoding, bytes) {
  if (encoding !== "utf-8") return "";
  const sound = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).split("\ufffd", 1)[0];
  const at = new TextEncoder().encode(sound).length;
  return at < bytes.length ? `: byte ${at + 1} is 0x${bytes[at].toString(16).padStart(2, "0")}` : "";
}
