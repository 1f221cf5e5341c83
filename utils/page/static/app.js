// The page: an image, objects on it, a mask for each.

import { connect, meaning } from "./controls.js";
import { coco, cutoutPng, maskPng, python, save } from "./exports.js";
import { askForKey, element, hideError, hint, say, showBusy, showError, showLatency, showWeights } from "./notices.js";
import { Masks } from "./masks.js";
import { isMarked, Objects } from "./objects.js";
import { ObjectList } from "./panel.js";
import { usable } from "./picture.js";
import { Preview } from "./preview.js";
import { RemoteImage, Service } from "./service.js";
import { Stage } from "./stage.js";

const service = new Service((seconds) => showBusy(`The service is busy; asking again in ${seconds} s`));
const stage = new Stage(() => {
  element("zoom-fit").textContent = `${Math.round(100 * stage.place.scale)} %`;
});
const preview = new Preview(stage, (why) => {
  element("hover").checked = false;
  hint(why);
});
const list = new ObjectList({
  select,
  rename: (id, name) => show(id, { name }),
  hide: (id) => show(id, { hidden: !objects.list.find((object) => object.id === id).hidden }),
  remove: (id) => step(() => objects.remove(id)),
  point: (id) => {
    pointed = id;
    paint();
  },
});

let info = null;
let image = null;
let masks = null;
let objects = new Objects();
/** The object whose row the pointer is on, which is shown in front. */
let pointed = null;
/** The way to stop segmenting everything, while that goes on. */
let everything = null;

// ---- an image

async function open(file, name = file.name || "image") {
  hideError();
  showBusy("Reading the image");
  try {
    const { file: taken, width, height } = await usable(file, info?.limits);
    masks?.stop();
    everything?.abort();
    if (image) URL.revokeObjectURL(image.url);
    image = { name, width, height, remote: new RemoteImage(taken), url: URL.createObjectURL(taken), embedded: null };
    [objects, masks, pointed] = [new Objects(), new Masks(service, image), null];
    element("welcome").hidden = true;
    element("tools").hidden = element("panel").hidden = false;
    await stage.show(image.url, width, height);
    stage.view.setAttribute("aria-label", `${name}, ${width} by ${height} pixels`);
    preview.use(image);
    showAll();
    embed();
  } catch (error) {
    showBusy("");
    failed(error, null);
  }
}

/** Encode the image ahead of the first click. */
function embed() {
  const current = image;
  const began = performance.now();
  showBusy("Getting the image ready");
  current.embedded = service.embed(current.remote).then((said) => {
    if (current !== image) return;
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    element("about").textContent = `${current.width} × ${current.height} pixels, ready after ${seconds} s by ${said.engine.encoder}`;
    showWeights(said.weights);
    showBusy("");
    if (!isMarked(objects.active)) hint("Click on something, or drag a box around it");
  });
  current.embedded.catch((error) => {
    if (current !== image) return;
    showBusy("");
    failed(error, embedAgain);
  });
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
  const [object, asked] = [objects.active, masks];
  if (!isMarked(object) || asked.of(object)) return;
  try {
    stage.view.setAttribute("aria-busy", "true");
    const milliseconds = await asked.ask(object);
    if (asked !== masks) return;
    if (objects.active.id === object.id) paintFront();
    else paint();
    if (time !== undefined) afterPaint((painted) => showLatency(painted - time, milliseconds));
    showPanel();
    tell(object);
  } catch (error) {
    if (asked === masks) failed(error, () => segment());
  } finally {
    if (asked === masks && !asked.waiting) {
      stage.view.setAttribute("aria-busy", "false");
      showBusy("");
    }
  }
}

