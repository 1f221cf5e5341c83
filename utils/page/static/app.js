// The page's controller: connects the session, the screen and the service.

import { isUncertain } from "./candidates.js";
import { Connection } from "./connection.js";
import { connect, currentLabel } from "./controls.js";
import { TooLarge } from "./copies.js";
import { element } from "./dom.js";
import { curlCommand, pythonCode, saveCoco, saveCutout, saveMask } from "./exports.js";
import { listed, withoutKnown } from "./found.js";
import { afterPaint, announce, askForKey, hideError, hint, showBusy, showError, showLatency, showResult, showWeights } from "./notices.js";
import { isEmpty, isMarked } from "./objects.js";
import { prepareImage } from "./picture.js";
import { Preview } from "./preview.js";
import { Screen } from "./screen.js";
import { isAway, Service } from "./service.js";
import { Session } from "./session.js";

/** Delay before the busy indicator appears. */
const BUSY_DELAY_MS = 400;

const service = new Service((seconds) => showBusy(`The service is busy. Retrying in ${seconds} s`));
const screen = new Screen({
  select,
  rename: (id, name) => setDisplay(id, { name }),
  hide: (id) => setDisplay(id, { hidden: !session.objects.list.find((object) => object.id === id).hidden }),
  remove: (id) => edit((objects) => objects.remove(id)),
  removeMark: (index) => edit((objects) => objects.removeMark(index)),
});
const connection = new Connection(hideError);
const preview = new Preview(screen.stage, (reason) => connection.away || hint(reason));

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
 * @param {(() => void) | null} retry repeats a failed download
 * @param {boolean} allowCopy whether a large image is opened as a copy
 */
async function open(source, name, retry = null, allowCopy = false) {
  if (session?.unsavedCount > 1 && !window.confirm(`Discard ${session.unsavedCount} unsaved objects?`)) return;
  const request = ++openCount;
  connection.drop(everything);
  hideError();
  showBusy("Loading the image");
  try {
    const image = await prepareImage(await source, name, info?.limits, allowCopy);
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
    if (error instanceof TooLarge) showError(error, () => open(source, name, retry, true), { label: error.offer });
    else handleError(error, retry && (() => request === openCount && retry()));
  }
}

function openSample({ file }) {
  open(service.sample(file), file, () => openSample({ file }));
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
    element("about").textContent = `${current.about}, encoded in ${seconds} s with ${embedding.engine.encoder}`;
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
    edit((objects) => objects.addFound(added));
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
  const { objects, masks } = session;
  change(objects);
  session.unsaved = true;
  masks.abortStale(objects.list);
  preview.clear();
  screen.show();
  segment(objects.active, clickTime);
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
  session.objects.select(id);
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
  hint("");
  const { masks, objects } = session;
  const object = pick ? masks.objectAt(x, y, listed(objects)) : newObject || label === 0 ? null : selectable(x, y);
  if (object) {
    select(object.id);
    screen.highlight(null);
  } else if (pick) {
    hint("No object there");
  } else {
    edit(() => objects.addPoint({ x, y, label: label ?? currentLabel() }, newObject), time);
    if (!isMarked(objects.active)) hint("Now click the object itself, or drag a box around it");
  }
}

function box(corners, time) {
  if (corners && corners[0] < corners[2] && corners[1] < corners[3]) edit((objects) => objects.addBox(corners), time);
  else screen.stage.drawBox(session.objects.active.box);
}

function hover(pixel) {
  const object = pixel ? selectable(pixel.x, pixel.y) : null;
  screen.highlight(object?.id ?? null);
  preview.at(object || isMarked(session.objects.active) || !element("hover").checked ? null : pixel);
}

function setCandidate(number, time) {
  if (!element("candidates").disabled) edit((objects) => objects.change({ candidate: number }), time);
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

connect(screen.stage, {
  open: (file, severalFiles) => {
    open(file, file.name || "image");
    if (severalFiles) hint("Only one image can be open: this is the first");
  },
  openSample,
  rejectFiles: () => showError(new Error("This is not an image. Choose a PNG, JPEG or WebP file.")),
  leave: (event) => session?.unsavedCount > 1 && event.preventDefault(),
  click,
  box,
  hover,
  clearPreview: () => preview.clear(),
  setCandidate,
  nextCandidate: () => setCandidate((session.objects.active.candidate + 1) % 4, performance.now()),
  undo: () => restore((objects) => objects.undo()),
  redo: () => restore((objects) => objects.redo()),
  clear: () => edit((objects) => objects.clear()),
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
  changeOptions: () => restore(() => {}),
  hideError,
});
start();
