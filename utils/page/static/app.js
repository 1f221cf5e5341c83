// The page's controller: connects the session, the screen and the service.

import { isUncertain } from "./candidates.js";
import { ClassList } from "./classlist.js";
import { Connection } from "./connection.js";
import { connect, currentLabel } from "./controls.js";
import { TooLarge } from "./copies.js";
import { element } from "./dom.js";
import { connectExports } from "./exportdialog.js";
import { curlCommand, pythonCode, saveCutout, saveMask } from "./exports.js";
import { listed, withoutKnown } from "./found.js";
import { ImageList, thumbnailOf } from "./imagelist.js";
import { Mend } from "./mend.js";
import {
  announce,
  askForKey,
  hideError,
  hint,
  nextPaint,
  showBusy,
  showError,
  showLatency,
  showResult,
  showSaved,
  showWeights,
} from "./notices.js";
import { isEmpty, isMarked, isPrompted } from "./objects.js";
import { prepareImage } from "./picture.js";
import { Preview } from "./preview.js";
import { Project, total } from "./project.js";
import { ask } from "./question.js";
import { Screen } from "./screen.js";
import { Refine } from "./refine.js";
import { isAway, RemoteImage, Service } from "./service.js";
import { Session } from "./session.js";
import { importFiles, saveCoco } from "./transfer.js";

/** Delay before the busy indicator appears. */
const BUSY_DELAY_MS = 400;
/** Warnings about opened files that are displayed. */
const MAX_WARNINGS = 5;
/** Following images that are encoded in advance. */
const IMAGES_AHEAD = 2;

const service = new Service((seconds) => showBusy(`The service is busy. Retrying in ${seconds} s`));
const project = new Project(showSaved);
const screenActions = {
  select,
  rename: (id, name) => setDisplay(id, { name }),
  hide: (id) => setDisplay(id, { hidden: !session.objects.list.find((object) => object.id === id).hidden }),
  remove: (id) => edit((objects) => objects.remove(id)),
  removeMark: (index) => replace((objects) => objects.removeMark(index)),
};
const screen = new Screen(screenActions, (classId) => project.categoryOf(classId));
const imageList = new ImageList({ open: openImage, remove: removeImage });
const classList = new ClassList({ add: addClass, choose: chooseClass, rename: renameClass, remove: removeClass });
const mend = new Mend(screen, { edit, leaveClicks: () => hover(null) });
const connection = new Connection(hideError);
const refine = new Refine(screen.stage);
const preview = new Preview(screen.stage, (reason) => connection.away || hint(reason));

/** The response of `/info`. */
let info = null;
/** @type {Session | null} the open image */
let session = null;
/** Number of images requested so far: only the latest one is opened. */
let openCount = 0;
/** The image that `openImage` was called for last; if no other one was requested since, it is open, or will be. */
let latest = { request: 0, id: null };
/** @type {Map<number, Promise<any>>} responses of `/embed` for images that are not open yet, by id */
const encodedAhead = new Map();

// ---- images

/**
 * Add images to the project and open the first of them.
 * @param {{file: Blob | Promise<Blob>, name: string, allowCopy?: boolean}[]} sources allowCopy: a large image is added as a copy
 * @param {(() => void) | null} retry repeats a failed download
 */
async function addImages(sources, retry = null) {
  const request = ++openCount;
  hideError();
  const tooLarge = [];
  let offer = null, opened = false;
  for (const [index, source] of sources.entries()) {
    const { name, allowCopy = false } = source;
    showBusy(sources.length > 1 ? `Adding image ${index + 1} of ${sources.length}` : "Loading the image");
    try {
      await Promise.all([started, loaded]); // for the limits, and for where images are kept
      const image = await prepareImage(await source.file, name, info?.limits, allowCopy);
      if (sources.length === 1 && request !== openCount) return; // another image was chosen instead
      const added = await project.add({ ...image, name, thumbnail: await thumbnailOf(image) });
      imageList.show(project.images, session?.image.id ?? null);
      if (!opened && request === openCount) openImage(added);
      opened = true;
    } catch (error) {
      if (sources.length === 1 && request !== openCount) return;
      if (error instanceof TooLarge) {
        offer ??= error;
        tooLarge.push({ ...source, allowCopy: true });
      } else {
        handleError(error, retry && (() => request === openCount && retry()));
      }
    }
  }
  showBusy("");
  if (offer) {
    const more = tooLarge.length > 1 ? ` ${tooLarge.length - 1} more are too large.` : "";
    showError(new Error(offer.message + more), () => addImages(tooLarge), { label: offer.offer });
  }
  if (sources.length > 1) announce(`${project.images.length} images in the project`);
  if (session) encodeAhead(session);
}

