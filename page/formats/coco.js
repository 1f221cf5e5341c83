// COCO instances in JSON.
//
// Polygons have whole numbers at pixel edges and holes cut open by a seam: pycocotools fills them exactly as the mask at
// tolerance 0. supervision paints the right and lower edge too, so its masks are a pixel larger there; RLE is exact in both.

import { FormatError, cleanPath, readClasses } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize } from "./rasterize.js";
import { Spans, masksOf } from "./spans.js";

/**
 * Write `annotations/instances.json`; with a split, `annotations/train.json` and `annotations/val.json`.
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
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readCoco(document, builder) {
  const images = new Map(), categories = readClasses(document.categories, builder);
  for (const image of listOf(document.images)) {
    if (typeof image?.file_name !== "string") {
      builder.warn("an image without file_name was left out");
      continue;
    }
    const add = () => images.set(image.id, builder.image(image.file_name, image.width, image.height));
    await builder.addOrWarn("an image", add);
  }
  for (const annotation of listOf(document.annotations)) {
    const image = images.get(annotation?.image_id), category = categories.get(annotation?.category_id);
    if (!image || category === undefined) {
      builder.warn(`an annotation was left out: its ${image ? "category" : "image"} is not in the file`);
      continue;
    }
    const name = typeof annotation.name === "string" ? annotation.name : category;
    const score = Number.isFinite(annotation.score) ? annotation.score : null;
    const add = () => builder.add(image, maskOf(annotation, image, builder), { category, name, score }, "annotation");
    await builder.addOrWarn(`${image.name}: an annotation`, add);
  }
}

/** Return an annotation's mask, or its box if it has none. */
function maskOf({ segmentation, bbox }, { width, height }, builder) {
  if (Array.isArray(segmentation?.counts) || typeof segmentation?.counts === "string") {
    if (segmentation.size?.[0] !== height || segmentation.size?.[1] !== width) {
      throw new FormatError(`the mask has another size than the image, ${width} x ${height}`);
    }
    return Spans.decode(segmentation);
  }
  const polygons = Array.isArray(segmentation) && typeof segmentation[0] === "number" ? [segmentation] : segmentation;
  if (Array.isArray(polygons) && polygons.length) {
    for (const polygon of polygons) {
      if (!Array.isArray(polygon) || polygon.length < 6 || polygon.length % 2 || !polygon.every(Number.isFinite)) {
        throw new FormatError("a polygon must be a list of at least three pairs of numbers");
      }
    }
    return rasterize(polygons, "edges", width, height);
  }
  if (!Array.isArray(bbox) || bbox.length !== 4 || !bbox.every(Number.isFinite)) throw new FormatError("it has neither a mask nor a box");
  builder.warn("an annotation has only a box: its mask is the whole box");
  const [x, y, w, h] = bbox;
  return rasterize([[x, y, x + w, y, x + w, y + h, x, y + h]], "edges", width, height);
}

function listOf(value) {
  return Array.isArray(value) ? value : [];
}
