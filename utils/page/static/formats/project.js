// A project: images with annotated objects. What all formats write and read.

import { COLOURS } from "../objects.js";

/**
 * @typedef {{size: [number, number], counts: string}} Rle COCO's compressed RLE; size: height, width
 * @typedef {{id: number, name: string, color: string}} Category id: from 1; color: `#rrggbb`
 * @typedef {object} Annotation
 * @property {number} categoryId
 * @property {string} name
 * @property {Rle} rle
 * @property {number | null} score
 * @property {0 | 1} [iscrowd]
 * @typedef {{name: string, width: number, height: number}} ImageSize name: file name, possibly with a folder
 * @typedef {ImageSize & {objects: Annotation[]}} AnnotatedImage
 * @typedef {{classes: Category[], images: AnnotatedImage[]}} Project
 * @typedef {{path: string, content: string | Uint8Array<ArrayBuffer> | Blob}} ProjectFile
 */

export const MAX_IMAGE_PIXELS = 400_000_000;
export const MAX_IMAGE_SIDE = 65_535;
const MAX_IMAGES = 20_000;
const MAX_OBJECTS = 200_000;
const MAX_CATEGORY_ID = 65_535;

/** A file or project that cannot be read or written; the message is a sentence for the user. */
export class FormatError extends Error {}

/** Return a path relative to its root: forward slashes, without `.` and `..`, drive and leading slash. */
export function cleanPath(path) {
  const parts = path.replaceAll("\\", "/").split("/");
  return parts.filter((part) => part && part !== "." && part !== ".." && !/^[a-z]:$/i.test(part)).join("/");
}

/** Return a path without its extension. */
export function stem(path) {
  return path.replace(/(?<=[^/])\.[^./]*$/, "");
}

/** Return the last part of a path. */
export function baseName(path) {
  return path.slice(path.lastIndexOf("/") + 1);
}

/**
 * Return each image of the project with the path of its annotation file, without extension.
 * @param {Project} project
 * @returns {{image: AnnotatedImage, path: string}[]}
 * @throws {FormatError} two images have the same path, on a file system that ignores case
 */
export function imagePaths(project) {
  const owners = new Map();
  return project.images.map((image) => {
    const path = stem(cleanPath(image.name));
    const key = path.normalize("NFC").toLowerCase();
    if (owners.has(key)) {
      throw new FormatError(`the images ${owners.get(key)} and ${image.name} need different names without their extensions: rename one of them`);
    }
    owners.set(key, image.name);
    return { image, path };
  });
}

/** Return whether a value is a whole number from `min` to `max`. */
export function isWhole(value, min, max) {
  return Number.isInteger(value) && value >= min && value <= max;
}

/** A project that is being read from files, with warnings for what was not understood. */
export class ProjectBuilder {
  /** @type {Map<string, Category>} */
  #categories = new Map();
  /** @type {Map<string, AnnotatedImage>} */
  #images = new Map();
  #objects = 0;
  /** @type {Map<string, number>} occurrences by message */
  #warnings = new Map();

  /**
   * Return the id of the category with this name, which is added if it is new.
   * @param {string} name
   * @param {{id?: unknown, color?: unknown}} wanted id and colour of a new category; each is ignored if taken or invalid
   */
  category(name, wanted = {}) {
    let category = this.#categories.get(name);
    if (!category) {
      const taken = new Set([...this.#categories.values()].map(({ id }) => id));
      let id = taken.size + 1;
      while (taken.has(id)) id++;
      if (isWhole(wanted.id, 1, MAX_CATEGORY_ID) && !taken.has(Number(wanted.id))) id = Number(wanted.id);
      if (id > MAX_CATEGORY_ID) throw new FormatError(`at most ${MAX_CATEGORY_ID} classes can be read`);
      const isColour = typeof wanted.color === "string" && /^#[0-9a-f]{6}$/i.test(wanted.color);
      category = { id, name, color: isColour ? String(wanted.color).toLowerCase() : COLOURS[(id - 1) % COLOURS.length] };
      this.#categories.set(name, category);
    }
    return category.id;
  }

  /**
   * Return the image with this name, which is added if it is new.
   * @returns {AnnotatedImage}
   * @throws {FormatError} the size is invalid or differs from that of the image in another file
   */
  image(name, width, height) {
    const path = cleanPath(name);
    if (!path) throw new FormatError("an image has no file name");
    if (!isWhole(width, 1, MAX_IMAGE_SIDE) || !isWhole(height, 1, MAX_IMAGE_SIDE) || width * height > MAX_IMAGE_PIXELS) {
      throw new FormatError(`${path}: width and height must be whole numbers up to ${MAX_IMAGE_SIDE}, with at most ${MAX_IMAGE_PIXELS / 1e6} megapixels`);
    }
    const known = this.#images.get(path);
    if (!known) {
      if (this.#images.size >= MAX_IMAGES) throw new FormatError(`at most ${MAX_IMAGES} images can be read`);
      const image = { name: path, width, height, objects: [] };
      this.#images.set(path, image);
      return image;
    }
    if (known.width !== width || known.height !== height) {
      throw new FormatError(`${path}: the size is ${width} x ${height} in one file and ${known.width} x ${known.height} in another`);
    }
    return known;
  }

  /**
   * @param {AnnotatedImage} image
   * @param {Annotation} annotation
   */
  add(image, annotation) {
    if (++this.#objects > MAX_OBJECTS) throw new FormatError(`at most ${MAX_OBJECTS} objects can be read`);
    image.objects.push(annotation);
  }

  /** Add a warning; equal warnings are counted. */
  warn(message) {
    this.#warnings.set(message, (this.#warnings.get(message) ?? 0) + 1);
  }

  /** @returns {{project: Project, warnings: string[]}} classes sorted by id */
  build() {
    return {
      project: { classes: [...this.#categories.values()].sort((a, b) => a.id - b.id), images: [...this.#images.values()] },
      warnings: [...this.#warnings].map(([message, count]) => (count > 1 ? `${message} (${count} times)` : message)),
    };
  }
}
