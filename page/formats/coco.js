// COCO instances in JSON.
//
// Polygons have whole numbers at pixel edges and holes cut open by a seam: pycocotools fills them
// exactly as the mask at tolerance 0. supervision paints the right and lower edge too, so its masks
// are a pixel larger there; RLE is exact in both.

import { numberOf, numbersOf } from "./numbers.js";
import { FormatError, cleanPath, climbs, folderPath, idOf, isTextList, readClasses, textOf } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize, rasterizeBox } from "./rasterize.js";
import { Spans, masksOf } from "./spans.js";

/**
 * Write `annotations/instances.json`; with a split, `annotations/train.json` and
 * `annotations/val.json`.
 * @param {import("./project.js").Project} project
 * @param {(object: import("./project.js").Annotation, spans: Spans) => object} [segmentationOf] default: RLE
 */
export function writeCoco({ classes, images }, segmentationOf = ({ rle }) => rle) {
  return [...Map.groupBy(images, ({ subset }) => subset ?? "instances")].map(([name, listed]) => (
    { path: `annotations/${name}.json`, content: JSON.stringify(documentOf(classes, listed, segmentationOf)) }
  ));
}

function documentOf(classes, images, segmentationOf) {
  const annotations = images.flatMap((image, index) =>
    masksOf(image).map(({ object, spans }) => {
      const [x0, y0, x1, y1] = spans.box;
      return {
        id: 0,
        image_id: index + 1,
        category_id: object.categoryId,
        segmentation: segmentationOf(object, spans),
        area: spans.area,
        bbox: [x0, y0, x1 - x0, y1 - y0],
        iscrowd: 0,
        score: object.score ?? undefined,
        name: object.name,
        // As CVAT writes attributes.
        attributes: object.by ? { annotator: object.by } : undefined,
        review: object.review,
      };
    })
  );
  annotations.forEach((annotation, index) => (annotation.id = index + 1));
  return {
    info: {},
    licenses: [],
    images: images.map(({ name, width, height }, index) => ({ id: index + 1, file_name: cleanPath(name), width, height })),
    categories: classes.map(({ id, name, color }) => ({ id, name, supercategory: "", color })),
    annotations,
  };
}

/** @type {import("./project.js").Writer} */
export function writeCocoPolygons(project, { tolerance } = {}) {
  return writeCoco(project, (_, spans) => polygonsOf(spans, "edges", tolerance));
}

/** Return whether a JSON document looks like COCO. */
export function isCoco(document) {
  return Array.isArray(document?.images) && Array.isArray(document?.annotations);
}

/**
 * Read a COCO document.
 * @param {any} document
 * @param {string} path its path: images may be named relative to it
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readCoco(document, path, builder) {
  const images = await readImages(document.images, folderPath(path), builder);
  const categories = readClasses(document.categories, builder);
  for (const annotation of document.annotations) {
    const image = images.get(idOf(annotation?.image_id));
    if (!image) {
      builder.warn(
        "an annotation was left out: its image is not in the file, or was left out, or several have its id",
      );
      continue;
    }
    const add = () => {
      const category = categoryOf(annotation.category_id, categories, builder);
      const name = typeof annotation.name === "string" ? annotation.name : category;
      const mask = maskOf(annotation, image, builder);
      const by = textOf(annotation.attributes?.annotator) ?? undefined;
      const review = isTextList(annotation.review) && annotation.review.length ? annotation.review : undefined;
      builder.add(image, mask, { category, name, score: numberOf(annotation.score), by, review }, "annotation");
    };
    await builder.addOrWarn(`${image.name}: an annotation`, add, image);
  }
}

/**
 * Return the name of an annotation's class; one that is not in the list of categories is named by
 * its number.
 */
function categoryOf(value, categories, builder) {
  const id = idOf(value), category = categories.get(id);
  if (category) return category;
  if (category === null) throw new FormatError(`several categories have the id ${id}`);
  if (id === null) throw new FormatError("its category is no id");
  builder.warn(`class ${id} is not in the list of categories: it was named "class ${id}"`);
  builder.category(`class ${id}`, { id: Number(id) });
  return `class ${id}`;
}

