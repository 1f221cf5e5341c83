// Which control, key or gesture does what.

import { element } from "./dom.js";
import { listen } from "./gestures.js";
import { listenToKeys } from "./keys.js";
import { hint } from "./notices.js";
import { listenForFiles } from "./picture.js";

const SAMPLES = [
  { file: "cat.jpg", name: "Cat" },
  { file: "coffee.jpg", name: "Coffee" },
  { file: "rocket.jpg", name: "Rocket" },
  { file: "still-life.jpg", name: "Still life" },
  { file: "balloons.jpg", name: "Balloons" },
  { file: "desk.jpg", name: "Desk" },
];
const ZOOM = 1.5;

/** What a click means at the moment: 1, the object is here; 0, it is not. */
export function meaning() {
  return Number(document.querySelector('input[name="label"]:checked').value);
}

function switchMeaning() {
  document.querySelector(`input[name="label"][value="${1 - meaning()}"]`).checked = true;
  hint(meaning() ? "A click is on the object" : "A click is not the object");
}

/**
 * Connect everything on the page with what it does.
 * @param {import("./stage.js").Stage} stage
 * @param {Record<string, Function>} acts
 */
export function connect(stage, acts) {
  const chooseFile = listenForFiles(acts.open, acts.refuse);
  const zoom = { in: () => stage.zoom(ZOOM), out: () => stage.zoom(1 / ZOOM), fit: () => stage.fit() };
  const help = () => element("help").showModal();
  window.addEventListener("beforeunload", acts.leave);
  const buttons = {
    "choose": chooseFile,
    "another": chooseFile,
    "undo": acts.undo,
    "redo": acts.redo,
    "clear": acts.clear,
    "new-object": acts.add,
    "zoom-in": zoom.in,
    "zoom-out": zoom.out,
    "zoom-fit": zoom.fit,
    "everything": acts.everything,
    "everything-stop": acts.stop,
    "save-mask": acts.saveMask,
    "save-cutout": acts.saveCutout,
    "save-coco": acts.saveCoco,
    "copy-python": acts.copyPython,
    "help-open": help,
    "banner-close": () => (element("banner").hidden = true),
    "alert-close": acts.hideError,
  };
  for (const [id, act] of Object.entries(buttons)) element(id).addEventListener("click", () => act());
  for (const input of document.querySelectorAll('input[name="candidate"]')) {
    input.addEventListener("change", (event) => acts.candidate(Number(input.value), event.timeStamp));
  }
  element("hover").checked = window.matchMedia("(hover: hover)").matches;
  element("hover").addEventListener("change", acts.preview);
  const opacity = opacityOf(stage.view);
  listen(stage, acts);
  const keys = {
    "Ctrl+z": acts.undo,
    "Ctrl+y": acts.redo,
    "Ctrl+Shift+z": acts.redo,
    "Escape": acts.clear,
    "Delete": acts.remove,
    "n": acts.add,
    "x": switchMeaning,
    "c": acts.nextCandidate,
    "h": () => element("hover").click(),
    "e": acts.everything,
    "[": () => opacity(-10),
    "]": () => opacity(10),
    "+": zoom.in,
    "=": zoom.in,
    "-": zoom.out,
    "0": zoom.fit,
    "?": help,
  };
  for (const number of [1, 2, 3]) keys[number] = () => acts.candidate(number, performance.now());
  listenToKeys(stage, keys, acts);
  element("samples").append(...SAMPLES.map((sample) => sampleOf(sample, acts.openSample)));
}

/** Connects the slider; the returned function moves it. */
function opacityOf(view) {
  const slider = element("opacity");
  const show = () => view.style.setProperty("--opacity", slider.value / 100);
  slider.addEventListener("input", show);
  show();
  return (more) => {
    slider.value = Number(slider.value) + more;
    show();
  };
}

function sampleOf(sample, openSample) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  const thumbnail = new Image();
  button.type = "button";
  thumbnail.src = `ui/samples/${sample.file}`;
  thumbnail.alt = "";
  button.append(thumbnail, sample.name);
  button.addEventListener("click", () => openSample(sample));
  item.append(button);
  return item;
}
