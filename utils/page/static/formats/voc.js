// Pascal VOC: XML with a box per object and, as supervision writes and reads them, polygons.
//
// Boxes and polygons count pixels from 1. Each island of an object is one polygon, with holes cut open by a seam. The
// points are the outermost pixels.

import { baseName, cleanPath, imagePaths } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { masksOf } from "./spans.js";

/**
 * Write `Annotations/NAME.xml` for each image.
 * @param {import("./project.js").Project} project
 * @param {{tolerance?: number}} [options]
 * @returns {import("./project.js").ProjectFile[]}
 */
export function writeVoc(project, { tolerance } = {}) {
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  return imagePaths(project).map(({ image, path }) => {
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
