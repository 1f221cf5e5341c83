// The images of the project: added, opened, removed, and read from files with their objects.

import { showClasses } from "./classes.js";
import { TooLarge } from "./copies.js";
import { connection, project, screen, service, session, setSession } from "./current.js";
import { element } from "./dom.js";
import { everything, mend, preview, refine } from "./edits.js";
import { behindGate, gate } from "./gate.js";
import { withoutSimilar } from "./identical.js";
import { ImageList, thumbnailOf } from "./imagelist.js";
import { loadTransfer } from "./later.js";
import { announce, counted, hideError, hint, showBusy, showError, showProgress, showRange, showReport } from "./notices.js";
import { markedIn } from "./objects.js";
import { showOptions } from "./options.js";
import { prepareImage } from "./picture.js";
import { total } from "./project.js";
import { embed, handleError, info, segmentAll, start, whenSeenOtherwise } from "./requests.js";
import { SeenOtherwise } from "./seen.js";
import { RemoteImage } from "./service.js";
import { Session } from "./session.js";
import { chooseVersion } from "./versions.js";
import { checkSize, viewOf } from "./view.js";

const POLL_MS = 500;
/** Longest time that an image stays open for masks that are on their way. */
const MAX_WAIT_MS = 2000;
const OTHER_PICTURE = "No mask is shown on another picture. Use the service that its objects were made with, or export them, remove the image and add it again.";

export const imageList = new ImageList({ open: (image) => openImage(image), remove: removeImage });
/** Number of images requested so far: only the latest one is opened. */
export let openCount = 0;
/** The image that `openImage` was called for last; if no other one was requested since, it is open, or will be. */
let latest = { request: 0, id: null };
/** @type {Map<number, string | null>} the service's ids of images that it encodes ahead, by id; null: not sent yet */
const ahead = new Map();
/** Job of the last of them. */
let job = null;
/** Ids of images that were drawn anew as the service sees them. */
const redrawn = new Set();
/** @type {Map<number, number[] | null | undefined>} values that the service shows as 0 and 255 in images of 16 bits, by id, if it has other ones */
const ranges = new Map();

/**
 * Add images to the project and open the first of them. Files that cannot be added are listed.
 * @param {{file: Blob | Promise<Blob>, name: string, allowCopy?: boolean}[]} sources allowCopy: a large image is added as a copy
 * @param {(() => void) | null} retry repeats a failed download
 * @param {{added: number, problems: string[]}} before images and problems of the same list, of which these are the rest
 */
export async function addImages(sources, retry = null, before = { added: 0, problems: [] }) {
  const request = ++openCount;
  hideError();
  showReport("", []);
  const tooLarge = [], problems = [...before.problems], largeProblems = [];
  let offer = "", added = before.added, opened = false;
  for (const [index, source] of sources.entries()) {
    const { name, allowCopy = false } = source;
    showBusy(sources.length > 1 ? `Adding image ${index + 1} of ${sources.length}` : "Loading the image");
    try {
      const ready = await prepared(await source.file, name, allowCopy);
      if (retry && request !== openCount) return; // another image was chosen instead of a sample
      const image = await project.add(ready);
      added++;
      showImages();
      if (!opened && request === openCount) openImage(image);
      opened = true;
    } catch (error) {
      if (retry && request !== openCount) return;
      const problem = `${name}: ${error.message}`;
      if (error instanceof TooLarge) {
        offer = error.offer;
        tooLarge.push({ ...source, allowCopy: true });
        largeProblems.push(problem);
      } else if (retry) {
        handleError(error, () => request === openCount && retry());
      } else {
        problems.push(problem);
      }
    }
  }
  showBusy("");
  const label = tooLarge.length > 1 ? `Add ${tooLarge.length} smaller copies` : offer;
  const count = added + problems.length + tooLarge.length;
  // Another file may have been added meanwhile, whose report stays.
  if (request === openCount || problems.length || tooLarge.length) {
    showReport(
      count > 1 ? `${added} of ${count} files added` : "The file was not added",
      [...largeProblems, ...problems],
      tooLarge.length ? { label, act: () => addImages(tooLarge, null, { added, problems }) } : null,
    );
  }
  if (sources.length > 1) announce(`${project.images.length} images in the project`);
  if (session) encodeAhead(session);
}

/** Return what the project stores of an image file. */
async function prepared(file, name, allowCopy) {
  await Promise.all([started, loaded]); // for the limits, and for where images are kept
  const { picture, ...image } = await prepareImage(file, name, info?.limits, allowCopy);
  return { ...image, name, thumbnail: await thumbnailOf(picture, image) };
}

/** Show what the whole project has. */
function showProject() {
  element("one-click").checked = project.oneClick;
  showImages();
  showClasses();
}

function showImages() {
  imageList.show(project.images, session?.image.id ?? null);
  element("export-open").toggleAttribute("disabled", !project.images.length);
}

