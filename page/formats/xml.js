// XML, read and written.

import { FormatError } from "./project.js";

/** Return text for XML, also for attributes; characters that XML does not allow are replaced. */
export function escapeXml(text) {
  // deno-lint-ignore no-control-regex
  const allowed = text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "\ufffd");
  return allowed.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/**
 * Return the root of an XML document.
 *
 * Entities could make it very large: they are declared in a document type, which no format that is
 * read here has.
 */
export function parseXml(text) {
  if (text.includes("<!DOCTYPE")) {
    throw new FormatError("XML with a document type (<!DOCTYPE>) is not read: delete it");
  }
  // The text is decoded already, whatever encoding the declaration names.
  const body = text.replace(/^\s*<\?xml\b[^>]*\?>/, "");
  const root = new DOMParser().parseFromString(body, "application/xml").documentElement;
  // Chromium returns what is before an error, with a message inside.
  const isDamaged = root.nodeName === "parsererror" || root.getElementsByTagName("parsererror").length;
  if (isDamaged) throw new FormatError("not valid XML");
  return root;
}
