// The merge of a saved project into the open one: images that both have, and the objects on them.

import { compared } from "./agreement.js";
import { FormatError } from "./formats/project.js";
import { Spans } from "./formats/spans.js";
import { NUMBERED_NAME, Objects } from "./objects.js";
import { isOrientation } from "./orientation.js";
import { scaled } from "./regions.js";
import { Mask } from "./rle.js";
import { viewOf } from "./view.js";

/**
 * @typedef {import("./project.js").Project} Project
 * @typedef {import("./store.js").StoredImage} StoredImage
 * @typedef {import("./agreement.js").Comparison} Comparison
 * @typedef {import("./agreement.js").Labelled} Labelled
 * @typedef {{image: StoredImage, name: string, reviewed: boolean, comparisons: Comparison[]}} MergedImage an image of both
 *   projects; reviewed: there; the choices of the comparisons decide about its objects
 */

/**
 * Return the image of the project that has the same file, byte for byte, of several the one with the same name.
 * @param {StoredImage[]} images of the project, without those that are taken
 * @param {{name: string, size: number, bytes: () => Promise<Uint8Array>}} file
 * @returns {Promise<StoredImage | undefined>}
 */
export async function sameImage(images, { name, size, bytes }) {
  const candidates = images.filter((image) => fileOf(image).size === size);
  candidates.sort((one, other) => Number(other.name === name) - Number(one.name === name));
  if (!candidates.length) return undefined;
  const wanted = await bytes();
  for (const image of candidates) {
    const own = new Uint8Array(await fileOf(image).arrayBuffer());
    if (own.every((value, index) => value === wanted[index])) return image;
  }
  return undefined;
}

/** Return the file that was added: of a copy, the original. @param {StoredImage} image */
function fileOf({ file, original }) {
  return original?.file ?? file;
}

/**
 * Refuse to compare two images of the same file of which one is drawn in another way.
 * @param {StoredImage} image
 * @param {{name: string, width: number, height: number, orientation?: number, original: any}} other as the project file has it
 * @throws {FormatError} the objects are on another picture
 */
export async function checkSameView(image, other) {
  const [own, given] = [image.original ?? image, other.original ?? other];
  const turns = [];
  for (const { orientation } of [own, given]) {
    turns.push(isOrientation(orientation) ? orientation : (await viewOf(fileOf(image))).orientation);
  }
  if (own.width === given.width && own.height === given.height && turns[0] === turns[1]) return;
  throw new FormatError(`${other.name} is turned in another way in the project file: remove it from one of the projects, and add it again`);
}

/**
 * Return the displayed objects of the work on an image.
 * @param {any} work undefined: none
 * @param {(classId: number) => string} categoryOf name of a class
 * @param {{width: number, height: number}} size of the masks that are returned
 * @returns {Labelled[]}
 */
function labelled(work, categoryOf, size) {
  if (!work) return [];
  const objects = new Map(work.objects.now.list.map((object) => [object.id, object]));
  return work.shown.map(([id, record]) => {
    const { name, classId, by, review } = objects.get(id);
    const score = Number.isFinite(record.score) ? record.score : null;
    const mask = scaled(Mask.fromSpans(Spans.decode(record), score), size);
    return { id, name, category: categoryOf(classId), by, review, mask };
  });
}

/**
 * Compare the work on an image in the open project with the work in a project file.
 * @param {Project} project
 * @param {StoredImage} image
 * @param {any} work in the file, or null
 * @param {(classId: number) => string} categoryOf name of a class in the file
 */
export async function comparisonsOf(project, image, work, categoryOf) {
  const mine = labelled(await project.work(image.id), (id) => project.categoryOf(id).name, image);
  return compared(mine, labelled(work, categoryOf, image));
}

/**
 * Change the objects of an image that is not open as the choices say, in one step that Undo takes back.
 * @param {Project} project it has the classes of both versions
 * @param {MergedImage} merged
 */
export async function mergeImage(project, { image, reviewed, comparisons }) {
  image.reviewed ||= reviewed;
  const ids = new Map(project.classes.map(({ id, name }) => [name, id]));
  /** @param {Labelled} object */
  const fieldsOf = ({ mask, category, name, by, review }) => ({
    drawn: mask,
    classId: ids.get(category) ?? project.classId,
    by,
    review,
    track: undefined,
    ...(!NUMBERED_NAME.test(name) && { name }),
  });
  const changed = new Map(), removed = new Set(), added = [];
  for (const { mine, theirs, choice } of comparisons) {
    if (mine && theirs && choice === "theirs") {
      changed.set(mine.id, { ...fieldsOf(theirs), found: null, points: [], box: null, part: null, candidate: 0, settled: 0 });
    } else if (theirs && (choice === "both" || (!mine && choice === "theirs"))) {
      added.push(fieldsOf(theirs));
    } else if (!theirs && choice === "theirs") {
      removed.add(mine.id);
    }
  }
  if (!changed.size && !removed.size && !added.length) return;
  const work = (await project.work(image.id)) ?? { masks: [], shown: [], imageId: null };
  const objects = new Objects(project.classId);
  if (work.objects) objects.restore(work.objects);
  objects.reconcile({ changed, removed, added });
  const shown = new Map(work.shown.filter(([id]) => !changed.has(id) && !removed.has(id)));
  for (const { id, drawn } of objects.list) if (drawn && !shown.has(id)) shown.set(id, drawn.record);
  // Of two overlapping objects, the one that is lower in the list lies on top.
  const order = new Map(objects.list.map(({ id }, index) => [id, index]));
  const sorted = [...shown].sort(([one], [other]) => order.get(one) - order.get(other));
  const outdated = (work.outdated ?? []).filter((id) => !changed.has(id));
  await project.saveWork(image, { ...work, objects: objects.save(), shown: sorted, outdated });
}