export function openSample(file) {
  addImages([{ file: service.sample(file), name: file }], () => openSample(file));
}

/**
 * Open an image of the project and close the current one.
 * @param {import("./store.js").StoredImage} image
 * @param {import("./identical.js").Added[]} copies objects to add, unless the image has them already
 * @param {(added: import("./identical.js").Added[]) => void} onAdded called once the image is open, with the objects that were added
 */
export async function openImage(image, copies = [], onAdded = () => {}) {
  const request = ++openCount;
  latest = { request, id: image.id };
  if (image.id === session?.image.id) return;
  hideError();
  await gate();
  if (request !== openCount) return;
  mend.settle();
  connection.drop(everything);
  try {
    const left = Promise.race([session?.masks.settled(), new Promise((resolve) => setTimeout(resolve, MAX_WAIT_MS))]);
    let free, work, view;
    do {
      free = gate(); // it may be closed while the image is read
      await free;
      [work, view] = await Promise.all([project.work(image.id), viewed(image), left]);
    } while (free !== gate());
    if (request !== openCount) return;
    checkSize(image, view.size);
    project.flush();
    const opened = new Session(service, image, view, project.classId);
    if (work) opened.restore(work);
    setSession(opened);
    showOptions(session.options);
    session.objects.useClasses(new Set(project.classes.map(({ id }) => id)));
    project.imageId = image.id;
    project.saveProject();
    if (copies.length) {
      // Their class may have been removed meanwhile.
      const known = copies.map((copy) => ({ ...copy, classId: project.categoryOf(copy.classId).id }));
      const added = withoutSimilar(known, session.annotated.map(({ object, mask }) => ({ ...object, mask })));
      session.objects.addAll(added);
      if (added.length) project.changed(session);
      onAdded(added);
    }
    showProgress(false);
    session.remote.id ??= ahead.get(image.id) ?? null;
    const current = session, encoded = embed();
    followSession();
    showImages();
    showClasses();
    await screen.use(session);
    segmentAll();
    encodeAhead(current);
    await encoded;
  } catch (error) {
    if (request !== openCount) return;
    showBusy("");
    handleError(error, null);
    if (error instanceof SeenOtherwise) closeImage();
  }
}

/**
 * Draw the open image as the service sees it, once, and unless it has masks that were made on the picture that is drawn.
 * @param {SeenOtherwise} error with which an answer was refused
 */
async function drawAsSeen({ message, view }) {
  const { image, objects } = session, isTurned = view?.orientation !== session.view.orientation;
  const hasMasks = session.annotated.length > 0 || objects.list.some(({ found, drawn }) => found ?? drawn);
  if (!view || redrawn.has(image.id) || (isTurned && hasMasks)) {
    showError(new SeenOtherwise(view ? `${message} ${OTHER_PICTURE}` : message, null));
    return;
  }
  redrawn.add(image.id);
  ranges.set(image.id, view.range);
  closeImage();
  if (isTurned) {
    const { width, height, orientation } = view, { picture } = await viewOf(image.file, view);
    await project.redraw(image, { width, height, orientation, thumbnail: await thumbnailOf(picture, view) });
    imageList.showThumbnail(image);
  }
  hint(`${message} It is drawn as the service sees it`);
  await openImage(image);
}

/** Open the image that is `step` after the open one, or the one being opened, in the list. */
export function moveBy(step) {
  const from = latest.request === openCount ? latest.id : session?.image.id;
  const { listed } = imageList, at = listed.findIndex(({ id }) => id === from);
  const image = listed[at + step];
  if (image && at >= 0) openImage(image);
}

/** Mark the open image as reviewed, or no longer. */
export function toggleReviewed() {
  if (!session) return;
  const { image } = session;
  image.reviewed = !image.reviewed;
  imageList.showState(image);
  hint(image.reviewed ? "Reviewed: datasets have this image, also without objects" : "No longer reviewed");
  project.saveProject();
}

async function removeImage(image) {
  const work = await project.work(image.id), count = Math.max(total(image.counts), markedIn(work).length);
  if (count && !window.confirm(`Remove ${image.name} and its ${counted(count, "object")}? This cannot be undone.`)) return;
  await gate();
  const at = project.images.indexOf(image), isOpen = image.id === session?.image.id;
  await project.remove(image.id);
  const next = project.images[Math.min(at, project.images.length - 1)];
  if (isOpen) closeImage();
  if (isOpen && next) await openImage(next);
  showImages();
  showClasses();
}

function closeImage() {
  mend.settle();
  openCount++;
  setSession(null);
  followSession();
  screen.close();
}

export async function clearProject() {
  if (!window.confirm(`Remove all ${project.images.length} images with their objects from this browser? This cannot be undone.`)) return;
  await gate();
  closeImage();
  await project.clear();
  cancelAhead();
  showProject();
  element("choose").focus();
}

