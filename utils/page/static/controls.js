// Bindings of buttons, keys and gestures to actions.

import { element, radio } from "./dom.js";
import { connectFound } from "./found.js";
import { listenToPointers } from "./gestures.js";
import { listenToKeys } from "./keys.js";
import { hint } from "./notices.js";
import { connectOptions } from "./options.js";
import { listenForFiles } from "./picture.js";

const SAMPLES = [
  { file: "cat.jpg", name: "Cat" },
  { file: "coffee.jpg", name: "Coffee" },
  { file: "rocket.jpg", name: "Rocket" },
  { file: "still-life.jpg", name: "Still life" },
  { file: "balloons.jpg", name: "Balloons" },
  { file: "desk.jpg", name: "Desk" },
];
const ZOOM_FACTOR = 1.5;

/** Return the label of the next click: 1 includes, 0 excludes. */
export function currentLabel() {
  return Number(radio("label").value);
}

function toggleLabel() {
  radio("label", 1 - currentLabel()).checked = true;
  hint(currentLabel() ? "Clicks now include" : "Clicks now exclude");
}

/**
 * Bind all controls of the page.
 * @param {import("./stage.js").Stage} stage
 * @param {import("./gestures.js").Handlers & Record<string, any>} actions
 */
export function connect(stage, actions) {
  const choose = listenForFiles(actions.addImages, actions.rejectFiles);
  const zoom = { in: () => stage.zoom(ZOOM_FACTOR), out: () => stage.zoom(1 / ZOOM_FACTOR), fit: () => stage.fit() };
  const help = () => element("help").showModal();
  window.addEventListener("beforeunload", actions.leave);
  const buttons = {
    "choose": choose.files,
    "choose-folder": choose.folder,
    "add-images": choose.files,
    "add-folder": choose.folder,
    "previous-image": () => actions.moveBy(-1),
    "next-image": () => actions.moveBy(1),
    "clear-project": actions.clearProject,
    "undo": actions.undo,
    "redo": actions.redo,
    "clear": actions.clear,
    "new-object": actions.add,
    "zoom-in": zoom.in,
    "zoom-out": zoom.out,
    "zoom-fit": zoom.fit,
    "compare": actions.compare,
    "refine": actions.refineHere,
    "everything": actions.everything,
    "everything-stop": actions.stopEverything,
    "save-mask": actions.saveMask,
    "save-cutout": actions.saveCutout,
    "save-coco": actions.saveCoco,
    "copy-python": actions.copyPython,
    "copy-curl": actions.copyCurl,
    "help-open": help,
    "banner-close": () => (element("banner").hidden = true),
    "alert-close": actions.hideError,
  };
  for (const [id, action] of Object.entries(buttons)) element(id).addEventListener("click", () => action());
  const chooseCandidate = (event) => actions.setCandidate(Number(radio("candidate").value), event.timeStamp);
  element("candidates").addEventListener("change", chooseCandidate);
  element("clip").addEventListener("change", () => actions.setClip(element("clip").checked));
  element("hover").checked = window.matchMedia("(hover: hover)").matches;
  element("hover").addEventListener("change", actions.clearPreview);
  connectOptions(actions.changeOptions);
  connectFound(actions.changeList, actions.removeFound);
  const changeOpacity = connectOpacity(stage.view);
  listenToPointers(stage, actions);
  const keys = {
    "Ctrl+z": actions.undo,
    "Ctrl+y": actions.redo,
    "Ctrl+Shift+z": actions.redo,
    "Escape": actions.escape,
    "Delete": actions.remove,
    "n": actions.add,
    "x": toggleLabel,
    "c": actions.nextCandidate,
    "v": () => actions.mend.choose("click"),
    "r": () => actions.mend.chooseBrush(),
    "g": () => actions.mend.choose("polygon"),
    ",": () => actions.mend.resizeBrush(-1),
    ".": () => actions.mend.resizeBrush(1),
    "h": () => element("hover").click(),
    "e": actions.everything,
    "f": () => element("refine").hidden || actions.refineHere(),
    "[": () => changeOpacity(-10),
    "]": () => changeOpacity(10),
    "+": zoom.in,
    "=": zoom.in,
    "-": zoom.out,
    "0": zoom.fit,
    "?": help,
    "a": () => actions.moveBy(-1),
    "d": () => actions.moveBy(1),
    "PageUp": () => actions.moveBy(-1),
    "PageDown": () => actions.moveBy(1),
  };
  [..."uiop"].forEach((key, number) => (keys[key] = () => actions.setCandidate(number, performance.now())));
  for (let number = 1; number <= 9; number++) keys[number] = () => actions.chooseClassByNumber(number);
  listenToKeys(stage, keys, actions);
  element("samples").append(...SAMPLES.map((sample) => sampleItem(sample, actions.openSample)));
}

/** Bind the opacity slider and return a function that moves it. */
function connectOpacity(view) {
  const slider = element("opacity");
  const show = () => view.style.setProperty("--opacity", String(slider.valueAsNumber / 100));
  slider.addEventListener("input", show);
  show();
  return (change) => {
    slider.valueAsNumber += change;
    show();
  };
}

function sampleItem(sample, openSample) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  const thumbnail = new Image();
  button.type = "button";
  thumbnail.src = `ui/thumbnails/${sample.file}`; // 360 x 240 pixels, a tenth of the bytes of the samples
  thumbnail.alt = "";
  button.append(thumbnail, sample.name);
  button.addEventListener("click", () => openSample(sample));
  item.append(button);
  return item;
}
