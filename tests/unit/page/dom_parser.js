// A DOMParser for Deno, which has none: of XML, as much as annotation files have.

const TOKEN =
  /<!--[\s\S]*?-->|<\?[\s\S]*?\?>|<!\[CDATA\[([\s\S]*?)\]\]>|<(\/?)([^\s<>/]+)((?:\s+[^\s=<>/]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*)\s*(\/?)>|([^<]+)/y;
const ATTRIBUTE = /([^\s=]+)\s*=\s*("[^"]*"|'[^']*')/g;
const ENTITIES = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

class XmlElement {
  children = [];
  textContent = "";

  constructor(nodeName, attributes = "") {
    this.nodeName = nodeName;
    this.attributes = attributes;
  }

  getAttribute(name) {
    for (const [, key, quoted] of this.attributes.matchAll(ATTRIBUTE)) {
      if (key === name) return unescape(quoted.slice(1, -1));
    }
    return null;
  }

  getElementsByTagName(name) {
    const below = this.children.flatMap((child) => child.getElementsByTagName(name));
    return [...this.children.filter((child) => child.nodeName === name), ...below];
  }
}

/** Return the root of an XML document; throw an error if it is not well-formed. */
function parse(text) {
  const document = new XmlElement("#document"), open = [document];
  const append = (content) => {
    if (open.length === 1 && content.trim()) throw new Error("text outside of the root");
    for (const element of open) element.textContent += content;
  };
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const [token, cdata, slash, name, attributes, isEmpty, content] = TOKEN.exec(text) ?? [];
    if (!token) throw new Error(`not XML at ${at}`);
    at += token.length;
    if (cdata !== undefined) append(cdata);
    else if (content !== undefined) append(unescape(content));
    else if (slash) {
      if (open.length === 1 || open.pop().nodeName !== name) throw new Error(`${name} is not open`);
    } else if (name) {
      const element = new XmlElement(name, attributes);
      open.at(-1).children.push(element);
      if (!isEmpty) open.push(element);
    }
  }
  if (open.length > 1 || document.children.length !== 1) throw new Error("the root is not closed");
  return document.children[0];
}

function unescape(content) {
  return content.replace(
    /&(?:#(\d+)|#x([\da-f]+)|(\w+));|&/gi,
    (entity, decimal, hexadecimal, name) => {
      if (decimal || hexadecimal) {
        return String.fromCodePoint(
          decimal ? Number(decimal) : Number.parseInt(hexadecimal, 16),
        );
      }
      if (!Object.hasOwn(ENTITIES, name ?? "")) throw new Error(`${entity} is not declared`);
      return ENTITIES[name];
    },
  );
}

/** As Chromium does it, a document that is not well-formed has an element `parsererror`. */
export class DOMParser {
  parseFromString(text) {
    try {
      return { documentElement: parse(text) };
    } catch {
      return { documentElement: new XmlElement("parsererror") };
    }
  }
}