function openSample({ file }) {
  addImages([{ file: service.sample(file), name: file }], () => openSample({ file }));
}

/**
 * Open an image of the project and close the current one.
 * @param {import("./store.js").StoredImage} image
 */
async function openImage(image) {
  const request = ++openCount;
  latest = { request, id: image.id };
  if (image.id === session?.image.id) return;
  mend.settle();
  connection.drop(everything);
  hideError();
  try {
    const work = await project.work(image.id);
    if (request !== openCount) return;
    project.flush();
    session?.close();
    session = new Session(service, image, project.classId);
    if (work) session.restore(work);
    project.imageId = image.id;
    project.saveProject();
    showProgress(false);
    const current = session, encoded = embed();
    preview.use(session);
    refine.use(session);
    imageList.show(project.images, image.id);
    showClasses();
    await screen.use(session);
    segmentAll();
    encodeAhead(current);
    await encoded;
  } catch (error) {
    if (request !== openCount) return;
    showBusy("");
    handleError(error, null);
  }
}

/** Open the image that is `step` after the open one, or the one being opened, in the list. */
function moveBy(step) {
  const from = latest.request === openCount ? latest.id : session?.image.id;
  const at = project.images.findIndex(({ id }) => id === from);
  const image = project.images[at + step];
  if (image && at >= 0) openImage(image);
}

async function removeImage(image) {
  const count = total(image.counts);
  const objects = `${count} ${count === 1 ? "object" : "objects"}`;
  if (count && !window.confirm(`Remove ${image.name} and its ${objects}? This cannot be undone.`)) return;
  const at = project.images.indexOf(image), isOpen = image.id === session?.image.id;
  await project.remove(image.id);
  const next = project.images[Math.min(at, project.images.length - 1)];
  if (isOpen) closeImage();
  if (isOpen && next) await openImage(next);
  imageList.show(project.images, session?.image.id ?? null);
  showClasses();
}

function closeImage() {
  mend.settle();
  openCount++;
  session?.close();
  session = null;
  preview.use(null);
  refine.use(null);
  screen.close();
}

async function clearProject() {
  if (!window.confirm(`Remove all ${project.images.length} images with their objects from this browser? This cannot be undone.`)) return;
  closeImage();
  await project.clear();
  encodedAhead.clear();
  imageList.show([], null);
  element("choose").focus();
}

/** Add annotations, or a saved project, to the project. */
async function openAnnotations(files) {
  const open = session?.image;
  mend.settle();
  showBusy("Reading the files");
  let problem = null, result = "";
  try {
    await loaded;
    await project.flush();
    if (open) closeImage();
    const { images, objects, warnings } = await importFiles(project, files);
    result = `${objects} ${objects === 1 ? "object" : "objects"} in ${images} ${images === 1 ? "image" : "images"} added`;
    const more = warnings.length > MAX_WARNINGS ? `; and ${warnings.length - MAX_WARNINGS} more` : "";
    if (!objects && !images && !warnings.length) problem = new Error("The files have no objects for the images of this project.");
    if (warnings.length) problem = new Error(warnings.slice(0, MAX_WARNINGS).join("; ") + more);
  } catch (error) {
    problem = error;
  }
  showBusy("");
  imageList.show(project.images, null);
  showClasses();
  const image = open ?? project.images[0];
  if (image) openImage(image);
  hint(result);
  if (problem) handleError(problem, null);
}

/** Encode the images after the open one, one after another, while it stays open. */
async function encodeAhead(current) {
  await current.embedding.catch(() => {});
  const at = project.images.indexOf(current.image);
  for (const image of project.images.slice(at + 1, at + 1 + IMAGES_AHEAD)) {
    if (current !== session) return;
    if (!encodedAhead.has(image.id)) encodedAhead.set(image.id, service.embed(new RemoteImage(() => image.file)));
    await encodedAhead.get(image.id).catch(() => encodedAhead.delete(image.id));
  }
}

