// The page: an image, objects on it, a mask for each.

import { connect, meaning } from "./controls.js";
import { copyPython, saveCoco, saveCutout, saveMask } from "./exports.js";
import { askForKey, element, hideError, hint, say, showBusy, showError, showLatency, showWeights } from "./notices.js";
import { isMarked } from "./objects.js";
import { usable } from "./picture.js";
import { Preview } from "./preview.js";
import { Screen } from "./screen.js";
import { Service } from "./service.js";
import { Session } from "./session.js";

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

// ---- an image

async function open(file, name = file.name || "image") {
  hideError();
  showBusy("Reading the image");
  try {
    const image = await usable(file, info?.limits);
    session?.close();
    session = new Session(service, name, image);
    await screen.use(session);
    preview.use(session);
    await embed();
  } catch (error) {
    showBusy("");
    failed(error, null);
  }
}

/** Have the image encoded ahead of the first click. */
async function embed() {
  const current = session;
  const began = performance.now();
  showBusy("Getting the image ready");
  try {
    const said = await current.embed();
    if (current !== session) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    element("about").textContent = `${current.width} × ${current.height} pixels, ready after ${seconds} s by ${said.engine.encoder}`;
    showWeights(said.weights);
    if (!isMarked(current.objects.active)) hint("Click on something, or drag a box around it");
  } catch (error) {
    if (current === session) failed(error, embedAgain);
  } finally {
    if (current === session) showBusy("");
  }
}

function embedAgain() {
  embed();
  segment();
}

async function openSample({ file }) {
  try {
    const response = await fetch(`ui/samples/${file}`);
    if (!response.ok) throw new Error(`The sample is not there (status ${response.status}).`);
    await open(await response.blob(), file);
  } catch (error) {
    failed(error, () => openSample({ file }));
  }
}

// ---- masks

/**
 * Ask for the active object's mask, if that is not known yet, and paint it.
 * @param {number} [time] of the click that it follows from
 */
async function segment(time) {
  const current = session;
  const { masks, objects } = current;
  const object = objects.active;
  if (!isMarked(object) || masks.of(object)) return;
  try {
    screen.stage.view.setAttribute("aria-busy", "true");
    const milliseconds = await masks.ask(object);
    if (current !== session) return;
    if (objects.active.id === object.id) screen.paintFront();
    else screen.paint();
    if (time !== undefined) afterPaint((painted) => showLatency(painted - time, milliseconds));
    screen.showPanel();
    tell(object);
  } catch (error) {
    if (current === session) failed(error, () => segment());
  } finally {
    if (current === session && !masks.waiting) {
      screen.stage.view.setAttribute("aria-busy", "false");
      showBusy("");
    }
  }
}

/** Say what was found. */
function tell(object) {
  const { area, score, width, height } = session.masks.of(object);
  const share = ((100 * area) / (width * height)).toFixed(1);
  say(area ? `${object.name}: ${share} % of the image, score ${score.toFixed(2)}` : `${object.name}: nothing found there`);
  if (!area) hint("Nothing found there: try another spot, or drag a box");
}

/** Calls back once what was drawn is on the screen. */
function afterPaint(callback) {
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => callback(performance.now());
    port2.postMessage(null);
  });
}

async function everything() {
  const [current, bar] = [session, element("progress-bar")];
  if (!current) return;
  bar.removeAttribute("value");
  showEverything(true);
  try {
    const report = (done, total) => Object.assign(bar, { max: total, value: done });
    const found = await current.everything(Number(element("grid").value), report);
    if (current !== session) return;
    step((objects) => objects.addFound(found));
    const result = found.length ? `${found.length} objects found` : "Nothing found: try a finer grid";
    hint(result);
    say(result);
  } catch (error) {
    if (current === session) failed(error, everything);
  } finally {
    showEverything(false);
    showBusy("");
  }
}

// ---- what a person does

/** Do something that changes the objects, and show what follows; `time` is that of the click. */
function step(act, time) {
  if (!session) return;
  act(session.objects);
  preview.clear();
  screen.show();
  segment(time);
}

function show(id, fields) {
  session.objects.show(id, fields);
  screen.show();
}

function select(id) {
  if (id === session.objects.active.id) return;
  session.objects.select(id);
  screen.show();
  segment();
}

function click(x, y, { label, fresh, pick, time }) {
  const { masks, objects } = session;
  hint("");
  if (pick) {
    const there = objects.list.findLast((object) => !object.hidden && masks.of(object)?.has(x, y));
    if (there) select(there.id);
    else hint("No object there");
    return;
  }
  step(() => {
    if (fresh) objects.add();
    objects.addPoint({ x, y, label: label ?? meaning() });
  }, time);
  if (!isMarked(objects.active)) hint("Now click on the object itself, or drag a box around it");
}

function box(corners, time) {
  if (corners && corners[0] < corners[2] && corners[1] < corners[3]) step((objects) => objects.addBox(corners), time);
  else screen.stage.drawBox(session.objects.active.box);
}

function candidate(number, time) {
  if (!element("candidates").disabled) step((objects) => objects.change({ candidate: number }), time);
}

function clear() {
  step((objects) => objects.clear());
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
  open,
  openSample,
  refuse: () => showError(new Error("That is no image: a PNG, JPEG or WebP file is expected.")),
  click,
  box,
  hover: (at) => preview.at(at, element("hover").checked && !isMarked(session.objects.active)),
  preview: () => preview.clear(),
  candidate,
  nextCandidate: () => candidate((session.objects.active.candidate + 1) % 4, performance.now()),
  undo: () => step((objects) => objects.undo()),
  redo: () => step((objects) => objects.redo()),
  clear,
  add: () => step((objects) => objects.add()),
  remove: () => step((objects) => objects.remove(objects.active.id)),
  everything,
  stop: () => session.stopEverything(),
  saveMask: () => saveMask(session),
  saveCutout: () => saveCutout(session, screen.stage.picture),
  saveCoco: () => saveCoco(session),
  copyPython: copy,
  hideError,
});
begin();
