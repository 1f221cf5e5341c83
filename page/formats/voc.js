// Pascal VOC: XML with a box per object and, as supervision writes and reads them, polygons.
//
// Boxes and polygons count pixels from 1. Each island of an object is one polygon, with holes cut open by a seam. The
// points are the outermost pixels.

import { FormatError, baseName, classesFile, cleanPath, imagePaths } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize } from "./rasterize.js";
import { masksOf, union } from "./spans.js";
import { imageSets } from "./split.js";

/**
 * Write `classes.json`, and `Annotations/NAME.xml` for each image; with a split, `ImageSets/Main`.
 * @type {import("./project.js").Writer}
 */
export function writeVoc(project, { tolerance } = {}) {
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  const annotations = imagePaths(project).map(({ image, path }) => {
    const file = cleanPath(image.name);
    const lines = [
      '<?xml version="1.0" encoding="utf-8"?>',
      "<annotation>",
      `  <folder>${escape(file.slice(0, -baseName(file).length).replace(/\/$/, ""))}</folder>`,
      `  <filename>${escape(baseName(file))}</filename>`,
      `  <size><width>${image.width}</width><height>${image.height}</height><depth>3</depth></size>`,
      "  <segmented>1</segmented>",
    ];
    for (const { object, spans } of masksOf(image)) {
      const [x0, y0, x1, y1] = spans.box;
      lines.push(
        "  <object>",
        `    <name>${escape(names.get(object.categoryId))}</name>`,
        "    <pose>Unspecified</pose>",
        "    <truncated>0</truncated>",
        "    <difficult>0</difficult>",
        `    <bndbox><xmin>${x0 + 1}</xmin><ymin>${y0 + 1}</ymin><xmax>${x1}</xmax><ymax>${y1}</ymax></bndbox>`,
        ...polygonsOf(spans, "pixels", tolerance).map((polygon) => `    <polygon>${points(polygon)}</polygon>`),
        "  </object>",
      );
    }
    lines.push("</annotation>", "");
    return { path: `Annotations/${path}.xml`, content: lines.join("\n") };
  });
  return [classesFile(project), ...imageSets(project, "Main"), ...annotations];
}

function points(polygon) {
  return polygon.map((value, i) => {
    const tag = `${i % 2 ? "y" : "x"}${(i >> 1) + 1}`;
    return `<${tag}>${value + 1}</${tag}>`;
  }).join("");
}

/** Return text for XML; characters that XML does not allow are replaced. */
function escape(text) {
  // deno-lint-ignore no-control-regex
  const allowed = text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "\ufffd");
  return allowed.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/**
 * Read a Pascal VOC document.
 * @param {string} text
 * @param {string} path its path: the image is looked for beside it, or beside the folder `Annotations`
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readVoc(text, path, builder) {
  const root = new DOMParser().parseFromString(text, "application/xml").documentElement;
  const textOf = (parent, tag) => parent.querySelector(`:scope > ${tag}`)?.textContent.trim() ?? "";
  const numbersOf = (parent, tags) => tags.map((tag) => parseFloat(textOf(parent, tag)));
  const size = root.querySelector(":scope > size");
  if (root.nodeName !== "annotation" || !size) throw new FormatError("not Pascal VOC, with annotation and size");
  const folder = path.slice(0, -baseName(path).length).replace(/(^|\/)Annotations\//, "$1");
  const image = builder.image(folder + baseName(cleanPath(textOf(root, "filename"))), ...numbersOf(size, ["width", "height"]));
  for (const object of root.querySelectorAll(":scope > object")) {
    await builder.addOrWarn(`${image.name}: an object`, () => {
      const box = object.querySelector(":scope > bndbox"), category = textOf(object, "name");
      const polygons = [...object.querySelectorAll(":scope > polygon")].map(({ children }) => [...children].map((tag) => parseFloat(tag.textContent) - 1));
      if (!category) throw new FormatError("it has no name");
      if (polygons.some((polygon) => polygon.length < 6 || polygon.length % 2 || !polygon.every(Number.isFinite))) {
        throw new FormatError("a polygon must have at least three points of two numbers");
      }
      const corners = box ? numbersOf(box, ["xmin", "ymin", "xmax", "ymax"]) : [];
      if (!polygons.length) {
        if (!box || !corners.every(Number.isFinite)) throw new FormatError("it has neither a polygon nor a box");
        builder.warn("an object has only a box: its mask is the whole box");
      }
      const [left, top, right, bottom] = corners;
      const edges = [left - 1, top - 1, right, top - 1, right, bottom, left - 1, bottom];
      const parts = polygons.map((polygon) => rasterize([polygon], "pixels", image.width, image.height));
      const spans = parts.length ? union(parts) : rasterize([edges], "edges", image.width, image.height);
      builder.add(image, spans, { category, name: category, score: null }, "object");
    });
  }
}
