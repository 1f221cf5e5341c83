// The class names of a YOLO data set: data.yaml and classes.txt. Of YAML, only what such files use
// is read.

import { FormatError } from "./project.js";
import { MAX_CLASS_NUMBER } from "./yolo_lines.js";

/**
 * Write data.yaml. Without `path`, ultralytics looks for the images beside the file.
 * @param {string[]} names
 * @param {boolean} isSplit whether the images are in folders for training and validation
 */
export function writeDataYaml(names, isSplit) {
  // Every JSON string is a YAML string, once the characters that YAML does not allow are escaped.
  const quote = (name) => JSON.stringify(name).replace(/[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const [train, val] = isSplit ? ["images/train", "images/val"] : ["images", "images"];
  return [`train: ${train}`, `val: ${val}`, `nc: ${names.length}`, "names:", ...names.map((name, i) => `  ${i}: ${quote(name)}`), ""].join("\n");
}

/** The key `names`, at the top level of lines or of a document in braces. */
const NAMES = /^(?:names|"names"|'names')\s*:(?=\s|$)[^\S\n]*/gm;
const NAMES_IN_BRACES = /^\s*\{(?:[^[\]{}]*,)?\s*(?:names\s*:\s|["']names["']\s*:)\s*/;
const MERGE = /^<<\s*:/m;
/** A line of a list, and a line of a map with its key. */
const LIST_LINE = /^\s*-(?:\s+(.*))?$/;
const MAP_LINE = /^\s+(?:(\d+)|"(\d+)"|'(\d+)')\s*:(?:\s+(.*))?$/;
/** How class numbers are written: YAML reads others as octal numbers, or as text. */
const NUMBER = /^(0|[1-9]\d*)$/;
/** The member `kpt_shape`, as a list between brackets or in lines. */
const KEYPOINT_SHAPE = /^kpt_shape\s*:\s*(?:\[\s*|-\s+)(\d+)\s*(?:,\s*|\n\s*-\s+)(\d+)/m;
/** What may be before an item between brackets; a key of a map; an item, with what ends it. */
const COMMENTS = /(?:\s+|#.*(?:\n|$))*/y;
const KEY = /(?:(\d+)\s*:(?=[\s,}])|["'](\d+)["']\s*:)\s*/y;
const ITEM = /("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^"'[\]{},][^[\]{},]*|)(?:\s+#.*\n)*\s*([,\]}])/y;
const QUOTED = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:\s+#.*)?$/;
/**
 * How text without quotes cannot begin, and what it cannot contain: YAML reads it as something
 * else.
 */
const NO_TEXT = /^[&*!|>@`%"'[\]{},]|^\?(?:\s|$)|^[-:](?:\s|$)|:(?:\s|$)/;
const ESCAPE = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(.))/gs;
const ESCAPED = {
  0: "\0", a: "\x07", b: "\b", t: "\t", n: "\n", v: "\v", f: "\f", r: "\r", e: "\x1b", " ": " ", '"': '"', "/": "/",
  "\\": "\\", N: "\x85", _: "\xa0", L: "\u2028", P: "\u2029",
};

/**
 * Read the names of data.yaml. All are text as written: `no`, `1.10`, `007` and `null` too.
 * @param {string} text
 * @returns {Map<number, string> | null} names by index; null: there are none
 * @throws {FormatError} the names are written in a way that is not read
 */
export function readDataYaml(text) {
  const lines = text.replaceAll("\r\n", "\n");
  const isInBraces = /^\s*\{/.test(lines);
  const [header, second] = isInBraces ? [NAMES_IN_BRACES.exec(lines)] : lines.matchAll(NAMES);
  if (second) throw new FormatError("names is there twice: keep one of the two, in one document");
  if (!header) {
    if (MERGE.test(lines)) throw unread("<<");
    return null;
  }
  const rest = lines.slice(header.index + header[0].length);
  if (/^[[{]/.test(rest)) return namesInBrackets(rest);
  const [first] = rest.split("\n", 1);
  if (first && !first.startsWith("#")) throw unread(first);
  return namesInLines(rest.split("\n").slice(1));
}

/** @param {string[]} lines those after the key */
function namesInLines(lines) {
  const names = new Map();
  let count = 0;
  for (const line of lines) {
    const item = LIST_LINE.exec(line), entry = MAP_LINE.exec(line);
    if (item) setName(names, count++, item[1]);
    else if (entry) setName(names, entry[1] ?? entry[2] ?? entry[3], entry[4]);
    else if (/^\s+[^\s#]/.test(line)) throw unread(line);
    else if (!/^\s*(#|$)/.test(line)) break;
  }
  return withoutEmpty(names);
}

/** @param {string} text a list or map in brackets, with what follows it */
function namesInBrackets(text) {
  const names = new Map(), isMap = text.startsWith("{");
  let at = 1, count = 0, end = ",";
  while (end === ",") {
    at = endOf(COMMENTS, text, at);
    const key = isMap ? matchAt(KEY, text, at) : null;
    if (key) at = KEY.lastIndex;
    const item = matchAt(ITEM, text, at);
    if (!item || (isMap && item[1] && !key)) throw unread(text.slice(at));
    at = ITEM.lastIndex;
    end = item[2];
    // Nothing stands between the last comma and the bracket.
    if (key || item[1] || end === ",") setName(names, key ? key[1] ?? key[2] : count++, item[1]);
  }
  if (end !== (isMap ? "}" : "]")) throw unread(text.slice(0, at));
  return withoutEmpty(names);
}

/** Return names without the empty ones: their classes have only numbers. */
function withoutEmpty(names) {
  return new Map([...names].filter(([, name]) => name));
}

function setName(names, number, value = "") {
  if (!NUMBER.test(number) || number > MAX_CLASS_NUMBER) {
    throw new FormatError(`expected a class number in names, got ${number}`);
  }
  if (names.has(Number(number))) {
    throw new FormatError(`the class number ${number} is there twice in names`);
  }
  names.set(Number(number), scalar(value));
}

/** Return the text of a YAML scalar, with or without quotes and a comment after it. */
function scalar(text) {
  const [, quoted] = QUOTED.exec(text.trim()) ?? [];
  if (!quoted) {
    const plain = text.replace(/(^|\s)#.*$/s, "").trim().replace(/\s*\n\s*/g, " ");
    if (NO_TEXT.test(plain)) throw unread(text);
    return plain;
  }
  const inner = quoted.slice(1, -1);
  if (quoted.startsWith("'")) return inner.replaceAll("''", "'");
  return inner.replace(ESCAPE, (escape, byte, unit, code, character) => {
    const hexadecimal = byte ?? unit ?? code;
    if (hexadecimal) return codePoint(Number.parseInt(hexadecimal, 16), escape);
    if (!Object.hasOwn(ESCAPED, character)) throw unread(escape);
    return ESCAPED[character];
  });
}

function codePoint(number, escape) {
  if (number > 0x10ffff) throw unread(escape);
  return String.fromCodePoint(number);
}

function unread(text) {
  const start = text.trim().split("\n", 1)[0].slice(0, 40);
  return new FormatError(
    `names must be a list, or a map by class numbers, of plain texts, without anchors, aliases and tags; got ${start}`,
  );
}

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

function endOf(pattern, text, at) {
  matchAt(pattern, text, at);
  return Math.max(pattern.lastIndex, at);
}

/**
 * Read the shape of a data set's poses in data.yaml.
 * @param {string} text
 * @returns {{count: number, size: number} | null} keypoints of each pose, and numbers of each
 *   keypoint: x, y, and with 3
 *   its visibility; null: the data set has no poses
 */
export function readKeypointShape(text) {
  const shape = KEYPOINT_SHAPE.exec(text.replaceAll("\r\n", "\n"));
  return shape ? { count: Number(shape[1]), size: Number(shape[2]) } : null;
}

/**
 * Read the names of classes.txt: one a line. A class whose line is empty has no name.
 * @param {string} text
 * @returns {Map<number, string>} names by index
 */
export function readClassesTxt(text) {
  return withoutEmpty(new Map(text.split(/\r\n|\r|\n/).map((line, index) => [index, line.trim()])));
}
