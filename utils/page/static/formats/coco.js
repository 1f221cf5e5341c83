// COCO instances in JSON.
//
// Polygons have whole numbers at pixel edges and holes cut open by a seam: pycocotools fills them exactly as the mask at
// tolerance 0. supervision paints the right and lower edge too, so its masks are a pixel larger there; RLE is exact in both.

import { FormatError, cleanPath } from "./project.js";
import { polygonsOf } from "./polygons.js";
import { rasterize } from "./rasterize.js";
import { Spans, masksOf } from "./spans.js";

/**
 * Write `annotations/instances.json`.
 * @param {import("./project.js").Project} project
 * @param {{segmentation?: "rle" | "polygons", tolerance?: number}} [options]
 * @returns {import("./project.js").ProjectFile[]}
 */
export function writeCoco(project, { segmentation = "rle", tolerance } = {}) {
  const annotations = project.images.flatMap((image, index) =>
    masksOf(image).map(({ object, spans }) => {
      const [x0, y0, x1, y1] = spans.box;
      return {
        id: 0,
        image_id: index + 1,
        category_id: object.categoryId,
        segmentation: segmentation === "rle" ? object.rle : polygonsOf(spans, "edges", tolerance),
        area: spans.area,
        bbox: [x0, y0, x1 - x0, y1 - y0],
        iscrowd: object.iscrowd ?? 0,
        score: object.score ?? undefined,
        name: object.name,
      };
    })
  );
  annotations.forEach((annotation, index) => (annotation.id = index + 1));
  const document = {
    info: {},
    licenses: [],
    images: project.images.map(({ name, width, height }, index) => ({ id: index + 1, file_name: cleanPath(name), width, height })),
    categories: project.classes.map(({ id, name, color }) => ({ id, name, supercategory: "", color })),
    annotations,
  };
  return [{ path: "annotations/instances.json", content: JSON.stringify(document) }];
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
export function readCoco(document, builder) {
  const images = new Map(), categories = new Map();
  for (const category of listOf(document.categories)) {
    if (typeof category?.name !== "string") builder.warn("a category without a name was left out");
    else categories.set(category.id, { id: builder.category(category.name, category), name: category.name });
  }
  for (const image of listOf(document.images)) {
    if (typeof image?.file_name !== "string") {
      builder.warn("an image without file_name was left out");
      continue;
    }
    try {
      images.set(image.id, builder.image(image.file_name, image.width, image.height));
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      builder.warn(`an image was left out: ${error.message}`);
    }
  }
  for (const annotation of listOf(document.annotations)) {
    const image = images.get(annotation?.image_id), category = categories.get(annotation?.category_id);
    if (!image || !category) {
      builder.warn(`an annotation was left out: its ${image ? "category" : "image"} is not in the file`);
      continue;
    }
    try {
      const spans = maskOf(annotation, image, builder);
      if (!spans.area) {
        builder.warn(`an empty annotation was left out`);
        continue;
      }
      builder.add(image, {
        categoryId: category.id,
        name: typeof annotation.name === "string" ? annotation.name : category.name,
        rle: spans.encode(),
        score: Number.isFinite(annotation.score) ? annotation.score : null,
        iscrowd: annotation.iscrowd === 1 ? 1 : 0,
      });
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      builder.warn(`${image.name}: an annotation was left out: ${error.message}`);
    }
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
