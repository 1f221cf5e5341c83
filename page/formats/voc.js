// Pascal VOC: XML with a box per object and, as supervision writes and reads them, polygons.
//
// Boxes and polygons count pixels from 1. Each island of an object is one polygon, with holes cut
// open by a seam. The points are the outermost pixels.

import { numberOf } from "./numbers.js";
import { FormatError, baseName, classesFile, cleanPath, climbs, imagePaths } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize, rasterizeBox } from "./rasterize.js";
import { masksOf, union } from "./spans.js";
import { imageSets } from "./split.js";
import { escapeXml, parseXml } from "./xml.js";

/** The class of objects without a name. */
const UNNAMED = "object";

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
      `  <folder>${escapeXml(file.slice(0, -baseName(file).length).replace(/\/$/, ""))}</folder>`,
      `  <filename>${escapeXml(baseName(file))}</filename>`,
      `  <size><width>${image.width}</width><height>${image.height}</height><depth>3</depth></size>`,
      "  <segmented>1</segmented>",
    ];
    for (const { object, spans } of masksOf(image)) {
      const [x0, y0, x1, y1] = spans.box;
      lines.push(
        "  <object>",
        `    <name>${escapeXml(names.get(object.categoryId))}</name>`,
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

/**
 * Read a Pascal VOC document.
 * @param {string} text
 * @param {string} path its path: the image is looked for beside it, or beside the folder `Annotations`
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readVoc(text, path, builder) {
  const root = parseXml(text);
  if (root.nodeName !== "annotation") {
    throw new FormatError("not Pascal VOC, with annotation as the root");
  }
  const [size] = childrenOf(root, "size");
  const [width, height] = ["width", "height"].map((tag) => (size ? childText(size, tag) : null));
  const named = childText(root, "filename");
  if (climbs(named)) {
    throw new FormatError(`its filename ${named} leads out of the data set's folder`);
  }
  const image = builder.imageOf(path, named, width, height);
  for (const object of childrenOf(root, "object")) {
    await builder.addOrWarn(`${image.name}: an object`, () => {
      const name = childText(object, "name"), category = name || UNNAMED;
      if (!name) builder.warn(`an object without a name was named "${UNNAMED}"`);
      const mask = maskOf(object, image, builder);
      builder.add(image, mask, { category, name: category, score: null }, "object");
    }, image);
  }
}

function childrenOf(element, tag) {
  return [...element.children].filter(({ nodeName }) => nodeName === tag);
}

/** Return the text of an element's child, or an empty one. */
function childText(element, tag) {
  return childrenOf(element, tag)[0]?.textContent.trim() ?? "";
}

/** Return the mask of an object's polygons, or else its box. */
function maskOf(object, { width, height }, builder) {
  const polygons = childrenOf(object, "polygon").map(pointsOf);
  if (polygons.length) {
    return union(polygons.map((points) => rasterize([points], "pixels", width, height)));
  }
  const [box] = childrenOf(object, "bndbox");
  if (!box && childrenOf(object, "robndbox").length) {
    throw new FormatError("boxes with an angle (robndbox) are not read");
  }
  if (!box) throw new FormatError("it has neither a polygon nor a box (bndbox)");
  const corners = ["xmin", "ymin", "xmax", "ymax"].map((tag) => numberOf(childText(box, tag)));
  if (corners.includes(null)) {
    throw new FormatError("its box must have the numbers xmin, ymin, xmax and ymax");
  }
  const [xmin, ymin, xmax, ymax] = corners;
  if (corners.every((value) => value >= 0 && value <= 1)) {
    throw new FormatError("its box is in parts of the image, between 0 and 1, not in pixels");
  }
  if (xmin > xmax || ymin > ymax) {
    builder.warn("the corners of a box were sorted: its min is above its max");
  }
  builder.warn("an object has only a box: its mask is the whole box");
  // The first and the last pixels, counted from 1.
  const [left, right] = [Math.min(xmin, xmax) - 1, Math.max(xmin, xmax)];
  const [top, bottom] = [Math.min(ymin, ymax) - 1, Math.max(ymin, ymax)];
  return rasterizeBox([left, top, right, bottom], width, height);
}

/** Return the points x1, y1, x2, y2, ... of a polygon, whose elements may be in any order. */
function pointsOf(polygon) {
  const values = new Map();
  for (const { nodeName, textContent } of polygon.children) values.set(nodeName, numberOf(textContent));
  const count = values.size / 2, points = [];
  for (let number = 1; number <= count; number++) {
    points.push(values.get(`x${number}`) ?? null, values.get(`y${number}`) ?? null);
  }
  if (points.length < 6 || !Number.isInteger(count) || points.includes(null)) {
    throw new FormatError("a polygon must have at least three points x1, y1, x2, y2, ... of numbers");
  }
  return points.map((value) => value - 1);
}