/** Encode the image ahead of the first click. */
async function embed() {
  const current = session;
  const began = performance.now();
  element("about").textContent = "";
  showBusy("Encoding the image");
  try {
    const embedding = await current.embed(encodedAhead.get(current.image.id));
    if (current !== session) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    element("about").textContent = `${current.about}, encoded in ${seconds} s with ${embedding.engine.encoder}`;
    showWeights(embedding.weights);
    if (isEmpty(current.objects.active) && element("hint").hidden) hint("Click an object, or drag a box around it");
  } catch (error) {
    if (current === session) handleError(error, retryAll);
  } finally {
    if (current === session) showBusy("");
  }
}

function retryAll() {
  embed();
  segmentAll();
}

// ---- masks

/**
 * Request and paint an object's mask, unless it is already known or requested.
 * @param {import("./objects.js").ImageObject} object
 * @param {number} [clickTime] time stamp of the click, to measure the latency
 */
async function segment(object, clickTime) {
  const current = session;
  const { masks, objects } = current;
  if (!isMarked(object) || masks.get(object) || masks.isPending(object)) return;
  const busyTimer = setTimeout(() => current === session && element("busy").hidden && showBusy("Segmenting"), BUSY_DELAY_MS);
  screen.stage.view.setAttribute("aria-busy", "true");
  try {
    const milliseconds = await masks.request(object);
    if (current !== session) return;
    screen.paint();
    const painted = await nextPaint(); // the panel can wait for the mask
    if (clickTime !== undefined) showLatency(painted - clickTime, milliseconds);
    if (current !== session) return;
    screen.showPanel();
    saveSoon(current);
    const { id, candidate } = objects.active;
    if (id !== object.id || candidate !== object.candidate) return;
    showResult(object.name, masks.get(object));
    if (!candidate && isUncertain(object, masks)) compare();
  } catch (error) {
    if (current === session) handleError(error, segmentAll);
  } finally {
    clearTimeout(busyTimer);
    if (current === session && !masks.pending) {
      screen.stage.view.setAttribute("aria-busy", "false");
      showBusy("");
    }
  }
}

/** Request the candidates of the active object's mask. */
function compare() {
  segment({ ...session.objects.active, candidate: 1 });
}

/** Request all missing masks. */
function segmentAll() {
  for (const object of session.objects.list) segment(object);
}

async function everything() {
  const [current, bar] = [session, element("progress-bar")];
  if (!current || !element("progress").hidden) return;
  bar.removeAttribute("value");
  showProgress(true);
  try {
    const report = (done, total) => Object.assign(bar, { max: total, value: done });
    const found = await current.everything(Number(element("grid").value), report);
    if (current !== session) return;
    const added = withoutKnown(found, current), dropped = found.length - added.length;
    edit((objects) => objects.addAll(added.map((mask) => ({ found: mask }))));
    const rest = dropped ? ` (without ${dropped} already here)` : "";
    const result = added.length ? `${added.length} objects found${rest}: click one to select it` : `No new objects found${rest}`;
    hint(result);
    announce(result);
  } catch (error) {
    if (current === session) handleError(error, everything);
  } finally {
    if (current === session) {
      showProgress(false);
      showBusy("");
    }
  }
}

// ---- user actions

/** Change the objects, show the result and request the active object's mask. */
function edit(change, clickTime) {
  if (!session) return;
  mend.settle();
  const { objects, masks } = session;
  change(objects);
  masks.abortStale(objects.list);
  // First of all the request: the screen is updated while the service works.
  segment(objects.active, clickTime);
  preview.clear();
  screen.show();
  saveSoon(session);
}

/**
 * Change the active object's clicks; ask before this replaces a mask edited by hand.
 * @param {(objects: import("./objects.js").Objects, isNew: boolean) => void} change isNew: for a new object
 * @param {{time?: number, canAdd?: boolean, verb?: string}} [options] time: as in `edit`; canAdd: the change can be one for a new object; verb: what happens to the edits
 */