function followSession() {
  preview.use(session);
  refine.use(session);
  showRange(session?.view.range);
}

/** Add annotations, with the images in their ZIP files, or a saved project to the project. */
export async function openAnnotations(files) {
  let problem = null, result = "";
  try {
    const { decidedText } = await loadTransfer();
    const { added, problems } = await addMissingImages(files);
    const read = await importWhileClosed(files);
    const { images, objects, identical, warnings, merged } = read ?? { images: 0, objects: 0, identical: 0, warnings: [], merged: [] };
    result = `${counted(objects, "object")} in ${counted(images, "image")} added`;
    if (identical) result += `; ${identical === 1 ? "1 identical one was" : `${identical} identical ones were`} there already`;
    if (!read) result = "Nothing was merged";
    else if (merged.length) result = `${images ? `${result}; ` : ""}${decidedText(merged)}`;
    if (added) result = `${counted(added, "image")} added; ${result}`;
    warnings.unshift(...problems);
    if (read && !added && !objects && !images && !identical && !merged.length && !warnings.length) problem = new Error("The files have no objects for the images of this project.");
    showReport(result, warnings);
  } catch (error) {
    problem = error;
  }
  showBusy("");
  showImages();
  showClasses();
  const image = lastOpened(), isOtherChosen = latest.request === openCount; // it waits for the end of the reading
  if (image && !isOtherChosen) openImage(image);
  hint(result);
  if (problem) handleError(problem, null);
}

/** Import files after earlier ones, and let no image be opened or removed until then. */
function importWhileClosed(files) {
  return behindGate(async () => {
    const { importFiles } = await loadTransfer();
    showBusy("Reading the files");
    closeImage();
    await project.flush();
    return await importFiles(project, files, decide);
  });
}

/** Let the user decide about images that a saved project shares with the open one. */
async function decide(merged) {
  const { decideMerge } = await loadTransfer();
  showBusy("");
  element("welcome").hidden = true; // the open image comes back
  const isDecided = await decideMerge(merged);
  if (isDecided) showBusy("Merging the projects");
  return isDecided;
}

/** Add the images in ZIP files that the project lacks; those above the limits as copies. */
async function addMissingImages(files) {
  showBusy("Reading the files");
  await loaded;
  const { imagesIn } = await loadTransfer(), missing = await imagesIn(files, project.images), problems = [];
  for (const [index, { name, load }] of missing.entries()) {
    showBusy(`Adding image ${index + 1} of ${missing.length}`);
    try {
      await project.add(await prepared(await load(), name, true));
    } catch (error) {
      problems.push(`${name}: ${error.message}`);
    }
  }
  return { added: missing.length - problems.length, problems };
}

/** Use the version of the model that was selected: for the open image, further clicks, and the next images. */
export function changeVersion() {
  chooseVersion();
  cancelAhead();
  followSession();
  if (!session) return;
  session.forget();
  hideError();
  embed();
  encodeAhead(session);
}

/** Have the images after the open one encoded, one after another, while it stays open. */
async function encodeAhead(current) {
  await current.embedding.catch(() => {});
  const { listed } = imageList;
  for (const image of listed.slice(listed.indexOf(current.image) + 1)) {
    if (current !== session) return;
    if (ahead.has(image.id) || image.id === latest.id) continue; // the one that is being opened is sent already
    ahead.set(image.id, null);
    try {
      const queued = await service.embedAhead(new RemoteImage(() => image.file));
      job = queued;
      ahead.set(image.id, queued.images[0].image_id);
      while (current === session && (await service.job(queued)).queued) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    } catch {
      ahead.delete(image.id);
      return; // the service is away or full: opening the image encodes it
    }
  }
}

/** Return what to draw of an image of the project. @param {import("./store.js").StoredImage} image */
export function viewed({ id, file, orientation }) {
  return viewOf(file, { orientation, range: ranges.get(id) });
}

/**
 * Return an image of the project as the service knows it.
 * @param {import("./store.js").StoredImage} image
 * @param {import("./view.js").View} view what is drawn of it
 */
export function remoteOf({ id, file, name, width, height }, { orientation, range }) {
  return new RemoteImage(() => file, { name, width, height, orientation, range }, ahead.get(id) ?? null);
}

function cancelAhead() {
  ahead.clear();
  if (job) service.job(job, "DELETE").catch(() => {});
}

/** Open what the browser has stored. */
async function resume() {
  await loaded;
  showProject();
  const image = lastOpened();
  if (image && !session) await openImage(image);
}

/** @returns {import("./store.js").StoredImage | undefined} the image that was opened last, or the first one */
function lastOpened() {
  return project.images.find(({ id }) => id === project.imageId) ?? project.images[0];
}

const started = start(), loaded = project.load();
project.onCounts = (image) => {
  imageList.showState(image);
  showClasses();
};
whenSeenOtherwise(drawAsSeen);
addEventListener("pagehide", cancelAhead);
resume();
