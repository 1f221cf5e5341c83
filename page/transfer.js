// The project as files: annotations in other programs' formats, and the whole project to go on with elsewhere.

import { atFullSize, download, fileName } from "./exports.js";
import { isTrack } from "./follow.js";
import { writeCoco } from "./formats/coco.js";
import { FORMATS, readProject } from "./formats/formats.js";
import { imagesIn, PROJECT_FILE } from "./formats/images.js";
import { baseName, cleanPath, FormatError, isTextList, parseJson } from "./formats/project.js";
import { unzip } from "./formats/zip.js";
import { Spans } from "./formats/spans.js";
import { partsOf, splitImages, subsetFolder } from "./formats/split.js";
import { withoutIdentical } from "./identical.js";
import { thumbnailOf } from "./imagelist.js";
import { checkSameView, comparisonsOf, mergeImage, sameImage } from "./merging.js";
import { counted } from "./notices.js";
import { isMarked, markedIn, Objects } from "./objects.js";
import { isOptions, optionsOf } from "./options.js";
import { isOrientation } from "./orientation.js";
import { total } from "./project.js";
import { scaled } from "./regions.js";
import { Mask } from "./rle.js";
import { checkSize, uprightFile, viewOf } from "./view.js";
import { ask } from "./workers.js";

/**
 * @typedef {import("./project.js").Project} Project
 * @typedef {import("./store.js").StoredImage} StoredImage
 * @typedef {import("./formats/project.js").AnnotatedImage} AnnotatedImage
 * @typedef {import("./merging.js").MergedImage} MergedImage
 */

export { decidedText, decideMerge } from "./mergedialog.js";
export { FORMATS, imagesIn, partsOf };

const PROJECT_VERSION = 1;
const MAX_PROJECT_BYTES = 2 ** 30;

/**
 * Return the annotations of images in a format, as a ZIP file.
 * @param {Project} project
 * @param {StoredImage[]} images
 * @param {string} format a key of FORMATS
 * @param {boolean} withImages whether the ZIP has the image files too
 * @param {import("./formats/split.js").Split} split
 * @returns {Promise<Blob>}
 * @throws {Error} the project does not fit into the format
 */
export async function exportAnnotations(project, images, format, withImages, split) {
  if (!images.length) throw new FormatError("No image has objects or is marked as reviewed: there is nothing to export.");
  const annotated = [];
  for (const image of images) annotated.push(annotatedImage(image, await project.work(image.id)));
  splitImages(annotated, split);
  const { images: folder, hasFolders } = FORMATS[format];
  const pathOf = (image) => folder + (hasFolders ? subsetFolder(image) : "") + cleanPath(image.name);
  /** @type {import("./formats/project.js").ProjectFile[]} */
  const files = [];
  for (const [index, { name, ...image }] of (withImages ? images : []).entries()) {
    const { file, ...drawn } = image.original ?? image;
    files.push({ path: pathOf(annotated[index]), content: await uprightFile(file, { ...drawn, name }) });
  }
  // By id, so that the order in the list does not change the numbers in YOLO's labels.
  const classes = [...project.classes].sort((a, b) => a.id - b.id);
  return pack({ format, project: { classes, images: annotated }, files });
}

/**
 * Return a ZIP file with these files, and with a project in a format, which is a key of FORMATS.
 * @param {{format: string | null, project: import("./formats/project.js").Project | null, files: import("./formats/project.js").ProjectFile[]}} work
 */
function pack(work) {
  const worker = new Worker(new URL("packworker.js", import.meta.url), { type: "module" });
  return ask(worker, work).finally(() => worker.terminate());
}

/**
 * Save all objects of the open image as COCO JSON.
 * @param {import("./session.js").Session} session
 * @param {import("./project.js").Category[]} classes
 * @returns {number} number of marked objects omitted because they have no mask
 */
export function saveCoco(session, classes) {
  const image = annotatedImage(session.image, session.save());
  const [{ content }] = writeCoco({ classes, images: [image] });
  download(new Blob([content], { type: "application/json" }), fileName(session.name, "coco.json"));
  return session.objects.accepted.filter(isMarked).length - image.objects.length;
}

/**
 * @param {StoredImage} image
 * @returns {AnnotatedImage} the objects as they were displayed when they were saved; those on a copy at full size
 */
