// LabelMe 5: a JSON file beside each image.
//
// The islands of an object are polygons with the same group_id, and holes are cut open by a seam.
// Points are the outermost pixels, which LabelMe and supervision paint too: at tolerance 0 both
// read the mask exactly. `classes` is this page's own: LabelMe, which has only names, keeps it.

import { numbersOf } from "./numbers.js";
import { polygonsOf } from "./polygons.js";
import {
  FormatError, baseName, cleanPath, imagePaths, isWhole, readClasses, textOf,
} from "./project.js";
import { rasterize, rasterizeBox } from "./rasterize.js";
import { Spans, masksOf, union } from "./spans.js";
import { subsetFolder } from "./split.js";

const VERSION = "5.5.0";

/**
 * Write `NAME.json` for each image; with a split, in the folders `train` and `val`.
 * @type {import("./project.js").Writer}
 */
export function writeLabelme(project, { tolerance } = {}) {
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  return imagePaths(project).map(({ image, path }) => {
    let groups = 0;
    const shapes = masksOf(image).flatMap(({ object, spans }) => {
      const polygons = polygonsOf(spans, "pixels", tolerance), group_id = polygons.length > 1 ? ++groups : null;
      const common = { label: names.get(object.categoryId), description: object.name, flags: {} };
      return polygons.map((polygon) => ({ ...common, points: pairs(polygon), group_id, shape_type: "polygon", mask: null }));
    });
    const document = {
      version: VERSION,
      flags: {},
      shapes,
      imagePath: baseName(cleanPath(image.name)),
      imageData: null,
      imageHeight: image.height,
      imageWidth: image.width,
      classes: project.classes,
    };
    return { path: `${subsetFolder(image)}${path}.json`, content: JSON.stringify(document) };
  });
}

function pairs(polygon) {
  return Array.from({ length: polygon.length / 2 }, (_, i) => [polygon[2 * i], polygon[2 * i + 1]]);
}

/** Return whether a JSON document looks like LabelMe. */
export function isLabelme(document) {
  return Array.isArray(document?.shapes);
}

/**
 * Read a LabelMe document.
 * @param {any} document
 * @param {string} path its path: the image is looked for beside it
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readLabelme(document, path, builder) {
  readClasses(document.classes, builder);
  const { imagePath, imageWidth, imageHeight } = document;
  const image = builder.imageOf(path, imagePath, imageWidth, imageHeight);
  /** @type {Map<string, {label: string, name: string, parts: Spans[]}>} */
  const objects = new Map();
  for (const [index, shape] of document.shapes.entries()) {
    const label = textOf(shape?.label);
    if (label === null) {
      builder.leaveOut(image, "a shape without a label was left out");
      continue;
    }
    if (!isRead(shape.shape_type)) {
      const given = shape.shape_type;
      const type = (typeof given === "string" ? given : JSON.stringify(given)).slice(0, 40);
      const message = "was left out: only polygons, rectangles and masks are read";
      builder.leaveOut(image, `a shape of type ${type} ${message}`);
      continue;
    }
    await builder.addOrWarn(`${image.name}: a shape`, async () => {
      const part = await maskOfShape(shape, image);
      const isGrouped = shape.group_id !== null && shape.group_id !== undefined;
      const key = JSON.stringify(isGrouped ? [label, shape.group_id] : index);
      const name = textOf(shape.description) ?? label;
      if (!objects.has(key)) objects.set(key, { label, name, parts: [] });
      objects.get(key).parts.push(part);
    }, image);
  }
  for (const { label, name, parts } of objects.values()) {
    builder.add(image, parts.length === 1 ? parts[0] : union(parts), { category: label, name, score: null }, "shape");
  }
}

/** Types of shapes with four corners, in any order: upright or turned. */
const FOUR_CORNERS = ["rectangle", "rotation", "quadrilateral"];

/** @param {any} type null or undefined in files of old versions, which had only polygons */
function isRead(type) {
  return ["polygon", "mask", ...FOUR_CORNERS, null, undefined].includes(type);
}

function maskOfShape({ shape_type, points, mask }, { width, height }) {
  const type = shape_type ?? "polygon";
  const least = type === "polygon" ? 3 : 2;
  const pairs = Array.isArray(points) ? points.map(numbersOf) : [];
  if (pairs.length < least || !pairs.every((pair) => pair?.length === 2)) {
    throw new FormatError(`a ${type} must have at least ${least} points of two numbers`);
  }
  if (type === "polygon") return rasterize([pairs.flat()], "pixels", width, height);
  if (type === "mask") {
    const [[left, top]] = pairs;
    return readMask(mask, Math.round(left), Math.round(top), width, height);
  }
  if (type === "rectangle" && pairs.length === 2) return rasterizeBox(pairs.flat(), width, height);
  // Unlike an outline, which LabelMe paints too, the sides are where the shape ends: X-AnyLabeling
  // exports it so.
  return rasterize([corners(pairs, type)], "edges", width, height);
}

/**
 * Return the corners of a shape in their order around it.
 * @param {number[][]} pairs all four, possibly with the first one once more
 * @param {string} type
 */
function corners(pairs, type) {
  const points = [...new Map(pairs.map((pair) => [String(pair), pair])).values()];
  if (points.length !== 4) {
    const expected = type === "rectangle" ? "two opposite or four" : "four";
    throw new FormatError(`a ${type} must have ${expected} corners`);
  }
  const [x, y] = [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / 4);
  const angle = (point) => Math.atan2(point[1] - y, point[0] - x);
  return points.sort((one, other) => angle(one) - angle(other)).flat();
}

/** Return the mask in a PNG image at a corner: pixels that are neither black nor transparent. */
async function readMask(text, x0, y0, width, height) {
  if (typeof text !== "string") throw new FormatError("a mask must be a PNG image in Base64");
  const blob = new Blob([fromBase64(text)], { type: "image/png" });
  const picture = await createImageBitmap(blob, { colorSpaceConversion: "none" }).catch(() => null);
  if (!picture) throw new FormatError("not a PNG image");
  if (!isWhole(x0, 0, width - picture.width) || !isWhole(y0, 0, height - picture.height)) throw new FormatError("a mask is larger than the image");
  const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(picture, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, picture.width, picture.height).data.buffer);
  const spans = new Spans(width, height);
  for (let x = 0; x < picture.width; x++) {
    for (let y = 0; y < picture.height; y++) {
      if (pixels[y * picture.width + x] & 0xffffff) spans.add(x0 + x, y0 + y, y0 + y + 1);
    }
  }
  return spans;
}

function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    throw new FormatError("not valid Base64");
  }
}
