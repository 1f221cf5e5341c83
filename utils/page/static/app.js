// The page: an image, objects on it, a mask for each.

import { connect, meaning } from "./controls.js";
import { element } from "./dom.js";
import { copyPython, saveCoco, saveCutout, saveMask } from "./exports.js";
import { afterPaint, askForKey, hideError, hint, say, showBusy, showError, showFound, showLatency, showWeights } from "./notices.js";
import { isEmpty, isMarked } from "./objects.js";
import { usable } from "./picture.js";
import { Preview } from "./preview.js";
import { Screen } from "./screen.js";
import { Service } from "./service.js";
import { Session } from "./session.js";

/** Milliseconds after which a person is told that an answer is on its way. */
const PATIENCE = 400;

const service = new Service((seconds) => showBusy(`The service is busy; asking again in ${seconds} s`));
const screen = new Screen({
  select,
  rename: (id, name) => show(id, { name }),
  hide: (id) => show(id, { hidden: !session.objects.list.find((object) => object.id === id).hidden }),
  remove: (id) => step((objects) => objects.remove(id)),
  removeMark: (index) => step((objects) => objects.removeMark(index)),
});
const preview = new Preview(screen.stage, (why) => {
  element("hover").checked = false;
  hint(why);
});

/** What the service says of itself. */
let info = null;
/** @type {Session | null} the image at hand */
let session = null;
/** Counts the images that a person has wanted: only the last one comes. */
let opening = 0;

// ---- an image

/**
 * Open an image in place of the one at hand.
 * @param {Blob | Promise<Blob>} source
 */
async function open(source, name = source.name || "image") {
  if (session?.lost > 1 && !window.confirm(`Leave ${session.lost} objects that are not saved?`)) return;
  const turn = ++opening;
  hideError();
  showBusy("Reading the image");
  try {
    const image = await usable(await source, info?.limits);
    if (turn !== opening) return;
    session?.close();
    session = new Session(service, name, image);
    showEverything(false);
    const encoded = embed();
    preview.use(session);
    await screen.use(session);
    await encoded;
  } catch (error) {
    if (turn !== opening) return;
    showBusy("");
    failed(error, null);
  }
}

/** Have the image encoded ahead of the first click. */
async function embed() {
  const current = session;
  const began = performance.now();
  element("about").textContent = "";
  showBusy("Getting the image ready");
  try {
    const said = await current.embed();
    if (current !== session) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    element("about").textContent = `${current.width} × ${current.height} pixels, ready after ${seconds} s by ${said.engine.encoder}`;
    showWeights(said.weights);
    if (isEmpty(current.objects.active)) hint("Click on something, or drag a box around it");
  } catch (error) {
    if (current === session) failed(error, embedAgain);
  } finally {
    if (current === session) showBusy("");
  }
}

function embedAgain() {
  embed();
  segmentAll();
}

// ---- masks

/**
 * Ask for an object's mask, if that is not known yet, and paint it.
 * @param {import("./objects.js").Thing} object
 * @param {number} [time] of the click that it follows from
 */
async function segment(object, time) {
  const current = session;
  const { masks, objects } = current;
  if (!isMarked(object) || masks.of(object) || masks.asks(object)) return;
  const patience = setTimeout(() => current === session && showBusy("Looking"), PATIENCE);
  screen.stage.view.setAttribute("aria-busy", "true");
  try {
    const milliseconds = await masks.ask(object);
    if (current !== session) return;
    screen.paint();
    if (time !== undefined) afterPaint((painted) => showLatency(painted - time, milliseconds));
    screen.showPanel();
    if (objects.active.id === object.id) showFound(object.name, masks.of(object));
  } catch (error) {
    if (current === session) failed(error, segmentAll);
  } finally {
    clearTimeout(patience);
    if (current === session && !masks.waiting) {
      screen.stage.view.setAttribute("aria-busy", "false");
      showBusy("");
    }
  }
}

/** Ask for whatever masks are not known. */
function segmentAll() {
  for (const object of session.objects.list) segment(object);
}

async function everything() {
  const [current, bar] = [session, element("progress-bar")];
  if (!current || !element("progress").hidden) return;
  bar.removeAttribute("value");
  showEverything(true);
  try {
    const report = (done, total) => Object.assign(bar, { max: total, value: done });
    const found = await current.everything(Number(element("grid").value), report);
    if (current !== session) return;
    step((objects) => objects.addFound(found));
    const result = found.length ? `${found.length} objects found: click on one to select it` : "Nothing that is certain enough was found";
    hint(result);
    say(result);
  } catch (error) {
    if (current === session) failed(error, everything);
  } finally {
    if (current === session) {
      showEverything(false);
      showBusy("");
    }
  }
}

