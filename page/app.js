// The page: connects buttons, keys, sliders and gestures with what they do.

import { keepAnnotator } from "./annotator.js";
import { listenToBox } from "./boxhandles.js";
import { chooseClass } from "./classes.js";
import { project, screen, service, session } from "./current.js";
import { element, radio } from "./dom.js";
import { acceptShown, box, changeFilter, clear, click, currentLabel, discardProposals, edit, everything, hover, mend, press, preview, refineHere, restore, setCandidate } from "./edits.js";
import { copyObject, copyToNext, pasteObject } from "./copying.js";
import { connectExports } from "./exportdialog.js";
import { copyByCommand, curlCommand, download, pythonCode, saveCutout, saveMask } from "./exports.js";
import { follow } from "./following.js";
import { connectFilter } from "./found.js";
import { listenToPointers } from "./gestures.js";
import { addImages, changeVersion, clearProject, moveBy, openAnnotations, openSample, toggleReviewed } from "./images.js";
import { listenToKeys } from "./keys.js";
import { loadTransfer, loadWhenIdle } from "./later.js";
import { hideError, hint, showError, showReport } from "./notices.js";
import { chosenOptions, keepSection, keepSwitch, labelSlider } from "./options.js";
import { listenForFiles } from "./picture.js";
import { compare, handleError } from "./requests.js";
import { tighten } from "./tighten.js";

const ZOOM_FACTOR = 1.5, RADIUS_STEP = 5;
/** Sliders of the picture, in per cent. */
const LIGHT = ["brightness", "contrast"];
const { stage } = screen;

function toggleLabel() {
  radio("label", 1 - currentLabel()).checked = true;
  hint(currentLabel() ? "Clicks now include" : "Clicks now exclude");
}

async function saveAll() {
  element("export").close();
  const current = session, { saveCoco } = await loadTransfer();
  const omitted = saveCoco(current, project.classes);
  if (omitted) hint(`Saved without ${omitted} ${omitted === 1 ? "object that has" : "objects that have"} no mask`);
}

async function copy(code) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(code);
  } catch {
    isCopied = copyByCommand(code); // by HTTP from another machine, browsers have no `navigator.clipboard`
  }
  if (isCopied) hint("Copied");
  else showError(new Error("The browser denied access to the clipboard."), () => download(new Blob([code]), "request.txt"), { label: "Save as a file" });
}

function changeOpacity(change) {
  const slider = element("opacity");
  slider.valueAsNumber += change;
  stage.view.style.setProperty("--opacity", String(slider.valueAsNumber / 100));
}

/** Change the brightness and the contrast of the picture on the screen; requests and exports have the file's. */
function changeLight() {
  const [brightness, contrast] = LIGHT.map((id) => element(id).valueAsNumber);
  const isChanged = brightness !== 100 || contrast !== 100; // a filter costs time at every zoom
  stage.picture.style.filter = isChanged ? `brightness(${brightness}%) contrast(${contrast}%)` : "";
}

/** Call an action at an event of elements. */
function on(type, ids, action) {
  for (const id of ids) element(id).addEventListener(type, action);
}

const choose = listenForFiles(addImages);
const zoomIn = () => stage.zoom(ZOOM_FACTOR), zoomOut = () => stage.zoom(1 / ZOOM_FACTOR), fit = () => stage.fit();
const undo = () => mend.editor.undo() || restore((objects) => objects.undo());
const redo = () => mend.editor.redo() || restore((objects) => objects.redo());
const addObject = () => edit((objects) => objects.add());
const previous = () => moveBy(-1), next = () => moveBy(1);
const help = () => element("help").showModal();

