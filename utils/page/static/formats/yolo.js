// YOLO segmentation: data.yaml, and labels/NAME.txt beside images/NAME.jpg with a line per object.
//
// A line has one polygon. The islands of an object are joined by a line of no width, as ultralytics does when it converts
// COCO: an object stays one object, and libraries that paint outlines paint the joining line too. Holes are cut open by a
// seam. Points are the outermost pixels, as in the labels that ultralytics and supervision write and paint.

import { writeDataYaml } from "./class_names.js";
import { FormatError, baseName, cleanPath, imagePaths, stem } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize } from "./rasterize.js";
import { masksOf } from "./spans.js";

/**
 * Added to the index of a pixel: near the pixel's centre, and below 0.5, so that ultralytics, which truncates, and
 * supervision, which rounds, both find the pixel.
 */
const PIXEL_CENTRE = 0.4;
const DECIMALS = 6;

/**
 * @param {import("./project.js").Project} project
 * @param {{tolerance?: number}} [options]
 * @returns {import("./project.js").ProjectFile[]}
 */
export function writeYolo(project, { tolerance } = {}) {
  const indices = new Map(project.classes.map(({ id }, index) => [id, index]));
  const labels = imagePaths(project).map(({ image, path }) => {
    const lines = masksOf(image).map(({ object, spans }) => {
      const polygon = join(polygonsOf(spans, "pixels", tolerance));
      const values = polygon.map((value, i) => ((value + PIXEL_CENTRE) / (i % 2 ? image.height : image.width)).toFixed(DECIMALS));
      return `${indices.get(object.categoryId)} ${values.join(" ")}\n`;
    });
    return { path: `labels/${path}.txt`, content: lines.join("") };
  });
  return [{ path: "data.yaml", content: writeDataYaml(project.classes.map(({ name }) => name)) }, ...labels];
}

/** Join polygons into one: each to the one before it, between their nearest points. */
function join(polygons) {
  let joined = polygons[0];
  for (let k = 1; k < polygons.length; k++) {
    const before = polygons[k - 1], polygon = polygons[k];
    const [from, to] = nearest(before, polygon);
    const [x, y] = [before[from], before[from + 1]];
    let at = 0;
    while (joined[at] !== x || joined[at + 1] !== y) at += 2;
    joined = [
      ...joined.slice(0, at + 2), ...polygon.slice(to), ...polygon.slice(0, to + 2), ...joined.slice(at),
    ];
  }
  return joined;
}

/** Return the positions of the nearest points of two polygons. */
function nearest(one, other) {
  let best = Infinity, found = [0, 0];
  for (let i = 0; i < one.length; i += 2) {
    for (let j = 0; j < other.length; j += 2) {
      const distance = (one[i] - other[j]) ** 2 + (one[i + 1] - other[j + 1]) ** 2;
      if (distance < best) {
        best = distance;
        found = [i, j];
      }
    }
  }
  return found;
}

/** Find the known image of a label file. */
export class LabelledImages {
  /** @type {Map<string, import("./project.js").ImageSize>} by path without extension and without folders called images or labels */
  #byPath = new Map();
  /** @type {Map<string, import("./project.js").ImageSize | null>} by name without extension; null: ambiguous */
  #byName = new Map();

  /** @param {import("./project.js").ImageSize[]} sizes */
  constructor(sizes) {
    for (const image of sizes) {
      const key = keyOf(image.name), name = baseName(key);
      this.#byPath.set(key, image);
      this.#byName.set(name, this.#byName.has(name) ? null : image);
    }
  }

  /** Return the image of a label file, or null. */
  of(path) {
    const key = keyOf(path);
    return this.#byPath.get(key) ?? this.#byName.get(baseName(key)) ?? null;
  }
}

function keyOf(path) {
  return stem(cleanPath(path)).split("/").filter((part) => part !== "images" && part !== "labels").join("/").normalize("NFC");
}

/**
 * Read a label file.
 * @param {string} text
 * @param {import("./project.js").ImageSize} size
 * @param {Map<number, string>} names class names by index
 * @param {import("./project.js").ProjectBuilder} builder
 */
export function readYolo(text, size, names, builder) {
  const image = builder.image(size.name, size.width, size.height);
  text.split(/\r?\n/).forEach((line, index) => {
    const values = line.trim().split(/\s+/).map(Number);
    if (!line.trim()) return;
    const [category, ...numbers] = values;
    if (values.length < 5 || !Number.isInteger(category) || category < 0 || !numbers.every((value) => Math.abs(value) <= 2)) {
      throw new FormatError(`line ${index + 1} is not a class number and coordinates relative to the image`);
    }
    // As ultralytics and supervision read it: 5 numbers are a box, and an odd coordinate at the end is a score.
    const isBox = values.length <= 6;
    if (isBox) builder.warn("a label is only a box: its mask is the whole box");
    const score = numbers.length % 2 ? numbers.pop() : null;
    const points = isBox ? corners(numbers) : numbers;
    const scaled = points.map((value, i) => value * (i % 2 ? size.height : size.width));
    const spans = rasterize([scaled], isBox ? "edges" : "pixels", size.width, size.height);
    const name = names.get(category) ?? `class ${category}`;
    if (!names.has(category)) builder.warn(`class ${category} has no name in data.yaml or classes.txt`);
    if (spans.area) builder.add(image, { categoryId: builder.category(name), name, rle: spans.encode(), score });
    else builder.warn("an empty label was left out");
  });
}

/** @param {number[]} box centre, width and height */
function corners([x, y, width, height]) {
  const [left, top, right, bottom] = [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
  return [left, top, right, top, right, bottom, left, bottom];
}