function annotatedImage(image, work) {
  const objects = new Map((work?.objects.now.list ?? []).map((object) => [object.id, object]));
  return {
    name: image.name,
    ...sizeOf(image),
    objects: (work?.shown ?? []).map(([id, record]) => {
      const { classId, name, by, review } = objects.get(id);
      const { size, counts, score } = atFullSize(Mask.fromRecord(record), image.original).record;
      return { categoryId: classId, name, rle: { size, counts }, score, ...(by && { by }), ...(review && { review }) };
    }),
  };
}

/** Return the size of an image in exported files: a copy has that of its original. @param {StoredImage} image */
function sizeOf({ width, height, original }) {
  return { width: original?.width ?? width, height: original?.height ?? height };
}

/**
 * Return the images with unfinished objects: the numbers of those without a mask, which datasets leave out, of those whose mask is
 * from before the last change of their marks, and of those to review.
 * @param {Project} project
 * @param {StoredImage[]} images
 */
export async function unfinished(project, images) {
  const found = [];
  for (const { id, name } of images) {
    const work = await project.work(id), shown = shownIn(work), outdated = new Set(work?.outdated);
    const objects = markedIn(work), masked = objects.filter((object) => shown.has(object.id));
    const numbers = {
      withoutMask: objects.length - masked.length,
      outdated: masked.filter((object) => outdated.has(object.id)).length,
      toReview: masked.filter((object) => object.review).length,
    };
    if (Object.values(numbers).some(Boolean)) found.push({ name, ...numbers });
  }
  return found;
}

/** Return the ids of the objects that are displayed with a mask. @param {any} work */
function shownIn(work) {
  return new Set(work?.shown.map(([id]) => id));
}

/**
 * Return the project with some of its images, by default all, their objects and prompts, as a ZIP file.
 * @param {Project} project
 * @param {StoredImage[]} [listed]
 * @returns {Promise<Blob>}
 */
export async function exportProject(project, listed = project.images) {
  const images = [], files = [];
  for (const [index, image] of listed.entries()) {
    const { name, width, height, orientation, counts, reviewed, file, original } = image;
    const path = `images/${index + 1}/${baseName(cleanPath(name))}`;
    const work = await project.work(image.id);
    const full = original && { path: `originals/${index + 1}/${baseName(cleanPath(name))}`, type: original.file.type };
    if (full) files.push({ path: full.path, content: original.file });
    const size = original && { width: original.width, height: original.height, orientation: original.orientation };
    const stored = { name, width, height, orientation, counts, reviewed, path, type: file.type };
    images.push({ ...stored, original: full ? { ...size, ...full } : null, work: work ? withoutHistory(work) : null });
    files.push({ path, content: file });
  }
  const { classes, removedClassId } = project;
  const document = { version: PROJECT_VERSION, classes, removedClassId, images };
  return pack({ format: null, project: null, files: [{ path: PROJECT_FILE, content: JSON.stringify(document) }, ...files] });
}

/**
 * Return a ZIP file with the project in parts, each a project as `exportProject` writes it, with all classes.
 * @param {Project} project
 * @param {{count: number, shared: number, seed: number}} parts as in `partsOf`
 * @returns {Promise<Blob>}
 * @throws {FormatError} there are too few images
 */
export async function exportParts(project, parts) {
  const files = [];
  for (const [index, images] of partsOf(project.images, parts).entries()) {
    files.push({ path: `part-${index + 1}.zip`, content: await exportProject(project, images) });
  }
  return pack({ format: null, project: null, files });
}

/** Return the work without its undo steps: as JSON, each of them would repeat all objects. */
function withoutHistory(work) {
  return { ...work, objects: { ...work.objects, past: [], future: [] } };
}

/**
 * Add what files contain to the project: a project that `exportProject` wrote, or annotations of images of the project.
 * @param {Project} project
 * @param {File[]} files
 * @param {(merged: MergedImage[]) => Promise<boolean>} decide sets the choices about images that the project and a saved
 *   project both have; false: nothing is changed
 * @returns {Promise<{images: number, objects: number, identical: number, warnings: string[], merged: MergedImage[]} | null>} what was
 *   added or merged; identical: objects left out because they are there already; null: nothing, by decision
 * @throws {FormatError} nothing in the files can be read
 */