const buttons = {
  "choose": choose.files,
  "choose-folder": choose.folder,
  "add-images": choose.files,
  "add-folder": choose.folder,
  "previous-image": previous,
  "next-image": next,
  "reviewed": toggleReviewed,
  "clear-project": clearProject,
  "undo": undo,
  "redo": redo,
  "clear": clear,
  "copy-object": copyObject,
  "paste-object": pasteObject,
  "copy-to-next": copyToNext,
  "follow": follow,
  "tighten": tighten,
  "new-object": addObject,
  "zoom-in": zoomIn,
  "zoom-out": zoomOut,
  "zoom-fit": fit,
  "compare": compare,
  "refine": refineHere,
  "everything": everything,
  "everything-stop": () => session.stopEverything(),
  "found-accept": acceptShown,
  "found-discard": discardProposals,
  "save-mask": () => saveMask(session).catch(handleError),
  "save-cutout": () => saveCutout(session, stage.picture).catch(handleError),
  "save-coco": () => saveAll().catch(handleError),
  "copy-python": () => copy(pythonCode(session)),
  "copy-curl": () => copy(curlCommand(session, service.key !== "")),
  "help-open": help,
  "banner-close": () => (element("banner").hidden = true),
  "alert-close": hideError,
  "report-close": () => showReport("", []),
};
for (const [id, action] of Object.entries(buttons)) on("click", [id], () => action());
for (const button of document.querySelectorAll("#samples button")) {
  button.addEventListener("click", () => openSample(`${button.id.replace("sample-", "")}.jpg`));
}

const keys = {
  "Ctrl+z": undo,
  "Ctrl+y": redo,
  "Ctrl+Shift+z": redo,
  "Escape": () => mend.escape() || addObject(),
  "Delete": () => edit((objects) => objects.remove(objects.active.id)),
  "n": addObject,
  "x": toggleLabel,
  "j": () => element("merge").click(),
  "t": ({ repeat }) => repeat || copyToNext(),
  "l": ({ repeat }) => repeat || follow(),
  "c": () => setCandidate((session.objects.active.candidate + 1) % 4, performance.now()),
  "v": () => mend.choose("click"),
  "r": () => mend.chooseBrush(),
  "g": () => mend.choose("polygon"),
  ",": () => mend.brush.resize(-RADIUS_STEP),
  ".": () => mend.brush.resize(RADIUS_STEP),
  "h": () => element("hover").click(),
  "e": everything,
  "f": () => element("refine").hidden || refineHere(),
  "[": () => changeOpacity(-10),
  "]": () => changeOpacity(10),
  "+": zoomIn,
  "=": zoomIn,
  "-": zoomOut,
  "0": fit,
  "?": help,
  "/": () => element("class-search").focus(),
  "a": previous,
  "d": next,
  "m": toggleReviewed,
  "PageUp": previous,
  "PageDown": next,
};
[..."uiop"].forEach((key, number) => (keys[key] = () => setCandidate(number, performance.now())));
for (let number = 1; number <= 9; number++) keys[number] = () => project.classes[number - 1] && chooseClass(project.classes[number - 1].id);
// Before the keys: Escape ends a drag, and then does nothing else.
listenToPointers(stage, { press, click, box, hover, mend });
listenToKeys(stage, keys, { click, box });
listenToBox(stage, (corners, time) => box(corners, time, true));

keepSwitch("by-class");
for (const { id } of document.querySelectorAll("#panel details")) keepSection(id);
element("hover").checked = window.matchMedia("(hover: hover)").matches;
keepAnnotator();
labelSlider("threshold", (value) => (value ? `${String(value).replace("-", "−")} ${value > 0 ? "tighter" : "looser"}` : "0"));
connectFilter(changeFilter);
on("change", ["smooth", "threshold"], () => restore(() => (session.options = chosenOptions())));
on("change", ["candidates"], (event) => setCandidate(Number(radio("candidate").value), event.timeStamp));
on("change", ["clip"], () => edit((objects) => objects.change({ clip: element("clip").checked })));
on("change", ["hover"], () => preview.clear());
on("change", ["one-click"], () => {
  project.oneClick = element("one-click").checked;
  project.saveProject();
});
on("change", ["version"], changeVersion);
on("change", ["by-class"], () => screen.show());
on("input", ["opacity"], () => changeOpacity(0));
changeOpacity(0);
for (const id of LIGHT) labelSlider(id, (value) => `${value} %`);
on("input", LIGHT, changeLight);
on("dblclick", LIGHT, ({ target }) => {
  target.value = "100";
  target.dispatchEvent(new Event("input"));
});

connectExports(project, { settle: () => mend.settle(), openImage: () => session.image, onError: handleError, importFiles: openAnnotations });
window.addEventListener("beforeunload", (event) => project.atRisk && event.preventDefault());
document.addEventListener("visibilitychange", () => project.flush());
loadWhenIdle();
