// YOLO segmentation: data.yaml, classes.json, and labels/NAME.txt beside images/NAME.jpg with a line per object.
//
// A line has one polygon. The islands of an object are joined by a line of no width, as ultralytics does when it converts
// COCO: an object stays one object, and libraries that paint outlines paint the joining line too. Holes are cut open by a
// seam. Points are the outermost pixels, as in the labels that ultralytics and supervision write and paint.

import { writeDataYaml } from "./class_names.js";
import { FormatError, classesFile, imagePaths } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize } from "./rasterize.js";
import { masksOf } from "./spans.js";
import { subsetFolder } from "./split.js";

/**
 * Added to the index of a pixel: near the pixel's centre, and below 0.5, so that ultralytics, which truncates, and
 * supervision, which rounds, both find the pixel.
 */
const PIXEL_CENTRE = 0.4;
const DECIMALS = 6;

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
  // The walk enters each polygon from the one before it, goes on to the next one half-way, and returns through all of them.
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
 * Read a label file.
 * @param {string} text
 * @param {string} path its path, by which the image is found
 * @param {Map<number, string>} names class names by index
 * @param {import("./project.js").ProjectBuilder} builder
 */
export function readYolo(text, path, names, builder) {
  const labels = [];
  text.split(/\r?\n/).forEach((line, index) => {
    if (!line.trim()) return;
    const [category, ...numbers] = line.trim().split(/\s+/).map(Number);
    if (numbers.length < 4 || !Number.isInteger(category) || category < 0 || !numbers.every((value) => Math.abs(value) <= 2)) {
      throw new FormatError(`line ${index + 1} is not a class number and coordinates relative to the image`);
    }
    labels.push({ category, numbers });
  });
  if (!builder.known.find(path)) throw new FormatError("add the image of this name first: YOLO labels need its size");
  const image = builder.image(path), { width, height } = image;
  for (const { category, numbers } of labels) {
    // As ultralytics and supervision read it: 4 numbers are a box, and an odd number at the end is a score.
    const isBox = numbers.length <= 5;
    if (isBox) builder.warn("a label is only a box: its mask is the whole box");
    const score = numbers.length % 2 ? numbers.pop() : null;
    const points = isBox ? corners(numbers) : numbers;
    const scaled = points.map((value, i) => value * (i % 2 ? height : width));
    const spans = rasterize([scaled], isBox ? "edges" : "pixels", width, height);
    const name = names.get(category) ?? `class ${category}`;
    if (!names.has(category)) builder.warn(`class ${category} has no name in data.yaml or classes.txt`);
    builder.add(image, spans, { category: name, name, score }, "label");
  }
}

/** @param {number[]} box centre, width and height */
function corners([x, y, width, height]) {
  const [left, top, right, bottom] = [x - width / 2, y - height / 2, x + width / 2, y + height / 2];
  return [left, top, right, top, right, bottom, left, bottom];
}