/**
 * Read the list of images.
 * @param {any[]} entries
 * @param {string} folder of the document
 * @param {import("./project.js").ProjectBuilder} builder
 * @returns {Promise<Map<string, import("./project.js").AnnotatedImage | null>>} images by id; null:
 *   several have this id
 */
async function readImages(entries, folder, builder) {
  const images = new Map();
  for (const entry of entries) {
    if (typeof entry?.file_name !== "string") {
      builder.warn("an image without file_name was left out");
      continue;
    }
    await builder.addOrWarn("an image", () => {
      if (climbs(entry.file_name)) {
        throw new FormatError(`its path ${entry.file_name} leads out of the data set's folder`);
      }
      const image = builder.image(entry.file_name, entry.width, entry.height, folder);
      const id = idOf(entry.id), other = images.get(id);
      if (images.has(id) && other !== image) {
        builder.warn(`several images have the id ${id}`);
        if (other) other.isIncomplete = true;
        images.set(id, null);
      } else if (id !== null) {
        images.set(id, image);
      }
      // Annotations cannot say that they are this image's.
      if (!images.get(id)) image.isIncomplete = true;
    });
  }
  return images;
}

/** Return an annotation's mask, or its box if it has none, or one that cannot be read. */
function maskOf({ segmentation, bbox }, image, builder) {
  const isGiven = isRle(segmentation) || (Array.isArray(segmentation) && segmentation.length > 0);
  if (!isGiven) {
    const box = maskOfBox(bbox, image, builder);
    builder.warn("an annotation has only a box: its mask is the whole box");
    return box;
  }
  try {
    if (isRle(segmentation)) return decodeRle(segmentation, image);
    return maskOfPolygons(segmentation, image, builder);
  } catch (error) {
    if (!(error instanceof FormatError) || !isBox(bbox)) throw error;
    const problem = `the mask of an annotation was replaced by its whole box: ${error.message}`;
    builder.warn(`${image.name}: ${problem}`);
    return maskOfBox(bbox, image, builder);
  }
}

function isRle(segmentation) {
  return Array.isArray(segmentation?.counts) || typeof segmentation?.counts === "string";
}

function decodeRle(segmentation, { width, height }) {
  if (segmentation.size?.[0] !== height || segmentation.size?.[1] !== width) {
    throw new FormatError(`the mask has another size than the image, ${width} x ${height}`);
  }
  return Spans.decode(segmentation);
}

/**
 * Return the mask of polygons, of which damaged ones are left out; a single polygon may stand
 * without a list.
 */
function maskOfPolygons(segmentation, { name, width, height }, builder) {
  const parts = segmentation.some(Array.isArray) ? segmentation : [segmentation];
  const polygons = [], problems = [];
  for (const part of parts) {
    const points = numbersOf(part);
    if (!points || points.length < 6 || points.length % 2) {
      problems.push("a polygon must be a list of at least three pairs of numbers");
    } else if (isRelative(points) && !points.every(Number.isInteger)) {
      problems.push("its polygon is in parts of the image, between 0 and 1, not in pixels");
    } else {
      polygons.push(points);
    }
  }
  if (!polygons.length) throw new FormatError(problems[0]);
  for (const problem of problems) {
    builder.warn(`${name}: a part of an annotation was left out: ${problem}`);
  }
  return rasterize(polygons, "edges", width, height);
}

/** Return a box as a mask; a box with a negative width or height is the one between its corners. */
function maskOfBox(bbox, { width, height }, builder) {
  const numbers = numbersOf(bbox);
  if (numbers?.length !== 4) {
    throw new FormatError("it has neither a mask nor a box of four numbers");
  }
  if (isRelative(numbers)) {
    throw new FormatError("its box is in parts of the image, between 0 and 1, not in pixels");
  }
  const [x, y, w, h] = numbers;
  if (w < 0 || h < 0) {
    builder.warn("a box has a negative width or height: its corners were sorted");
  }
  return rasterizeBox([x, y, x + w, y + h], width, height);
}

/** Return whether a value is a box of pixels. */
function isBox(bbox) {
  const numbers = numbersOf(bbox);
  return numbers?.length === 4 && !isRelative(numbers);
}

/**
 * Return whether numbers that should be pixels are within the image's first pixel, as parts of its
 * size are.
 */
function isRelative(numbers) {
  return numbers.every((value) => value >= 0 && value <= 1);
}
