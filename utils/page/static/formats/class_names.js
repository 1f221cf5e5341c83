// The class names of a YOLO data set: data.yaml and classes.txt. Of YAML, only what such files use is read.

/**
 * Write data.yaml. Without `path`, ultralytics looks for the images beside the file.
 * @param {string[]} names
 */
export function writeDataYaml(names) {
  // Every JSON string is a YAML string, once the characters that YAML does not allow are escaped.
  const quote = (name) => JSON.stringify(name).replace(/[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g, (character) =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return ["train: images", "val: images", `nc: ${names.length}`, "names:", ...names.map((name, i) => `  ${i}: ${quote(name)}`), ""].join("\n");
}

/**
 * Read the names of data.yaml.
 * @param {string} text
 * @returns {Map<number, string> | null} names by index; null: there are none
 */
export function readDataYaml(text) {
  const lines = text.split(/\r?\n/);
  const start = lines.findIndex((line) => /^names\s*:/.test(line));
  if (start < 0) return null;
  const inline = withoutComment(lines[start].replace(/^names\s*:/, "")).trim();
  const names = new Map();
  const add = (index, name) => names.set(index, scalar(name));
  if (/^[[{]/.test(inline)) {
    const rest = [inline, ...lines.slice(start + 1).map(withoutComment)].join(" ");
    const end = flowEnd(rest);
    if (end < 0) return null;
    let index = 0;
    for (const item of flowItems(rest.slice(1, end))) {
      const keyed = inline.startsWith("{") ? /^\s*["']?(\d+)["']?\s*:\s*(.*)$/s.exec(item) : null;
      if (keyed) add(Number(keyed[1]), keyed[2]);
      else if (item.trim()) add(index++, item);
    }
    return names;
  }
  for (const line of lines.slice(start + 1)) {
    const content = withoutComment(line);
    if (!content.trim()) continue;
    const listed = /^\s*-\s+(.*)$/.exec(content), keyed = /^\s+["']?(\d+)["']?\s*:\s*(.*)$/.exec(content);
    if (listed) add(names.size, listed[1]);
    else if (keyed) add(Number(keyed[1]), keyed[2]);
    else break;
  }
  return names;
}

/** Read the names of classes.txt: one a line. */
export function readClassesTxt(text) {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return new Map(lines.filter(Boolean).map((name, index) => [index, name]));
}

const QUOTED = /"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'/y;

/** Visit each character outside quotes until `visit` returns true; return its position, or -1. */
function scan(text, visit) {
  for (let at = 0; at < text.length;) {
    QUOTED.lastIndex = at;
    // A quote within a word is an apostrophe.
    if (/["']/.test(text[at]) && !/\w/.test(text[at - 1] ?? "") && QUOTED.test(text)) {
      at = QUOTED.lastIndex;
      continue;
    }
    if (visit(text[at], at)) return at;
    at++;
  }
  return -1;
}

function withoutComment(line) {
  const at = scan(line, (character, i) => character === "#" && (i === 0 || /\s/.test(line[i - 1])));
  return at < 0 ? line : line.slice(0, at);
}

function flowEnd(text) {
  return scan(text, (character) => character === "]" || character === "}");
}

function flowItems(text) {
  const items = [];
  let start = 0;
  scan(text, (character, at) => {
    if (character === ",") {
      items.push(text.slice(start, at));
      start = at + 1;
    }
    return false;
  });
  return [...items, text.slice(start)];
}

/** Return the text of a YAML scalar. */
function scalar(text) {
  const trimmed = text.trim();
  if (trimmed.length >= 2 && trimmed.startsWith("'") && trimmed.endsWith("'")) return trimmed.slice(1, -1).replaceAll("''", "'");
  if (!trimmed.startsWith('"')) return trimmed;
  try {
    return String(JSON.parse(trimmed));
  } catch {
    return trimmed.replace(/^"|"$/g, "");
  }
}