export async function importFiles(project, files, decide) {
  if (files.length === 1 && /\.zip$/i.test(files[0].name)) {
    const entries = await unzip(files[0]);
    const main = entries.find(({ path }) => path === PROJECT_FILE);
    if (main) return importProject(project, main, entries, decide);
  }
  const sources = files.map((file) => ({ path: file.webkitRelativePath || file.name, content: file }));
  const sizes = project.images.map((image) => ({ ...sizeOf(image), name: image.name, image }));
  const { project: read, warnings } = await readProject(sources, sizes);
  // What is read has the names and sizes of the project's images.
  const byName = new Map(sizes.map(({ name, image }) => [cleanPath(name), image]));
  /** @type {[StoredImage, AnnotatedImage][]} */
  const found = [];
  for (const annotated of read.images) {
    const image = byName.get(annotated.name);
    if (annotated.objects.length && !image) {
      warnings.push(`${annotated.name}: add this image first; ${counted(annotated.objects.length, "object")} could not be imported`);
    } else if (annotated.objects.length) {
      found.push([image, annotated]);
    } else if (image && !annotated.isIncomplete && !total(image.counts)) {
      // A dataset that has an image without objects says that there are none.
      image.reviewed = true;
    }
  }
  const classIds = await project.addClasses(found.length ? read.classes : []);
  let objects = 0, images = 0, identical = 0;
  for (const [image, annotated] of found) {
    const added = annotated.objects.map(({ categoryId, name, rle, score, by, review, isBox }) => {
      const drawn = scaled(Mask.fromSpans(Spans.decode(rle), score), image), box = isBox ? boxOf(drawn) : null;
      return { drawn, classId: classIds.get(categoryId), ...(name && { name }), ...(by && { by }), ...(review && { review }), ...(box && { box }) };
    });
    const { kept, ...counts } = await addObjects(project, image, added);
    objects += kept.length;
    images += kept.length ? 1 : 0;
    identical += counts.identical;
    if (counts.similar) {
      warnings.push(`${image.name}: ${counted(counts.similar, "object")} added on top of almost equal ones of the same class. Undo on this image takes them back`);
    }
    if (counts.otherClass) {
      warnings.push(`${image.name}: ${counted(counts.otherClass, "object")} added with the mask of an object of another class`);
    }
  }
  await project.saveProject();
  return { images, objects, identical, warnings, merged: [] };
}

/** Return the box of an object whose mask is all of it, as a prompt, whose corners are pixels; null: it is too narrow for one. */
function boxOf({ box: [x0, y0, x1, y1] }) {
  return x1 - x0 > 1 && y1 - y0 > 1 ? [x0, y0, x1 - 1, y1 - 1] : null;
}

/** Add objects with masks to an image that is not open, but for those that it has already. Proposals with such masks are replaced. */
async function addObjects(project, image, added) {
  const work = (await project.work(image.id)) ?? { masks: [], shown: [], imageId: null };
  const objects = new Objects(project.classId);
  if (work.objects) objects.restore(work.objects);
  const shown = new Map(work.shown);
  const known = objects.list.map((object) => {
    const record = shown.get(object.id);
    return { ...object, mask: object.found ?? (record ? Mask.fromRecord(record) : object.drawn) };
  });
  const sorted = withoutIdentical(added, known.filter(({ mask }) => mask));
  if (!sorted.kept.length) return sorted;
  objects.addAll(sorted.kept, sorted.replaced);
  for (const { id, drawn } of objects.list) if (drawn && !shown.has(id)) shown.set(id, drawn.record);
  await project.saveWork(image, { ...work, objects: objects.save(), shown: [...shown] });
  return sorted;
}

/**
 * @param {Project} project
 * @param {any} main entry of PROJECT_FILE
 * @param {any[]} entries of the ZIP file
 * @param {(merged: MergedImage[]) => Promise<boolean>} decide
 */
