// A project: images with annotated objects. What all formats write and read.

import { colourOf } from "../colours.js";
import { numberOf } from "./numbers.js";

/**
 * @typedef {{size: [number, number], counts: string}} Rle COCO's compressed RLE; size: height, width
 * @typedef {{id: number, name: string, color: string}} Category id: from 1; color: `#rrggbb`
 * @typedef {object} Annotation
 * @property {number} categoryId
 * @property {string} name
 * @property {Rle} rle
 * @property {number | null} score
 * @property {true} [isBox] the mask is the whole of a box that has none
 * @property {string} [by] name of the annotator
 * @property {string[]} [review] why the mask may be wrong
 * @typedef {{name: string, width: number, height: number}} ImageSize name: file name, possibly with a folder
 * @typedef {ImageSize & {objects: Annotation[], subset?: "train" | "val", isIncomplete?: boolean}}
 *   AnnotatedImage
 *   subset: of a data set with a split; isIncomplete: an object of it could not be read
 * @typedef {{classes: Category[], images: AnnotatedImage[]}} Project
 * @typedef {{path: string, content: string | Uint8Array<ArrayBuffer> | Blob}} ProjectFile
 * @callback Writer writes a project in a format
 * @param {Project} project
 * @param {{tolerance?: number}} [options] tolerance: of polygons, in pixels
 * @returns {ProjectFile[] | Promise<ProjectFile[]>}
 */

export const MAX_IMAGE_PIXELS = 400_000_000;
export const MAX_IMAGE_SIDE = 65_535;
const MAX_IMAGES = 20_000;
const MAX_OBJECTS = 200_000;
export const MAX_CATEGORY_ID = 65_535;
export const MAX_CLASSES = 1000;

/** The folder of a subset in the path of an annotation file. */
export const SUBSET_FOLDER = /(^|\/)(?:train|val)\//;

/** A file or project that cannot be read or written; the message is a sentence for the user. */
export class FormatError extends Error {}

/** Return a path relative to its root: forward slashes, without `.` and `..`, drive and leading slash. */
export function cleanPath(path) {
  const parts = path.replaceAll("\\", "/").split("/");
  return parts.filter((part) => part && part !== "." && part !== ".." && !/^[a-z]:$/i.test(part)).join("/");
}

