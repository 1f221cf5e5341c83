// The text of annotation files, in the encoding that the file has.

import { FormatError } from "./project.js";

/** What a file in UTF-16 or UTF-8 may begin with. */
const BYTE_ORDER_MARKS = {
  "utf-8": [0xef, 0xbb, 0xbf],
  "utf-16le": [0xff, 0xfe],
  "utf-16be": [0xfe, 0xff],
};
const XML_ENCODING = /^\s*<\?xml\b[^>]*?\sencoding\s*=\s*["']([^"'>]*)["']/;
const XML_ENCODING_BYTES = 400;
/**
 * Names that Python and Windows programs write, and browsers do not know. Browsers take ASCII for
 * that of Windows.
 */
const OTHER_NAMES = {
  ascii: "utf-8",
  "us-ascii": "utf-8",
  utf_8: "utf-8",
  "latin-1": "latin1",
  latin_1: "latin1",
  cp936: "gbk",
  ms936: "gbk",
  cp932: "shift_jis",
  cp949: "euc-kr",
  cp950: "big5",
};
/**
 * Decode a text file: in the encoding of its byte order mark or XML declaration, and otherwise in
 * UTF-8.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @throws {FormatError} the bytes are not text in this encoding
 */
export function decodeText(bytes) {
  const encoding = encodingOf(bytes);
  const text = decodedAs(encoding, bytes);
  if (text === null) {
    throw new FormatError(
      `${
        firstBadByte(encoding, bytes)
      }not text in ${encoding.toUpperCase()}: save it in UTF-8, or in UTF-16 with a byte order mark`,
    );
  }
  if (text.includes("\0")) {
    throw new FormatError(`byte ${bytes.indexOf(0)} is NUL: save it as text in UTF-8`);
  }
  return text;
}

function encodingOf(bytes) {
  for (const [encoding, mark] of Object.entries(BYTE_ORDER_MARKS)) {
    if (mark.every((byte, i) => bytes[i] === byte)) return encoding;
  }
  const start = new TextDecoder("latin1").decode(bytes.subarray(0, XML_ENCODING_BYTES));
  if (start.startsWith("<\0?\0")) return "utf-16le";
  if (start.startsWith("\0<\0?")) return "utf-16be";
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
    throw new FormatError(
      `the encoding "${encoding}", which its XML declaration names, is not known: save it in UTF-8`,
    );
  }
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

/** Return where text in UTF-8 is damaged, as the beginning of a sentence. */
function firstBadByte(encoding, bytes) {
  if (encoding !== "utf-8") return "";
  const sound = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).split("\ufffd", 1)[0];
  const at = new TextEncoder().encode(sound).length;
  return at < bytes.length ? `byte ${at} is 0x${bytes[at].toString(16).padStart(2, "0")}: ` : "";
}