async function importProject(project, main, entries, decide) {
  if (main.size > MAX_PROJECT_BYTES) throw new FormatError(`${PROJECT_FILE} has more than ${MAX_PROJECT_BYTES} bytes`);
  const document = parseJson(new TextDecoder().decode(await main.bytes()), `${PROJECT_FILE} is not valid JSON`);
  if (document.version !== PROJECT_VERSION || !Array.isArray(document.images) || !Array.isArray(document.classes)) {
    throw new FormatError(`${PROJECT_FILE} is not a project of this page`);
  }
  const files = new Map(entries.map((entry) => [entry.path, entry]));
  const entryOf = (path) => {
    const entry = files.get(path);
    if (!entry) throw new FormatError(`the ZIP file has no ${path}`);
    return entry;
  };
  const fileOf = async ({ path, type }) => new Blob([await entryOf(path).bytes()], { type });

  // Until the differences are decided, nothing is changed.
  /** @type {any[]} */
  const fresh = [];
  /** @type {MergedImage[]} */
  const merged = [];
  /** @type {string[]} */
  const warnings = [];
  for (const stored of document.images) {
    const { name, width, height, reviewed, original, work } = stored;
    const { size, bytes } = entryOf((original ?? stored).path);
    const taken = new Set(merged.map(({ image }) => image));
    const image = await sameImage(project.images.filter((own) => !taken.has(own)), { name, size, bytes });
    if (work) checkWork(name, width, height, work);
    if (!image) {
      fresh.push(stored);
      continue;
    }
    await checkSameView(image, stored);
    const names = new Map(document.classes.map((category) => [category.id, category.name]));
    const categoryOf = (id) => names.get(id) ?? project.categoryOf(project.classId).name;
    const comparisons = await comparisonsOf(project, image, work, categoryOf), shown = shownIn(work);
    const left = markedIn(work).filter((object) => !shown.has(object.id)).length;
    if (left) warnings.push(`${name}: ${counted(left, "object")} not merged for want of a mask. Open the image in that project to have masks made`);
    merged.push({ image, name: image.name, reviewed: reviewed === true, comparisons });
  }
  if (merged.length && !(await decide(merged))) return null;

  const ids = await project.addClasses(document.classes);
  project.removedClassId = Math.max(project.removedClassId, Number(document.removedClassId) || 0);
  for (const image of merged) await mergeImage(project, image);
  let objects = 0;
  for (const { name, width, height, reviewed, path, type, original, work, ...stored } of fresh) {
    const file = await fileOf({ path, type });
    const { picture, orientation, size } = await viewOf(file, { orientation: orientationOr(stored.orientation) });
    checkSize({ name, width, height }, size);
    const thumbnail = await thumbnailOf(picture, { width, height });
    const full = original && { width: original.width, height: original.height, orientation: orientationOr(original.orientation), file: await fileOf(original) };
    const image = await project.add({ name, width, height, orientation, file, thumbnail, original: full, reviewed: reviewed === true });
    if (!work) continue;
    for (const object of work.objects.now.list) object.classId = ids.get(object.classId) ?? project.classId;
    await project.saveWork(image, work);
    objects += work.shown.length;
  }
  await project.saveProject();
  return { images: fresh.length, objects, identical: 0, warnings, merged };
}

/** Return an orientation in a project file; undefined, for the rule, if there is none: earlier versions wrote none. */
function orientationOr(value) {
  return isOrientation(value) ? value : undefined;
}

/** @throws {FormatError} the work on an image in a project file is damaged */
function checkWork(name, width, height, work) {
  try {
    new Objects(1).restore(work.objects);
    for (const [, record] of work.shown) Spans.decode(record);
    if (!isOptions(work.options)) delete work.options;
    const options = optionsOf(work.masks);
    if (options && !isOptions(options)) throw new Error("a mask has no possible threshold");
    const ids = new Set(work.objects.now.list.map(({ id }) => id));
    if (!work.shown.every(([id]) => ids.has(id))) throw new Error("a mask has no object");
    for (const object of work.objects.now.list) {
      if (typeof object.by !== "string") delete object.by;
      if (!isTextList(object.review)) delete object.review;
      if (!isTrack(object.track)) delete object.track;
    }
    const sizes = work.shown.map(([, { size }]) => size);
    if (sizes.some(([h, w]) => h !== height || w !== width)) throw new Error("a mask has another size than the image");
  } catch (error) {
    throw new FormatError(`${PROJECT_FILE}: the objects of ${name} are damaged (${error.message})`);
  }
}