// ---- what a person does

/** Do something that changes the objects, and show what follows; `time` is that of the click. */
function step(act, time) {
  if (!session) return;
  const { objects, masks } = session;
  act(objects);
  session.unsaved = true;
  masks.keep(objects.list);
  preview.clear();
  screen.show();
  segment(objects.active, time);
}

function turnBack(act) {
  step(act);
  if (session) segmentAll();
}

function show(id, fields) {
  session.objects.show(id, fields);
  screen.show();
}

function select(id) {
  if (id === session.objects.active.id) return;
  session.objects.select(id);
  screen.show();
  segment(session.objects.active);
}

/** What a plain click at a pixel would select: something found without a click, while nothing else has been begun. */
function selectable(x, y) {
  const { masks, objects } = session;
  const there = isEmpty(objects.active) ? masks.at(x, y, objects.list) : null;
  return there?.found ? there : null;
}

function click(x, y, { label, fresh, pick, time }) {
  hint("");
  const { masks, objects } = session;
  const there = pick ? masks.at(x, y, objects.list) : fresh || label === 0 ? null : selectable(x, y);
  if (there) {
    select(there.id);
    screen.point(null);
  } else if (pick) {
    hint("No object there");
  } else {
    step(() => objects.addPoint({ x, y, label: label ?? meaning() }, fresh), time);
    if (!isMarked(objects.active)) hint("Now click on the object itself, or drag a box around it");
  }
}

function box(corners, time) {
  if (corners && corners[0] < corners[2] && corners[1] < corners[3]) step((objects) => objects.addBox(corners), time);
  else screen.stage.drawBox(session.objects.active.box);
}

function hover(at) {
  const there = at ? selectable(at.x, at.y) : null;
  screen.point(there?.id ?? null);
  preview.at(there || isMarked(session.objects.active) || !element("hover").checked ? null : at);
}

function candidate(number, time) {
  if (!element("candidates").disabled) step((objects) => objects.change({ candidate: number }), time);
}

function saveAll() {
  const left = saveCoco(session);
  session.unsaved = false;
  if (left) hint(`Saved without ${left} that ${left === 1 ? "has" : "have"} no mask`);
}

async function copy() {
  try {
    await copyPython(session);
    hint("Copied");
  } catch {
    showError(new Error("The browser does not let this page copy."));
  }
}

// ---- what is shown

function showEverything(going) {
  element("progress").hidden = !going;
  element("everything").disabled = going;
}

function failed(error, retry) {
  if (error.name === "AbortError") return;
  if (error.status !== 401) {
    showError(error, retry);
    return;
  }
  if (service.key) showError(error);
  askForKey((key) => {
    service.key = key;
    hideError();
    if (session) embedAgain();
  });
}

async function begin() {
  try {
    info = await service.info();
    if (info.weights) showWeights(info.weights);
    if (info.key_needed && !service.key) failed({ status: 401 }, null);
  } catch (error) {
    failed(error, begin);
  }
}

connect(screen.stage, {
  open: (file, more) => {
    open(file);
    if (more) hint("One image at a time: this is the first of them");
  },
  openSample: ({ file }) => open(service.sample(file), file),
  refuse: () => showError(new Error("That is no image: a PNG, JPEG or WebP file is expected.")),
  leave: (event) => session?.lost > 1 && event.preventDefault(),
  click,
  box,
  hover,
  preview: () => preview.clear(),
  candidate,
  nextCandidate: () => candidate((session.objects.active.candidate + 1) % 4, performance.now()),
  undo: () => turnBack((objects) => objects.undo()),
  redo: () => turnBack((objects) => objects.redo()),
  clear: () => step((objects) => objects.clear()),
  add: () => step((objects) => objects.add()),
  remove: () => step((objects) => objects.remove(objects.active.id)),
  everything,
  stop: () => session.stopEverything(),
  saveMask: () => saveMask(session).catch(failed),
  saveCutout: () => saveCutout(session, screen.stage.picture).catch(failed),
  saveCoco: saveAll,
  copyPython: copy,
  hideError,
});
begin();
