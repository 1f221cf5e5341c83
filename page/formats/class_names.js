// The class names of a YOLO data set: data.yaml and classes.txt. Of YAML, only what such files use is read.

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

const NAMES = /^names\s*:[^\S\n]*/m;
/** A line of a block: an item of a list, or an entry of a map, with its key. */
const LINE = /^(?:\s*-\s+|\s+["']?(\d+)["']?\s*:)(.*)$/;
/** The same between brackets, with what ends it; and what may be before it. */
const ITEM = /(?:["']?(\d+)["']?\s*:\s*)?("(?:[^"\\]|\\.)*"\s*(?=[,\]}])|'(?:[^']|'')*'\s*(?=[,\]}])|[^,\]}]*)([,\]}])/y;
const COMMENTS = /(?:\s+|#.*\n)*/y;
const QUOTED = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:\s+#.*)?$/s;

/**
 * Read the names of data.yaml.
 * @param {string} text
 * @returns {Map<number, string> | null} names by index; null: there are none
 */
export function readDataYaml(text) {
  const lines = text.replaceAll("\r\n", "\n"), header = NAMES.exec(lines);
  if (!header) return null;
  const rest = lines.slice(header.index + header[0].length), names = new Map();
  const add = (index, value) => names.set(Number(index ?? names.size), scalar(value));
  if (/^[[{]/.test(rest)) {
    for (let at = 1, end = ","; end === ","; at = ITEM.lastIndex) {
      COMMENTS.lastIndex = at;
      COMMENTS.test(rest);
      ITEM.lastIndex = COMMENTS.lastIndex;
      const [, index, value, next] = ITEM.exec(rest) ?? [];
      if (!next) return null;
      if (value.trim()) add(index, value);
      end = next;
    }
    return names;
  }
  for (const line of rest.split("\n").slice(1)) {
    const [, index, value] = LINE.exec(line) ?? [];
    if (value !== undefined) add(index, value);
    else if (!/^\s*(#|$)/.test(line)) break;
  }
  return names;
}

/** Read the names of classes.txt: one a line. */
export function readClassesTxt(text) {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return new Map(lines.filter(Boolean).map((name, index) => [index, name]));
}

/** Return the text of a YAML scalar, with or without quotes and a comment after it. */
function scalar(text) {
  const [, quoted] = QUOTED.exec(text.trim()) ?? [];
  if (!quoted) return text.replace(/\s#.*$/s, "").trim();
  if (quoted.startsWith("'")) return quoted.slice(1, -1).replaceAll("''", "'");
  try {
    return String(JSON.parse(quoted));
  } catch {
    return quoted.slice(1, -1);
  }
}
