// Label maps: PNG images with category ids as pixels, and PNG images with object numbers as pixels.

import { colourOf } from "../colours.js";
import { decodePng, encodePng } from "./png.js";
import { FormatError, classesFile, imagePaths } from "./project.js";
import { Spans, masksOf, paint } from "./spans.js";
import { imageSets } from "./split.js";

/**
 * Write `classes/NAME.png`, `instances/NAME.png` and `classes.json`; with a split, `ImageSets/Segmentation`.
 *
 * Pixels of no object are 0; objects count from 1 in their order. Where objects overlap, the last one is visible.
 * The images are indexed, in the colours of the classes, or 16-bit gray where a value is above 255.
 * @type {import("./project.js").Writer}
 */
export async function writeLabelMaps(project) {
  const classColours = [];
  for (const { id, color } of project.classes) classColours[id] = color;
  /** @type {import("./project.js").ProjectFile[]} */
  const files = [classesFile(project), ...imageSets(project, "Segmentation")];
  for (const { image, path } of imagePaths(project)) {
    const masks = masksOf(image);
    const classes = masks.map(({ object, spans }) => ({ value: object.categoryId, spans }));
    const instances = masks.map(({ spans }, index) => ({ value: index + 1, spans }));
    const objectColours = Array.from({ length: masks.length + 1 }, (_, number) => colourOf(Math.max(number, 1)));
    files.push({ path: `classes/${path}.png`, content: await encode(image, classes, classColours) });
    files.push({ path: `instances/${path}.png`, content: await encode(image, instances, objectColours) });
  }
  return files;
}

/** Encode a label map; `colours` are `#rrggbb` by value, without one for 0. */
function encode({ width, height }, masks, colours) {
  const isIndexed = masks.every(({ value }) => value <= 255);
  const palette = Array.from({ length: Math.min(256, colours.length) }, (_, value) => {
    const colour = (value && colours[value]) || "#000000";
    return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  });
  const values = paint(isIndexed ? Uint8Array : Uint16Array, [0, 0, width, height], masks);
  return encodePng(values, width, height, isIndexed ? palette : null);
}

/**
 * Read the label maps of an image.
 * @param {string} path of the images, without the folder `classes`
 * @param {Uint8Array<ArrayBuffer>} classes PNG image of category ids
 * @param {Uint8Array<ArrayBuffer> | null} instances PNG image of object numbers; null: each class is one object
 * @param {Map<string, string | null>} names names of the classes by id
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readLabelMaps(path, classes, instances, names, builder) {
  const { values, width, height } = await decodePng(classes);
  const numbers = instances ? await decodePng(instances) : { values, width, height };
  if (numbers.width !== width || numbers.height !== height) throw new FormatError("the images in classes and instances have different sizes");
  const image = builder.image(path, width, height);
  for (const spans of regionsOf(numbers)) {
    const id = values[spans.tops[0] * width + spans.columns[0]], category = names.get(String(id));
    if (!category) builder.leaveOut(image, `a region was left out: its class ${id} is not in classes.json`);
    else builder.add(image, spans, { category, name: category, score: null }, "region");
  }
}

/** Return the regions of equal values in the order of these, without that of 0. */
function regionsOf({ values, width, height }) {
  /** @type {Map<number, Spans>} */
  const regions = new Map();
  for (let x = 0; x < width; x++) {
    for (let y = 0, top = 0; y < height; top = y) {
      const value = values[y * width + x];
      while (y < height && values[y * width + x] === value) y++;
      if (!value) continue;
      if (!regions.has(value)) regions.set(value, new Spans(width, height));
      regions.get(value).add(x, top, y);
    }
  }
  return [...regions].sort(([one], [other]) => one - other).map(([, spans]) => spans);
}