/** Say what was found. */
function tell(object) {
  const { area, score } = masks.of(object);
  const share = ((100 * area) / (image.width * image.height)).toFixed(1);
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

async function segmentEverything() {
  if (everything || !image) return;
  const [current, bar, stop] = [image, element("progress-bar"), new AbortController()];
  everything = stop;
  bar.removeAttribute("value");
  showEverything(true);
  try {
    await current.embedded;
    const fields = { points_per_side: Number(element("grid").value) };
    const report = (done, total) => Object.assign(bar, { max: total, value: done });
    const found = await service.everything(current.remote, fields, report, stop.signal);
    if (current !== image) return;
    found.sort((one, other) => other.area - one.area);
    step(() => objects.addFound(found));
    const result = found.length ? `${found.length} objects found` : "Nothing found: try a finer grid";
    hint(result);
    say(result);
  } catch (error) {
    if (current === image) failed(error, segmentEverything);
  } finally {
    everything = null;
    showEverything(false);
    showBusy("");
  }
}

// ---- what a person does

/** Do something that changes the objects, and show what follows; `time` is that of the click. */
function step(act, time) {
  if (!image) return;
  act();
  preview.clear();
  showAll();
  segment(time);
}

function show(id, fields) {
  objects.show(id, fields);
  showAll();
}

function select(id) {
  if (id === objects.now.activeId) return;
  objects.select(id);
  showAll();
  segment();
}

function click(x, y, { label, fresh, pick, time }) {
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
  if (corners && corners[0] < corners[2] && corners[1] < corners[3]) step(() => objects.addBox(corners), time);
  else stage.drawBox(objects.active.box);
}

function candidate(number, time) {
  if (!element("candidates").disabled) step(() => objects.change({ candidate: number }), time);
}

function clear() {
  if (objects.active.points.length || isMarked(objects.active)) {
    step(() => objects.change({ points: [], box: null, found: null, candidate: 0 }));
  }
}

async function saveImage(make, ending) {
  const mask = masks?.of(objects.active);
  if (mask) save(await make(mask, stage.picture), `${objects.active.name} ${ending}.png`);
}

function saveCoco() {
  const named = objects.list.map((object) => ({ name: object.name, mask: masks.of(object) })).filter(({ mask }) => mask?.area);
  const blob = new Blob([JSON.stringify(coco(image, named))], { type: "application/json" });
  save(blob, `${image.name.replace(/\.\w+$/, "")} coco.json`);
}

async function copyPython() {
  try {
    await navigator.clipboard.writeText(python(objects.active, image.name));
    hint("Copied");
  } catch {
    showError(new Error("The browser does not let this page copy."));
  }
}

// ---- what is shown

function itemsOf(wanted) {
  return objects.list
    .filter((object) => wanted(object.id) && !object.hidden)
    .map((object) => ({ mask: masks.toShow(object), colour: object.colour }))
    .filter(({ mask }) => mask);
}

function paint() {
  const front = pointed ?? objects.active.id;
  stage.paint(stage.others, itemsOf((id) => id !== front));
  paintFront();
}

function paintFront() {
  stage.paint(stage.active, itemsOf((id) => id === (pointed ?? objects.active.id)));
}

function showAll() {
  paint();
  const { points, box: corners } = objects.active;
  const remove = (index) =>
    step(() => objects.change(index === null ? { box: null } : { points: points.filter((_, at) => at !== index) }));
  stage.showMarks(points, corners, remove);
  showPanel();
}

function showPanel() {
  const active = objects.active;
  const mask = masks.of(active);
  list.show(objects.list, active.id, (object) => masks.of(object));
  list.reveal(active.id);
  stage.view.style.setProperty("--colour", active.colour);
  document.querySelector(`input[name="candidate"][value="${active.candidate}"]`).checked = true;
  const possible = {
    "undo": objects.canUndo,
    "redo": objects.canRedo,
    "clear": active.points.length > 0 || isMarked(active),
    "candidates": isMarked(active) && !active.found,
    "save-mask": mask !== null,
    "save-cutout": mask !== null,
    "save-coco": objects.list.some((object) => masks.of(object)?.area),
    "copy-python": isMarked(active) && !active.found,
  };
  for (const [id, is] of Object.entries(possible)) element(id).disabled = !is;
}

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
    if (image) embedAgain();
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

connect(stage, {
  open,
  openSample,
  refuse: () => showError(new Error("That is no image: a PNG, JPEG or WebP file is expected.")),
  click,
  box,
  hover: (at) => preview.at(at, element("hover").checked && !isMarked(objects.active)),
  preview: () => preview.clear(),
  candidate,
  nextCandidate: () => candidate((objects.active.candidate + 1) % 4, performance.now()),
  undo: () => step(() => objects.undo()),
  redo: () => step(() => objects.redo()),
  clear,
  add: () => step(() => objects.add()),
  remove: () => step(() => objects.remove(objects.active.id)),
  everything: segmentEverything,
  stop: () => everything?.abort(),
  saveMask: () => saveImage(maskPng, "mask"),
  saveCutout: () => saveImage(cutoutPng, "cutout"),
  saveCoco,
  copyPython,
  hideError,
});
begin();