/** Return whether a path leads out of the folder that it begins in. */
export function climbs(path) {
  return path.replaceAll("\\", "/").split("/").includes("..");
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

/** Return whether a width or height is missing, or 0, which some programs write in its place. */
function isUnknown(side) {
  return side === null || side === undefined || side === "" || numberOf(side) === 0;
}

/** Return whether a value is a whole number from `min` to `max`. */
export function isWhole(value, min, max) {
  return Number.isInteger(value) && value >= min && value <= max;
}

/** Return a colour in lower case; if it is not valid, the colour of the class with this id. */
export function colourOr(colour, id) {
  return typeof colour === "string" && /^#[0-9a-f]{6}$/i.test(colour) ? colour.toLowerCase() : colourOf(id);
}

/** Return the file of the classes, for formats that have no ids. */
export function classesFile({ classes }) {
  return { path: "classes.json", content: JSON.stringify(classes) };
}

/**
 * Read the classes in a file, or in a member of a document.
 * @param {any} classes
 * @param {ProjectBuilder} builder
 * @returns {Map<string, string | null>} names by the ids in the file; null: several have this id
 */
export function readClasses(classes, builder) {
  const names = new Map();
  for (const category of Array.isArray(classes) ? classes : []) {
    const name = textOf(category?.name);
    if (name === null) {
      builder.warn("a category without a name was left out");
      continue;
    }
    builder.category(name, category);
    const id = idOf(category.id);
    if (names.has(id) && names.get(id) !== name) {
      builder.warn(`several categories have the id ${id}`);
      names.set(id, null);
    } else if (id !== null) {
      names.set(id, name);
    }
  }
  return names;
}

/**
 * Return the text of an id, which some programs write as a number and others as text; null: it is
 * neither.
 */
export function idOf(id) {
  return typeof id === "string" || Number.isFinite(id) ? String(id) : null;
}

/** Return a name, also one that was written as a whole number; null: there is none. */
export function textOf(name) {
  const isText = (typeof name === "string" && name.trim() !== "") || Number.isInteger(name);
  return isText ? String(name) : null;
}

/** Return whether a value is a list of texts. */
export function isTextList(value) {
  return Array.isArray(value) && value.every((text) => typeof text === "string");
}

/**
 * Return whether a path begins at the root of a computer, or is an address: its folders are not
 * those of a data set.
 */
function isAbsolute(path) {
  return /^([/\\]|[a-z]:|[a-z][a-z\d+.-]*:\/\/)/i.test(path);
}

/** Images that annotation files may name with another folder or extension. */
export class KnownImages {
  /** @type {Map<string, ImageSize | null>} by path with and without extension; null: ambiguous */
  #byPath = new Map();
  /** @type {Map<string, ImageSize[]>} by file name without extension */
  #byStem = new Map();
  /** Whether files are in the folders of a split, train and val, which the images need not have. */
  isSplit = false;

  /** @param {ImageSize[]} sizes */
  constructor(sizes) {
    for (const image of sizes) {
      for (const key of pathKeys(image.name)) this.#byPath.set(key, this.#byPath.has(key) ? null : image);
    }
    this.#byStem = Map.groupBy(sizes, ({ name }) => stemOf(name));
  }

  /**
   * Return the image of a path, the most exact match first, or null. One of the folders may lack
   * leading parts. Of a path of another computer, the longest ending that fits one image decides.
   * @param {string} path
   */
  find(path) {
    if (isAbsolute(path)) return this.byEnding(path);
    return (this.isSplit && this.#find(path.replace(SUBSET_FOLDER, "$1"))) || this.#find(path);
  }

  /** Return the image with an annotation file's own name: of a.txt or a.png.txt, a.png; or null. */
  findOwn(file) {
    const withExtension = stem(file), image = this.find(withExtension);
    const isOwn = image && nameOf(image.name) === nameOf(withExtension);
    return this.find(file) ?? (isOwn ? image : null);
  }

  #find(path) {
    const [exact, withoutExtension] = pathKeys(path).map((key) => this.#byPath.get(key));
    if (exact || withoutExtension) return exact || withoutExtension;
    // In other folders, an image of the same name is another one.
    const folder = `/${folderOf(path)}`;
    const isCompatible = ({ name }) => {
      const other = `/${folderOf(name)}`;
      return folder === "/" || other === "/" || folder.endsWith(other) || other.endsWith(folder);
    };
    return nearest(this.#sameStem(path).filter(isCompatible), path);
  }

  /** Return whether there is an image at exactly this path. */
  has(path) {
    return Boolean(this.#byPath.get(pathKeys(path)[0]));
  }

  /** Return whether an image in any folder has the file name of a path. */
  hasName(path) {
    return this.#sameStem(path).some(({ name }) => nameOf(name) === nameOf(path));
  }

  /** Return whether several images have the name of a path, perhaps with other extensions. */
  isAmbiguous(path) {
    return this.#sameStem(path).length > 1;
  }

  /**
   * Return the image with a path's file name, and with most of its last folders, or null. The
   * extension may differ.
   */
  byEnding(path) {
    return nearest(this.#sameStem(path), path);
  }

  /** Return the images with a path's file name, but for its extension. */
  #sameStem(path) {
    return this.#byStem.get(stemOf(path)) ?? [];
  }
}

/**
 * Return the image that has most of a path's last folders, if there is one; the same file name
 * counts first.
 */
function nearest(images, path) {
  const sameName = images.filter(({ name }) => nameOf(name) === nameOf(path));
  const candidates = sameName.length ? sameName : images;
  const lengths = candidates.map(({ name }) => sharedEnding(name, path));
  const longest = Math.max(...lengths);
  const best = candidates.filter((_, index) => lengths[index] === longest);
  return best.length === 1 ? best[0] : null;
}

/** Return how many last folders two paths have in common. */
function sharedEnding(one, other) {
  const folders = (path) => folderOf(path).split("/").reverse();
  const others = folders(other);
  const firstOther = folders(one).findIndex((folder, index) => !folder || folder !== others[index]);
  return firstOther < 0 ? others.length : firstOther;
}

/**
 * Return what an image is looked up by first: its path, and its folder and name without the
 * extension.
 */
function pathKeys(path) {
  return [`path ${cleanPath(path).normalize("NFC")}`, `stem ${folderOf(path)}/${stemOf(path)}`];
}

/** Return the file name of a path. */
function nameOf(path) {
  return baseName(cleanPath(path)).normalize("NFC");
}

/** Return the file name of a path without its extension. */
function stemOf(path) {
  return stem(nameOf(path));
}

/** The folder of Pascal VOC's annotations: the images are beside it. */
const ANNOTATIONS_FOLDER = /(^|\/)Annotations\//;
/** Folders in which data sets keep either images or annotations. */
const KIND_FOLDERS = ["images", "labels", "JPEGImages", "Annotations", "annotations", "xmls"];

/** Return the folder of a path, with its last slash, or nothing. */
export function folderPath(path) {
  return path.slice(0, -baseName(path).length);
}

/** Return the folder of a path, without parts that say whether it has images or annotations. */
function folderOf(path) {
  return cleanPath(path).split("/").slice(0, -1).filter((part) => !KIND_FOLDERS.includes(part)).join("/").normalize("NFC");
}

/** Return a JSON document; throw a FormatError if it is not valid. */
export function parseJson(text, message = "not valid JSON") {
  try {
    return JSON.parse(text);
  } catch {
    throw new FormatError(message);
  }
}

/** A project that is being read from files, with warnings for what was not understood. */
export class ProjectBuilder {
  /** @type {Map<string, Category>} */
  #categories = new Map();
  /** @type {Set<number>} */
  #categoryIds = new Set();
  /** @type {Map<string, AnnotatedImage>} */
  #images = new Map();
  /** @type {Map<string, string>} path in the files by name of the known image */
  #claims = new Map();
  /** @type {Map<AnnotatedImage, Map<string, string>>} path of the annotation file by its extension */
  #files = new Map();
  #objects = 0;
  /** @type {Map<string, number>} occurrences by message */
  #warnings = new Map();
  /** @type {string[]} why files could not be read */
  failures = [];

  /** @param {KnownImages} known */
  constructor(known) {
    this.known = known;
  }

  /**
   * Return the id of the category with this name, which is added if it is new.
   * @param {string} name
   * @param {{id?: unknown, color?: unknown}} wanted id and colour of a new category; each is ignored if taken or invalid
   */
  category(name, wanted = {}) {
    let category = this.#categories.get(name);
    if (!category) {
      const taken = this.#categoryIds;
      if (taken.size >= MAX_CLASSES) throw new FormatError(`at most ${MAX_CLASSES} classes can be read`);
      let id = taken.size + 1;
      while (taken.has(id)) id++;
      if (isWhole(wanted.id, 1, MAX_CATEGORY_ID) && !taken.has(Number(wanted.id))) id = Number(wanted.id);
      category = { id, name, color: colourOr(wanted.color, id) };
      this.#categories.set(name, category);
      taken.add(id);
    }
    return category.id;
  }

  /**
   * Return the image with this name, which is added if it is new. A known image keeps its name.
   * @param {string} name path of the image, or of its annotation file
   * @param {unknown} [givenWidth] default: the known image's
   * @param {unknown} [givenHeight] likewise
   * @param {string} [folder] to which the path may be relative
   * @returns {AnnotatedImage}
   * @throws {FormatError} the size is invalid, or differs from the known image or another file
   */
  image(name, givenWidth, givenHeight, folder = "") {
    const isRelative = folder && !isAbsolute(name) && !this.known.has(name);
    const size = (isRelative && this.known.find(folder + name)) || this.known.find(name);
    if (!size && isAbsolute(name) && this.known.isAmbiguous(name)) {
      throw new FormatError(`several images have the name of ${name}`);
    }
    return this.#image(name, size, givenWidth, givenHeight);
  }

  /**
   * Return the known image with an annotation file's own name, or null.
   * @param {string} file
   * @throws {FormatError} as `image`
   */
  ownImage(file) {
    const size = this.known.findOwn(file);
    return size && this.#image(file, size, size.width, size.height);
  }

  /**
   * Return the image with the longest ending of an address's path. An unknown one is added.
   * @param {string} address its path
   * @param {string} name its path without what a program has put before the file name
   * @param {unknown} givenWidth default: the known image's
   * @param {unknown} givenHeight likewise
   * @throws {FormatError} as `image`, or several images fit
   */
  imageByEnding(address, name, givenWidth, givenHeight) {
    const size = this.known.find(name) ?? this.known.byEnding(name);
    if (!size && this.known.isAmbiguous(name)) {
      throw new FormatError(`several images have the name of ${name}`);
    }
    return this.#image(size ? address : name, size, givenWidth, givenHeight);
  }

  /** @param {ImageSize | null} size the known image */
  #image(name, size, givenWidth, givenHeight) {
    const path = cleanPath(size?.name ?? name);
    if (!path) throw new FormatError("an image has no file name");
    const width = numberOf(isUnknown(givenWidth) ? size?.width : givenWidth);
    const height = numberOf(isUnknown(givenHeight) ? size?.height : givenHeight);
    if (!isWhole(width, 1, MAX_IMAGE_SIDE) || !isWhole(height, 1, MAX_IMAGE_SIDE) || width * height > MAX_IMAGE_PIXELS) {
      throw new FormatError(`${path}: width and height must be whole numbers up to ${MAX_IMAGE_SIDE}, with at most ${MAX_IMAGE_PIXELS / 1e6} megapixels`);
    }
    const known = this.#images.get(path) ?? size;
    if (known && (known.width !== width || known.height !== height)) {
      throw new FormatError(`${path}: the size is ${width} x ${height} in the file, but should be ${known.width} x ${known.height}`);
    }
    const claim = this.#claims.get(path) ?? cleanPath(name);
    if (claim !== cleanPath(name)) throw new FormatError(`${claim} and ${cleanPath(name)} are both taken for the image ${path}`);
    this.#claims.set(path, claim);
    if (!this.#images.has(path)) {
      if (this.#images.size >= MAX_IMAGES) throw new FormatError(`at most ${MAX_IMAGES} images can be read`);
      const image = { name: path, width, height, objects: [] };
      this.#images.set(path, image);
    }
    return this.#images.get(path);
  }

  /**
   * Return the image of an annotation file that is about one image: the image that the file names,
   * or else the one with the file's own name. Programs write paths of the computer that they ran
   * on, and files are renamed.
   * @param {string} file path of the annotation file
   * @param {unknown} path path of the image, as the file has it
   * @param {unknown} width of the image; default: the known image's
   * @param {unknown} height likewise
   * @returns {AnnotatedImage}
   * @throws {FormatError} as `image`, or another file is already taken for the image's
   */
  imageOf(file, path, width, height) {
    const folder = folderPath(file).replace(ANNOTATIONS_FOLDER, "$1");
    const given = typeof path === "string" ? path : "", lastPart = baseName(cleanPath(given));
    const places = lastPart ? [folder + cleanPath(given), folder + lastPart] : [];
    const named = places.map((place) => this.known.find(place)).find(Boolean) ?? this.known.byEnding(given);
    const own = this.known.findOwn(file) ?? this.known.byEnding(file);
    let size = named ?? own;
    if (named && own && named !== own) {
      const isSide = (side, other) => isUnknown(side) || numberOf(side) === other;
      const fits = (image) => isSide(width, image.width) && isSide(height, image.height);
      size = fits(named) && !fits(own) ? named : own;
      if (fits(named) && fits(own)) {
        const taken = `its objects were added to ${own.name}, which has the file's own name`;
        this.warn(`${file} names ${named.name}: ${taken}`);
      }
    }
    const name = size?.name ?? folder + (lastPart || stem(baseName(file)));
    const image = this.#image(name, size, width, height);
    const files = this.#files.get(image) ?? new Map();
    const extension = file.slice(stem(file).length).toLowerCase();
    if (files.has(extension)) {
      const both = `${files.get(extension)} and ${file}`;
      throw new FormatError(`${both} are both taken for the image ${image.name}`);
    }
    this.#files.set(image, files.set(extension, file));
    return image;
  }

  /**
   * Add an object, unless its mask is empty.
   * @param {AnnotatedImage} image
   * @param {import("./spans.js").Spans} spans its mask
   * @param {{category: string, name: string, score: number | null, by?: string, review?: string[]}} fields category: name of
   *   its class; by: of the annotator; review: why the mask may be wrong
   * @param {string} kind what the format calls an object
   */
  add(image, spans, { category, name, score, by, review }, kind) {
    if (!spans.area) {
      this.leaveOut(image, `an empty ${kind} was left out`);
      return;
    }
    if (++this.#objects > MAX_OBJECTS) throw new FormatError(`at most ${MAX_OBJECTS} objects can be read`);
    const details = { ...(by && { by }), ...(review && { review }) };
    const object = { categoryId: this.category(category), name, rle: spans.encode(), score, ...details };
    image.objects.push(spans.isBox ? { ...object, isBox: true } : object);
  }

  /** Add a warning; equal warnings are counted. */
  warn(message) {
    this.#warnings.set(message, (this.#warnings.get(message) ?? 0) + 1);
  }

  /**
   * Add something by an action; a FormatError becomes a warning that it was left out.
   * @param {string} what
   * @param {() => unknown} action
   * @param {AnnotatedImage | null} image whose object it is
   */
  async addOrWarn(what, action, image = null) {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      this.leaveOut(image, `${what} was left out: ${error.message}`);
    }
  }

  /**
   * Add a warning that an object was left out; without it the image is incomplete, if it is not
   * null.
   */
  leaveOut(image, message) {
    this.warn(message);
    if (image) image.isIncomplete = true;
  }

  /** Return what an action returns, or null after a FormatError, which is noted as the failure of a file. */
  async attempt(path, action) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      this.failures.push(`${path}: ${error.message}`);
      return null;
    }
  }

  /** @returns {{project: Project, warnings: string[]}} classes sorted by id */
  build() {
    return {
      project: { classes: [...this.#categories.values()].sort((a, b) => a.id - b.id), images: [...this.#images.values()] },
      warnings: [
        ...this.failures,
        ...[...this.#warnings].map(([message, count]) => (count > 1 ? `${message} (${count} times)` : message)),
      ],
    };
  }
}
