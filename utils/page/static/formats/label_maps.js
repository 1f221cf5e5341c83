// Label maps: PNG images with category ids as pixels, and PNG images with object numbers as pixels.

import { colourOf } from "../colours.js";
import { encodePng } from "./png.js";
import { imagePaths } from "./project.js";
import { masksOf } from "./spans.js";

const TILE_PIXELS = 32;

/**
 * Write `classes/NAME.png`, `instances/NAME.png` and `classes.json`.
 *
 * Pixels of no object are 0; objects count from 1 in their order. Where objects overlap, the smaller one is visible.
 * The images are indexed, in the colours of the classes, or 16-bit gray where a value is above 255.
 * @param {import("./project.js").Project} project
 * @returns {Promise<import("./project.js").ProjectFile[]>}
 */
export async function writeLabelMaps(project) {
  const classColours = [];
  for (const { id, color } of project.classes) classColours[id] = color;
  /** @type {import("./project.js").ProjectFile[]} */
  const files = [{ path: "classes.json", content: JSON.stringify(project.classes) }];
  for (const { image, path } of imagePaths(project)) {
    const masks = masksOf(image).map(({ object, spans }, index) => ({ id: object.categoryId, number: index + 1, spans }));
    masks.sort((one, other) => other.spans.area - one.spans.area);
    const classes = paint(image, masks.map(({ id, spans }) => ({ value: id, spans })));
    const instances = paint(image, masks.map(({ number, spans }) => ({ value: number, spans })));
    const objectColours = Array.from({ length: masks.length + 1 }, (_, number) => colourOf(Math.max(number, 1)));
    files.push({ path: `classes/${path}.png`, content: await encode(image, classes, classColours) });
    files.push({ path: `instances/${path}.png`, content: await encode(image, instances, objectColours) });
  }
  return files;
}

/** Return the pixels of a label map, row by row. */
function paint({ width, height }, masks) {
  const isWide = masks.some(({ value }) => value > 255);
  const create = () => (isWide ? new Uint16Array(width * height) : new Uint8Array(width * height));
  const columns = create(), rows = create();
  for (const { value, spans } of masks) {
    spans.columns.forEach((column, i) => columns.fill(value, column * height + spans.tops[i], column * height + spans.bottoms[i]));
  }
  // Transpose in tiles that fit the L1 cache.
  for (let left = 0; left < width; left += TILE_PIXELS) {
    const right = Math.min(left + TILE_PIXELS, width);
    for (let top = 0; top < height; top += TILE_PIXELS) {
      const bottom = Math.min(top + TILE_PIXELS, height);
      for (let y = top; y < bottom; y++) {
        for (let x = left; x < right; x++) rows[y * width + x] = columns[x * height + y];
      }
    }
  }
  return rows;
}

/** Encode a label map; `colours` are `#rrggbb` by value, without one for 0. */
function encode({ width, height }, values, colours) {
  const isIndexed = values instanceof Uint8Array;
  const palette = Array.from({ length: Math.min(256, colours.length) }, (_, value) => {
    const colour = (value && colours[value]) || "#000000";
    return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  });
  return encodePng(values, width, height, isIndexed ? palette : null);
}
