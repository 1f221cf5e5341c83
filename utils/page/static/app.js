// The page's controller: connects the session, the screen and the service.

import { connect, currentLabel } from "./controls.js";
import { element } from "./dom.js";
import { curlCommand, pythonCode, saveCoco, saveCutout, saveMask } from "./exports.js";
import { Mend } from "./mend.js";
import { afterPaint, announce, askForKey, hideError, hint, showBusy, showError, showLatency, showResult, showWeights } from "./notices.js";
import { isEmpty, isMarked } from "./objects.js";
import { prepareImage } from "./picture.js";
import { Preview } from "./preview.js";
import { ask } from "./question.js";
import { Screen } from "./screen.js";
import { Service } from "./service.js";
import { Session } from "./session.js";

/** Delay before the busy indicator appears. */
const BUSY_DELAY_MS = 400;

const service = new Service((seconds) => showBusy(`The service is busy. Retrying in ${seconds} s`));
const screen = new Screen({
  select,
  rename: (id, name) => setDisplay(id, { name }),
  hide: (id) => setDisplay(id, { hidden: !session.objects.list.find((object) => object.id === id).hidden }),
  remove: (id) => edit((objects) => objects.remove(id)),
  removeMark: (index) => replace((objects) => objects.removeMark(index)),
});
const mend = new Mend(screen, { edit, leaveClicks: () => hover(null) });
const preview = new Preview(screen.stage, (reason) => {
  element("hover").checked = false;
  hint(reason);
});

/** The response of `/info`. */
let info = null;
/** @type {Session | null} the open image */
let session = null;
/** Number of images requested so far: only the latest one is opened. */
let openCount = 0;

// ---- images

/**
 * Open an image and close the current one.
 * @param {Blob | Promise<Blob>} source
 * @param {string} name of the file
 */
async function open(source, name) {
  mend.settle();
  if (session?.unsavedCount > 1 && !window.confirm(`Discard ${session.unsavedCount} unsaved objects?`)) return;
  const request = ++openCount;
  hideError();
  showBusy("Loading the image");
  try {
    const image = await prepareImage(await source, name, info?.limits);
    if (request !== openCount) return;
    session?.close();
    session = new Session(service, name, image);
    showProgress(false);
    const encoded = embed();
    preview.use(session);
    await screen.use(session);
    await encoded;
  } catch (error) {
    if (request !== openCount) return;
    showBusy("");
    handleError(error, null);
  }
}

/** Encode the image ahead of the first click. */
async function embed() {
  const current = session;
  const began = performance.now();
  element("about").textContent = "";
  showBusy("Encoding the image");
  try {
    const embedding = await current.embed();
    if (current !== session) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    element("about").textContent = `${current.width} × ${current.height} pixels, encoded in ${seconds} s with ${embedding.engine.encoder}`;
    showWeights(embedding.weights);
    if (isEmpty(current.objects.active)) hint("Click an object, or drag a box around it");
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
  const busyTimer = setTimeout(() => current === session && showBusy("Segmenting"), BUSY_DELAY_MS);
  screen.stage.view.setAttribute("aria-busy", "true");
  try {
    const milliseconds = await masks.request(object);
    if (current !== session) return;
    screen.paint();
    if (clickTime !== undefined) afterPaint((painted) => showLatency(painted - clickTime, milliseconds));
    screen.showPanel();
    if (objects.active.id === object.id) showResult(object.name, masks.get(object));
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
    edit((objects) => objects.addFound(found));
    const result = found.length ? `${found.length} objects found: click one to select it` : "No objects found";
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
  session.unsaved = true;
  masks.abortStale(objects.list);
  preview.clear();
  screen.show();
  segment(objects.active, clickTime);
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
  screen.show();
}

function select(id) {
  if (id === session.objects.active.id) return;
  mend.settle();
  session.objects.select(id);
  screen.show();
  segment(session.objects.active);
}

/** Return the object that a plain click selects: one found by "Segment everything", while the active object is empty. */
function selectable(x, y) {
  const { masks, objects } = session;
  const object = isEmpty(objects.active) ? masks.objectAt(x, y, objects.list) : null;
  return object?.found ? object : null;
}

function click(x, y, { label, newObject, pick, time }) {
  if (mend.tool !== "click") {
    mend.press(x, y, label === 0);
    return;
  }
  hint("");
  const { masks, objects } = session;
  const object = pick ? masks.objectAt(x, y, objects.list) : newObject || label === 0 ? null : selectable(x, y);
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
  preview.at(object || isMarked(session.objects.active) || !element("hover").checked ? null : pixel);
}

function setCandidate(number, time) {
  if (!element("candidates").disabled) replace((objects) => objects.change({ candidate: number, drawn: null }), { time });
}

function saveAll() {
  const omitted = saveCoco(session);
  session.unsaved = false;
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

// ---- progress and errors

function showProgress(running) {
  element("progress").hidden = !running;
  element("everything").disabled = running;
}

function handleError(error, retry) {
  if (error.name === "AbortError") return;
  if (error.status !== 401) {
    showError(error, retry);
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

connect(screen.stage, {
  open: (file, severalFiles) => {
    open(file, file.name || "image");
    if (severalFiles) hint("Only one image can be open: this is the first");
  },
  openSample: ({ file }) => open(service.sample(file), file),
  rejectFiles: () => showError(new Error("This is not an image. Choose a PNG, JPEG or WebP file.")),
  leave: (event) => session?.unsavedCount > 1 && event.preventDefault(),
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
  stopEverything: () => session.stopEverything(),
  saveMask: () => saveMask(session).catch(handleError),
  saveCutout: () => saveCutout(session, screen.stage.picture).catch(handleError),
  saveCoco: saveAll,
  copyPython: () => copy(pythonCode(session)),
  copyCurl: () => copy(curlCommand(session, service.key !== "")),
  changeOptions: () => restore(() => {}),
  hideError,
});
start();
