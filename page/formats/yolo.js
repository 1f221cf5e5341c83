// YOLO segmentation: data.yaml, classes.json, and labels/NAME.txt beside images/NAME.jpg with a
// line per object.
//
// A line has one polygon. The islands of an object are joined by a line of no width, as ultralytics
// does when it converts COCO: an object stays one object, and libraries that paint outlines paint
// the joining line too. Holes are cut open by a seam. Points are the outermost pixels, as in the
// labels that ultralytics and supervision write and paint.

import { writeDataYaml } from "./class_names.js";
import { polygonsOf } from "./polygons.js";
import { FormatError, classesFile, imagePaths } from "./project.js";
import { rasterize, rasterizeBox } from "./rasterize.js";
import { masksOf } from "./spans.js";
import { subsetFolder } from "./split.js";
import { readLines } from "./yolo_lines.js";

/**
 * Added to the index of a pixel: near the pixel's centre, and below 0.5, so that ultralytics, which
 * truncates, and supervision, which rounds, both find the pixel.
 */
const PIXEL_CENTRE = 0.4;
const DECIMALS = 6;
const MAX_LISTED_LINES = 5;

/** @type {import("./project.js").Writer} */
export function writeYolo(project, { tolerance } = {}) {
  const indices = new Map(project.classes.map(({ id }, index) => [id, index]));
  const labels = imagePaths(project).map(({ image, path }) => {
    const lines = masksOf(image).map(({ object, spans }) => {
      const polygon = join(polygonsOf(spans, "pixels", tolerance));
      const values = polygon.map((value, i) => ((value + PIXEL_CENTRE) / (i % 2 ? image.height : image.width)).toFixed(DECIMALS));
      return `${indices.get(object.categoryId)} ${values.join(" ")}\n`;
    });
    return { path: `labels/${subsetFolder(image)}${path}.txt`, content: lines.join("") };
  });
  const names = project.classes.map(({ name }) => name), isSplit = project.images.some(({ subset }) => subset);
  return [classesFile(project), { path: "data.yaml", content: writeDataYaml(names, isSplit) }, ...labels];
}

/** Join polygons into one: each to the one before it, between their nearest points. */
function join(polygons) {
  // The walk enters each polygon from the one before it, goes on to the next one half-way, and
  // returns through all of them.
  const there = [], back = [];
  let entry = 0;
  polygons.forEach((polygon, index) => {
    const walk = [...polygon.slice(entry), ...polygon.slice(0, index ? entry + 2 : 0)];
    if (index + 1 === polygons.length) {
      there.push(walk);
      return;
    }
    const [from, to] = nearest(polygon, polygons[index + 1]);
    const at = (from - entry + polygon.length) % polygon.length;
    there.push(walk.slice(0, at + 2));
    back.push(walk.slice(at));
    entry = to;
  });
  return [...there, ...back.reverse()].flat();
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

/**
 * @typedef {object} Dataset
 * @property {Map<number, string>} names of the classes, by their numbers
 * @property {import("./yolo_lines.js").Keypoints | null} keypoints of each pose, in a data set of
 *   poses
 */

/**
 * Read a label file.
 * @param {string} text
 * @param {string} path its path, by which the image is found
 * @param {Dataset} dataset
 * @param {import("./project.js").ProjectBuilder} builder
 * @returns {boolean} false: it is another text, beside no image and without labels
 * @throws {FormatError} the image is not known, or no line is a label
 */
export function readYolo(text, path, { names, keypoints }, builder) {
  const isKnown = builder.known.findOwn(path) !== null;
  const { labels, problems } = readLines(text, keypoints);
  // Beside labels there are other texts, such as README.txt.
  if (!isKnown && !labels.length && problems.length) return false;
  const messages = [...Map.groupBy(problems, ({ reason }) => reason)].map(([reason, lines]) => (
    `${listed(lines.map(({ line }) => line))}: ${reason}`
  ));
  if (!isKnown) {
    throw new FormatError(builder.known.isAmbiguous(path)
      ? "several images have this name"
      : "add the image of this name first: YOLO labels need its size");
  }
  if (!labels.length && messages.length) throw new FormatError(messages[0]);
  const image = builder.ownImage(path), { width, height } = image;
  for (const message of messages) builder.leaveOut(image, `${path}: left out ${message}`);
  for (const { category, box, polygon, score, notes } of labels) {
    const name = names.get(category) ?? `class ${category}`;
    if (!names.has(category)) {
      builder.warn(`class ${category} has no name in data.yaml or classes.txt`);
      builder.category(name, { id: category + 1 });
    }
    notes.forEach((note) => builder.warn(note));
    const scaled = (box ?? polygon).map((value, i) => value * (i % 2 ? height : width));
    const spans = box ? rasterizeBox(scaled, width, height) : rasterize([scaled], "pixels", width, height);
    builder.add(image, spans, { category: name, name, score }, "label");
  }
  return true;
}

/**
 * Return numbers of lines for a message: all of them, or the first ones and how many more there
 * are.
 */
function listed(lines) {
  if (lines.length === 1) return `line ${lines[0]}`;
  const more = lines.length - MAX_LISTED_LINES;
  const first = lines.slice(0, MAX_LISTED_LINES).join(", ");
  return `lines ${first}${more > 0 ? ` and ${more} more` : ""}`;
}