function replace(change, { time, canAdd = false, verb = "Replace" } = {}) {
  if (!session.objects.active.drawn) {
    edit((objects) => change(objects, false), time);
    return;
  }
  ask(`This object was edited by hand. ${verb} the edits?`, {
    [verb]: () => edit((objects) => change(objects, false)),
    ...(canAdd && { "Keep and add a new object": () => edit((objects) => change(objects, true)) }),
    "Cancel": () => screen.show(),
  });
}

/** Undo or redo, and request all missing masks. */
function restore(change) {
  edit(change);
  if (session) segmentAll();
}

function setDisplay(id, fields) {
  session.objects.setDisplay(id, fields);
  saveSoon(session);
  screen.show();
}

/** Save the changes, and show the numbers of objects. */
function saveSoon(changed) {
  project.changed(changed);
  imageList.showCount(changed.image);
  showClasses();
}

function select(id) {
  if (id === session.objects.active.id) return;
  mend.settle();
  session.objects.select(id);
  saveSoon(session);
  screen.show();
  segment(session.objects.active);
}

/** Return the object that a plain click selects: one found by "Segment everything", while the active object is empty. */
function selectable(x, y) {
  const { masks, objects } = session;
  const object = isEmpty(objects.active) ? masks.objectAt(x, y, listed(objects)) : null;
  return object?.found ? object : null;
}

function click(x, y, { label, newObject, pick, time }) {
  if (mend.tool !== "click") {
    mend.press(x, y, label === 0);
    return;
  }
  hint("");
  const { masks, objects } = session;
  const object = pick ? masks.objectAt(x, y, listed(objects)) : newObject || label === 0 ? null : selectable(x, y);
  if (object) {
    select(object.id);
    screen.highlight(null);
  } else if (pick) {
    hint("No object there");
  } else {
    const point = { x, y, label: label ?? currentLabel() };
    if (newObject) edit(() => objects.addPoint(point, true), time);
    else replace((_, isNew) => objects.addPoint(point, isNew), { time, canAdd: true });
    if (!isMarked(objects.active)) hint("Now click the object itself, or drag a box around it");
  }
}

/** Ask for the mask of a press that may become a click. */
function press(x, y, { label, newObject, pick }) {
  const { objects } = session;
  if (pick || (objects.active.drawn && !newObject) || (!newObject && label !== 0 && selectable(x, y))) return;
  preview.press(objects.clicked({ x, y, label: label ?? currentLabel() }, newObject));
}

function box(corners, time) {
  if (corners && corners[0] < corners[2] && corners[1] < corners[3]) replace((objects, isNew) => objects.addBox(corners, isNew), { time, canAdd: true });
  else screen.stage.drawBox(session.objects.active.box);
}

function clear() {
  replace((objects) => objects.clear(), { verb: "Discard" });
}

function hover(pixel) {
  if (mend.tool !== "click") pixel = null;
  const object = pixel ? selectable(pixel.x, pixel.y) : null;
  screen.highlight(object?.id ?? null);
  const isShown = pixel && !object && !isMarked(session.objects.active) && element("hover").checked;
  preview.at(isShown ? session.objects.clicked({ ...pixel, label: 1 }, false) : null);
}

/** Refine the active object in the visible part of the image, and what is clicked from now on; or stop that. */
function refineHere() {
  const part = refine.toggle(), { active } = session.objects;
  if (part && isPrompted(active) && !active.found && !active.drawn) edit((objects) => objects.change({ part }));
}

function setCandidate(number, time) {
  if (!element("candidates").disabled) replace((objects) => objects.change({ candidate: number, drawn: null }), { time });
}

function saveAll() {
  const omitted = saveCoco(session, project.classes);
  if (omitted) hint(`Saved without ${omitted} ${omitted === 1 ? "object that has" : "objects that have"} no mask`);
}

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code);
    hint("Copied");
  } catch {
    showError(new Error("The browser denied access to the clipboard."));
  }
}

// ---- classes

function showClasses() {
  classList.show(project.classes, project.classId, (id) => project.countOf(id));
}

