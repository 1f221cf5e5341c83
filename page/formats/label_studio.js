// Label Studio: tasks in JSON, with brush masks, and the labelling configuration of their project.
//
// The images are those of a local files storage: `images` in the folder that
// LOCAL_FILES_DOCUMENT_ROOT names. Label Studio keeps `meta` of regions: its text is the object's
// name. It has no subsets; a split is the field `subset` of each task's data, which its Data
// Manager can filter.

import { decodeBrush, encodeBrush } from "./brush_rle.js";
import { numberOf, numbersOf } from "./numbers.js";
import { FormatError, cleanPath, climbs, idOf, imagePaths, isWhole, textOf } from "./project.js";
import { boxPolygon, rasterize, rasterizeBox } from "./rasterize.js";
import { masksOf } from "./spans.js";
import { escapeXml, parseXml } from "./xml.js";

/** File of the labelling configuration. */
export const LABEL_CONFIG = "label_config.xml";
const BRUSH = "brush", IMAGE = "image", LABELS = "labels";
const LOCAL_FILES = "/data/local-files/?d=";
/** The class of regions without a label. */
const UNNAMED = "object";
const READ_SHAPES = ["brush", "polygon", "rectangle"];
/** Results that say something about a region, whose place they repeat, or about the whole task. */
const ABOUT_REGIONS = ["choices", "datetime", "number", "pairwise", "ranker", "rating", "relation", "taxonomy", "textarea"];
/** What Label Studio puts before the name of an uploaded file. */
const UPLOAD_PREFIX = /(?<=^|\/)[0-9a-f]{8}-(?=[^/]*$)/;
const IMAGE_FILE = /\.(png|jpe?g|webp|avif|gif|bmp|tiff?|hei[cf])$/i;
/** An address: its scheme and host, its path, and its query. */
const ADDRESS = /^(?:[a-z][a-z\d+.-]*:\/\/[^/?#]*)?([^?#]*)(?:\?([^#]*))?/i;
const LOCAL_FILE = /(?:^|&)d=([^&]*)/;
/** Vertical spans of all brush masks in a file: more would take seconds, and a gigabyte. */
const MAX_SPANS = 20_000_000;

// ---- writing

/**
 * Write `tasks.json` and the labelling configuration.
 * @type {import("./project.js").Writer}
 */
export function writeLabelStudio(project) {
  imagePaths(project);
  const names = new Map(project.classes.map(({ id, name }) => [id, name]));
  const tasks = project.images.map((image) => ({
    data: {
      [IMAGE]: LOCAL_FILES + `images/${cleanPath(image.name)}`.split("/").map(encodeURIComponent).join("/"),
      ...(image.subset && { subset: image.subset }),
    },
    annotations: [{ result: masksOf(image).map(({ object, spans }, index) => ({
      id: `object${index + 1}`,
      type: "brushlabels",
      from_name: BRUSH,
      to_name: IMAGE,
      original_width: image.width,
      original_height: image.height,
      image_rotation: 0,
      value: { format: "rle", rle: encodeBrush(spans), brushlabels: [names.get(object.categoryId)] },
      meta: { text: [object.name], ...(object.score !== null && { score: object.score }) },
    })) }],
  }));
  return [
    { path: LABEL_CONFIG, content: labelConfig(project.classes) },
    { path: "tasks.json", content: JSON.stringify(tasks) },
  ];
}

/** Return the labelling configuration; `category` is where Label Studio's exports have a class's id. */
function labelConfig(classes) {
  const labels = classes.map(({ id, name, color }) => (
    `    <Label value="${escapeXml(name)}" background="${color}" category="${id}"/>`
  ));
  return [
    "<View>",
    `  <Image name="${IMAGE}" value="$${IMAGE}" zoom="true"/>`,
    `  <BrushLabels name="${BRUSH}" toName="${IMAGE}">`,
    ...labels,
    "  </BrushLabels>",
    "</View>",
    "",
  ].join("\n");
}

// ---- reading

/**
 * Read the classes in a labelling configuration.
 * @param {string} text
 * @param {import("./project.js").ProjectBuilder} builder
 */
export function readLabelConfig(text, builder) {
  for (const label of parseXml(text).getElementsByTagName("Label")) {
    const name = textOf(label.getAttribute("value"));
    const color = label.getAttribute("background") ?? undefined;
    if (name !== null) builder.category(name, { id: numberOf(label.getAttribute("category")), color });
  }
}

/** Return whether a JSON document looks like tasks of Label Studio: one, or a list. */
export function isLabelStudio(document) {
  const isTask = (task) => Array.isArray(task?.annotations ?? task?.completions) || "annotations" in Object(task);
  if (!Array.isArray(document)) return isTask(document) && "data" in document;
  return document.length > 0 && document.every(isTask);
}

/**
 * Read tasks of Label Studio: the regions of all annotations that were not skipped.
 * @param {any} document
 * @param {import("./project.js").ProjectBuilder} builder
 */
export async function readLabelStudio(document, builder) {
  const reader = new TaskReader(builder);
  for (const [index, task] of (Array.isArray(document) ? document : [document]).entries()) {
    const place = `task ${idOf(task.id) ?? index}`;
    await builder.addOrWarn(place, async () => {
      for (const annotation of listOf("annotations" in task ? task.annotations : task.completions, "annotations")) {
        await builder.addOrWarn(`${place}: an annotation`, async () => {
          const fields = objectOf(annotation, "an annotation");
          if (!fields.was_cancelled) await reader.read(task, listOf(fields.result, "result"), place);
        });
      }
    });
  }
}

class TaskReader {
  #spansLeft = MAX_SPANS;

  /** @param {import("./project.js").ProjectBuilder} builder */
  constructor(builder) {
    this.builder = builder;
  }

  /** Read an annotation. Results with one id are a region and its labels, in any order. */
  async read(task, results, place) {
    /** @type {{key: string, what: string, result: any}[]} */
    const regions = [];
    /** @type {Map<string, {what: string, lists: unknown[]}>} */
    const labels = new Map();
    for (const [index, result] of results.entries()) {
      const id = idOf(result?.id), key = id === null ? `index ${index}` : `id ${id}`, what = `${place}, region ${id ?? index}`;
      await this.builder.addOrWarn(what, () => {
        const { type, value } = objectOf(result, "a result");
        if (typeof type !== "string") throw new FormatError("its type is missing, or no text");
        if (ABOUT_REGIONS.includes(type)) return;
        objectOf(value, "its value");
        // Regions of texts and sounds have none of these.
        const isRegion = ["x", "points", "rle"].some((name) => name in value) || "original_width" in result;
        if (type === LABELS && isRegion) {
          const entry = labels.get(key) ?? { what, lists: [] };
          entry.lists.push(value.labels);
          labels.set(key, entry);
        } else if (isRegion || READ_SHAPES.includes(shapeOf(type))) {
          regions.push({ key, what, result });
        }
      }, null);
    }
    for (const { key, what, result } of regions) {
      const { type, value } = result, lists = [value[type], ...(labels.get(key)?.lists ?? [])];
      const found = await this.#attempt(what, () => this.#imageOf(task, result));
      if (found) await this.builder.addOrWarn(what, () => this.#add(found, result, classOf(lists)), found);
    }
    const keys = new Set(regions.map(({ key }) => key));
    for (const [key, { what }] of labels) {
      if (!keys.has(key)) this.builder.warn(`${what} was left out: its labels have no region in the file`);
    }
    if (!results.length) this.#addEmpty(task);
  }

  /** Return what an action returns, or null after a FormatError, which becomes a warning. */
  async #attempt(what, action) {
    let found = null;
    await this.builder.addOrWarn(what, () => (found = action()));
    return found;
  }

  /** Add the image of a task whose annotation says that there are no objects. */
  #addEmpty({ data }) {
    const { known } = this.builder;
    for (const value of Object.values(Object(data))) {
      if (typeof value !== "string" || !namesAFile(value)) continue;
      const { address, name } = this.#placeOf(value);
      const size = climbs(name) ? null : known.find(name) ?? known.byEnding(name);
      if (size) this.builder.imageByEnding(address, name, size.width, size.height);
    }
  }

  #add(image, { type, value, meta, ...result }, category) {
    const shape = shapeOf(type);
    if (!READ_SHAPES.includes(shape)) {
      throw new FormatError(`${type} is not read: only brush masks, polygons and rectangles are`);
    }
    const turn = numberIn(result.image_rotation ?? 0, "image_rotation");
    if (turn % 360) throw new FormatError(`the image was turned by ${turn} degrees in Label Studio`);
    const spans = this.#maskOf(shape, value, image);
    const name = textOf([meta?.text].flat()[0]) ?? category;
    this.builder.add(image, spans, { category, name, score: numberOf(meta?.score) }, "region");
  }

  #maskOf(shape, value, image) {
    const { width, height } = image;
    if (shape === "brush") {
      if (value.format !== "rle") throw new FormatError("its mask is not in the format rle");
      const spans = decodeBrush(value.rle, image, this.#spansLeft);
      this.#spansLeft -= spans.columns.length;
      return spans;
    }
    if (shape === "polygon") {
      const pairs = Array.isArray(value.points) ? value.points.map(numbersOf) : [];
      if (pairs.length < 3 || !pairs.every((pair) => pair?.length === 2)) {
        throw new FormatError("a polygon must have at least three points of two numbers");
      }
      const points = pairs.flatMap(([x, y]) => [x * width / 100, y * height / 100]);
      return rasterize([points], "edges", width, height);
    }
    const [x, y, w, h] = ["x", "y", "width", "height"].map((side) => numberIn(value[side], side));
    const rotation = numberIn(value.rotation || 0, "rotation");
    this.builder.warn("a rectangle is only a box: its mask is the whole box");
    const corners = [x, y, x + w, y + h].map((part, axis) => part * (axis % 2 ? height : width) / 100);
    if (rotation % 360 === 0) return rasterizeBox(corners, width, height);
    return rasterize([turned(boxPolygon(corners), rotation)], "edges", width, height);
  }

  /** Return the image of a result, which has the size that the result tells. */
  #imageOf({ data }, result) {
    const { original_width: width, original_height: height } = result;
    const { address, name } = this.#addressOf(objectOf(data, "data"), result, width, height);
    if (climbs(name)) throw new FormatError(`its path ${name} leads out of the data set's folder`);
    return this.builder.imageByEnding(address, name, width, height);
  }

  /** Return the address in the data that `to_name` names, or else the only one that fits. */
  #addressOf(data, { to_name, item_index }, width, height) {
    const value = typeof to_name === "string" && Object.hasOwn(data, to_name) ? data[to_name] : null;
    if (Array.isArray(value)) {
      const index = item_index ?? (value.length === 1 ? 0 : null);
      if (index === null) throw new FormatError("several images are in a list, and item_index is missing");
      if (!isWhole(index, 0, value.length - 1)) throw new FormatError(`item_index must be from 0 to ${value.length - 1}`);
      if (typeof value[index] !== "string") throw new FormatError("the address of its image is no text");
      return this.#placeOf(value[index]);
    }
    if (typeof value === "string" && namesAFile(value)) return this.#placeOf(value);
    const texts = Object.values(data).filter((text) => typeof text === "string" && namesAFile(text));
    const places = [...new Map(texts.map((text) => [text, this.#placeOf(text)])).values()].filter(({ name }) => !climbs(name));
    const { known } = this.builder, sizeOf = ({ name }) => known.find(name) ?? known.byEnding(name);
    const here = [...new Map(places.filter(sizeOf).map((place) => [sizeOf(place).name, place])).values()];
    const candidates = here.length ? here : places;
    const isFitting = (place) => sizeOf(place)?.width === numberOf(width) && sizeOf(place)?.height === numberOf(height);
    const fitting = candidates.length > 1 && width && height ? candidates.filter(isFitting) : candidates;
    if (!candidates.length) throw new FormatError("the data of its task name no image");
    if (fitting.length !== 1) {
      const count = fitting.length ? "several" : "none";
      throw new FormatError(`several images are in the task's data, and ${count} of them fit`);
    }
    return fitting[0];
  }

  /** Return the path of an address, and this path without what Label Studio has put before the name. */
  #placeOf(address) {
    const { known } = this.builder;
    // The name may have a character that means something in addresses.
    const path = known.hasName(address) ? address : pathOf(address).replaceAll("\\", "/");
    return { address: path, name: known.hasName(path) ? path : path.replace(UPLOAD_PREFIX, "") };
  }
}

/** Return the kind of shape of a type of results, such as rectangle of rectanglelabels. */
function shapeOf(type) {
  return type.endsWith(LABELS) ? type.slice(0, -LABELS.length) : type;
}

/** Return the first of a region's labels. */
function classOf(lists) {
  const given = lists.filter((labels) => labels !== null && labels !== undefined);
  if (!given.every((labels) => Array.isArray(labels) && labels.every((label) => typeof label === "string"))) {
    throw new FormatError("its labels must be a list of texts");
  }
  return textOf(given.flat()[0]) ?? UNNAMED;
}

/** Return the corners of a rectangle that is turned clockwise about its first corner, by degrees. */
function turned(corners, degrees) {
  const [x0, y0] = corners, angle = (degrees * Math.PI) / 180;
  const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
  return corners.map((_, at) => {
    const x = corners[at - (at % 2)] - x0, y = corners[at - (at % 2) + 1] - y0;
    return at % 2 ? y0 + x * sine + y * cosine : x0 + x * cosine - y * sine;
  });
}

/** Return the path in an address, or in the query of an address of local files. */
function pathOf(address) {
  const [, path, query] = ADDRESS.exec(address), local = LOCAL_FILE.exec(query ?? "");
  const encoded = local ? local[1] : path;
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
}

/** Return whether an address ends with the name of an image file. */
function namesAFile(address) {
  return IMAGE_FILE.test(pathOf(address)) || IMAGE_FILE.test(address);
}

/** Return a number in per cent or degrees. */
function numberIn(value, name) {
  const number = numberOf(value);
  if (number === null) throw new FormatError(`its ${name} must be a number`);
  return number;
}

function objectOf(value, what) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new FormatError(`${what} must be an object of JSON`);
  }
  return value;
}

function listOf(value, what) {
  if (!Array.isArray(value)) throw new FormatError(`${what} must be a list`);
  return value;
}
