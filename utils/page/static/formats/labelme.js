// LabelMe 5: a JSON file beside each image.
//
// The islands of an object are polygons with the same group_id, and holes are cut open by a seam. Points are the outermost
// pixels, which LabelMe and supervision paint too: at tolerance 0 both read the mask exactly.

import { fromBase64, toBase64 } from "./bytes.js";
import { decodePngMask, encodePng } from "./png.js";
import { polygonsOf } from "./polygons.js";
import { FormatError, baseName, cleanPath, imagePaths, isWhole } from "./project.js";
import { rasterize } from "./rasterize.js";
import { Spans, masksOf } from "./spans.js";

const VERSION = "5.5.0";

/**
 * Write `NAME.json` for each image.
 * @param {import("./project.js").Project} project
 * @param {{shapes?: "polygons" | "masks", tolerance?: number}} [options] masks are exact, but not all programs read them
 * @returns {Promise<import("./project.js").ProjectFile[]>}
 */
export async function writeLabelme(project, { shapes = "polygons", tolerance } = {}) {
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  const files = [];
  for (const { image, path } of imagePaths(project)) {
    const list = [];
    let groups = 0;
    for (const { object, spans } of masksOf(image)) {
      const common = { label: names.get(object.categoryId), description: object.name, flags: {} };
      if (shapes === "masks") {
        list.push({ ...common, ...(await maskShape(spans)), group_id: null, shape_type: "mask" });
        continue;
      }
      const polygons = polygonsOf(spans, "pixels", tolerance);
      const group = polygons.length > 1 ? ++groups : null;
      for (const polygon of polygons) {
        list.push({ ...common, points: pairs(polygon), group_id: group, shape_type: "polygon", mask: null });
      }
    }
    const document = {
      version: VERSION,
      flags: {},
      shapes: list,
      imagePath: baseName(cleanPath(image.name)),
      imageData: null,
      imageHeight: image.height,
      imageWidth: image.width,
    };
    files.push({ path: `${path}.json`, content: JSON.stringify(document) });
  }
  return files;
}

function pairs(polygon) {
  return Array.from({ length: polygon.length / 2 }, (_, i) => [polygon[2 * i], polygon[2 * i + 1]]);
}

/** Return the fields of a mask shape: the corner pixels of its box, and the mask within the box as a PNG image. */
async function maskShape(spans) {
  const [x0, y0, x1, y1] = spans.box, width = x1 - x0, height = y1 - y0;
  const pixels = new Uint8Array(width * height);
  spans.columns.forEach((column, i) => {
    for (let y = spans.tops[i]; y < spans.bottoms[i]; y++) pixels[(y - y0) * width + column - x0] = 1;
  });
  return { points: [[x0, y0], [x1 - 1, y1 - 1]], mask: toBase64(await encodePng(pixels, width, height, null)) };
}

/** Return whether a JSON document looks like LabelMe. */
export function isLabelme(document) {
  return Array.isArray(document?.shapes) && typeof document.imagePath === "string";
}

/**
 * Read a LabelMe document.
 * @param {any} document
 * @param {string} path its path: the image is looked for beside it
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readLabelme(document, path, builder) {
  const folder = path.slice(0, -baseName(path).length);
  const image = builder.image(folder + baseName(cleanPath(document.imagePath)), document.imageWidth, document.imageHeight);
  /** @type {Map<string, {label: string, name: string, parts: Spans[]}>} */
  const objects = new Map();
  for (const [index, shape] of document.shapes.entries()) {
    if (typeof shape?.label !== "string") {
      builder.warn("a shape without a label was left out");
      continue;
    }
    try {
      const part = await maskOfShape(shape, image);
      if (!part) {
        builder.warn(`a shape of type ${String(shape.shape_type).slice(0, 40)} was left out: only polygons, rectangles and masks are read`);
        continue;
      }
      const isGrouped = shape.group_id !== null && shape.group_id !== undefined;
      const key = JSON.stringify(isGrouped ? [shape.label, shape.group_id] : index);
      const name = typeof shape.description === "string" && shape.description ? shape.description : shape.label;
      if (!objects.has(key)) objects.set(key, { label: shape.label, name, parts: [] });
      objects.get(key).parts.push(part);
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      builder.warn(`${image.name}: a shape was left out: ${error.message}`);
    }
  }
  for (const { label, name, parts } of objects.values()) {
    const spans = union(parts);
    if (spans.area) builder.add(image, { categoryId: builder.category(label), name, rle: spans.encode(), score: null });
    else builder.warn("an empty shape was left out");
  }
}

/** Return a shape's mask, or null if its type is not supported. */
function maskOfShape({ shape_type: type = "polygon", points, mask }, { width, height }) {
  if (!["polygon", "rectangle", "mask"].includes(type)) return null;
  const least = type === "polygon" ? 3 : 2;
  if (!Array.isArray(points) || points.length < least || !points.every((point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite))) {
    throw new FormatError(`a ${type} must have at least ${least} points of two numbers`);
  }
  const [[x0, y0], [x1, y1]] = points;
  if (type === "mask") return readMask(mask, Math.round(x0), Math.round(y0), width, height);
  const polygon = type === "rectangle" ? [x0, y0, x1, y0, x1, y1, x0, y1] : points.flat();
  return rasterize([polygon], "pixels", width, height);
}

async function readMask(text, x0, y0, width, height) {
  if (typeof text !== "string") throw new FormatError("a mask must be a PNG image in Base64");
  const picture = await decodePngMask(fromBase64(text));
  if (!isWhole(x0, 0, width - picture.width) || !isWhole(y0, 0, height - picture.height)) throw new FormatError("a mask is larger than the image");
  const spans = new Spans(width, height);
  for (let x = 0; x < picture.width; x++) {
    for (let y = 0; y < picture.height; y++) {
      if (picture.pixels[y * picture.width + x]) spans.add(x0 + x, y0 + y, y0 + y + 1);
    }
  }
  return spans;
}

function union(parts) {
  if (parts.length === 1) return parts[0];
  const spans = new Spans(parts[0].width, parts[0].height);
  const all = parts.flatMap((part) => part.columns.map((column, i) => [column, part.tops[i], part.bottoms[i]]));
  all.sort(([a, b], [c, d]) => a - c || b - d);
  for (const [column, top, bottom] of all) spans.add(column, top, bottom);
  return spans;
}