/** Use a class for new objects. */
function useClass(id) {
  project.classId = id;
  project.saveProject();
  if (session) {
    session.objects.classId = id;
    if (isEmpty(session.objects.active)) setDisplay(session.objects.active.id, { classId: id });
  }
  showClasses();
}

/** Use a class for the active object and for new ones. */
function chooseClass(id) {
  useClass(id);
  if (!session) return;
  if (session.objects.active.classId !== id) edit((objects) => objects.change({ classId: id }));
  hint(`Class: ${project.categoryOf(id).name}`);
}

function addClass(name) {
  useClass(project.addClass(name).id);
}

function renameClass(id, name) {
  project.renameClass(id, name);
  project.saveProject();
  showClasses();
  if (session) screen.showPanel();
}

async function removeClass(id) {
  const count = project.countOf(id), { name } = project.categoryOf(id);
  const other = project.classes.find((category) => category.id !== id);
  if (count && !window.confirm(`Delete the class ${name}? Its ${count} objects become ${other.name}.`)) return;
  const replacement = await project.removeClass(id, session);
  if (session) {
    session.objects.replaceClass(id, replacement);
    session.objects.classId = project.classId;
    saveSoon(session);
    screen.showPanel();
  }
  project.saveProject();
  showClasses();
}

// ---- progress and errors

function showProgress(running) {
  element("progress").hidden = !running;
  element("everything").disabled = running;
}

function handleError(error, retry) {
  if (error.name === "AbortError") return;
  if (isAway(error)) {
    if (!connection.away || element("alert").hidden) showError(error, () => connection.check(), { note: "This page reconnects by itself." });
    connection.lose(retry);
    return;
  }
  if (error.status !== 401) {
    const tryAgain = () => {
      hideError();
      retry();
    };
    showError(error, retry && tryAgain);
    return;
  }
  if (service.key) showError(error);
  askForKey((key) => {
    service.key = key;
    hideError();
    if (session) retryAll();
  });
}

async function start() {
  try {
    info = await service.info();
    if (info.weights) showWeights(info.weights);
    if (info.key_needed && !service.key) handleError({ status: 401 }, null);
  } catch (error) {
    handleError(error, start);
  }
}

/** Open what the browser has stored. */
async function resume() {
  await loaded;
  imageList.show(project.images, null);
  showClasses();
  const image = project.images.find(({ id }) => id === project.imageId) ?? project.images[0];
  if (image && !session) await openImage(image);
}

connect(screen.stage, {
  addImages,
  moveBy,
  clearProject,
  chooseClassByNumber: (number) => {
    if (project.classes[number - 1]) chooseClass(project.classes[number - 1].id);
  },
  openSample,
  rejectFiles: () => showError(new Error("This is not an image. Choose a PNG, JPEG or WebP file.")),
  leave: (event) => project.atRisk && event.preventDefault(),
  press,
  click,
  box,
  hover,
  mend,
  clearPreview: () => preview.clear(),
  setCandidate,
  nextCandidate: () => setCandidate((session.objects.active.candidate + 1) % 4, performance.now()),
  undo: () => mend.undo() || restore((objects) => objects.undo()),
  redo: () => mend.redo() || restore((objects) => objects.redo()),
  clear,
  escape: () => mend.escape() || clear(),
  add: () => edit((objects) => objects.add()),
  remove: () => edit((objects) => objects.remove(objects.active.id)),
  everything,
  changeList: () => screen.show(),
  removeFound: () => edit((objects) => objects.removeFound()),
  stopEverything: () => session.stopEverything(),
  saveMask: () => saveMask(session).catch(handleError),
  saveCutout: () => saveCutout(session, screen.stage.picture).catch(handleError),
  saveCoco: saveAll,
  copyPython: () => copy(pythonCode(session)),
  copyCurl: () => copy(curlCommand(session, service.key !== "")),
  setClip: (clip) => edit((objects) => objects.change({ clip })),
  compare,
  refineHere,
  changeOptions: () => restore(() => {}),
  hideError,
});
connectExports(project, {
  openImage: () => session.image,
  onError: (error) => handleError(error, null),
  importFiles: openAnnotations,
});
document.addEventListener("visibilitychange", () => project.flush());
const started = start(), loaded = project.load();
resume();
