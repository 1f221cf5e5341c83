// What the page tells: errors, waiting, and the weights in use.

import { element } from "./dom.js";
import { Problem } from "./service.js";

/** Show an error until it is dismissed or tried again. */
export function showError(error, retry = null) {
  const text = element("alert-text");
  const title = document.createElement("strong");
  title.textContent = `${error instanceof Problem ? error.title : "That did not work"}. `;
  text.replaceChildren(title, error.message);
  if (error.requestId) {
    const id = document.createElement("small");
    id.textContent = ` Request ${error.requestId}`;
    text.append(id);
  }
  element("alert-retry").hidden = !retry;
  element("alert-retry").onclick = () => {
    hideError();
    retry();
  };
  element("alert").hidden = false;
}

export function hideError() {
  element("alert").hidden = true;
}

/** Show that something takes its time; an empty text ends it. */
export function showBusy(text) {
  element("busy-text").textContent = text;
  element("busy").hidden = !text;
}

/** A line for those who do not see the image. */
export function say(text) {
  element("status").textContent = text;
}

/** A line at the tools, for a moment. */
export function hint(text) {
  const line = element("hint");
  line.textContent = text;
  line.hidden = !text;
  clearTimeout(hint.timer);
  if (text) hint.timer = setTimeout(() => hint(""), 6000);
}

/** Words that a narrow screen has no room for. */
function quiet(text) {
  const words = document.createElement("span");
  words.className = "wide";
  words.textContent = text;
  return words;
}

/** Ask for the API key. */
export function askForKey(use) {
  const form = element("key-form"), field = element("key");
  form.hidden = false;
  field.focus();
  field.oninput = () => field.setCustomValidity("");
  form.onsubmit = (event) => {
    event.preventDefault();
    const key = field.value.trim();
    field.setCustomValidity(/^[\x21-\x7e]+$/.test(key) ? "" : "An API key has letters, digits and signs of ASCII only, no spaces");
    if (!form.reportValidity()) return;
    form.hidden = true;
    field.value = "";
    use(key);
  };
}

/** Show which weights answer: with a warning where they are untrained, with a hint where they are the built-in ones. */
export function showWeights({ name, trained, note }) {
  const chip = element("weights");
  chip.replaceChildren(quiet("weights: "), name);
  chip.title = note;
  chip.hidden = false;
  element("banner").hidden = trained && name !== "builtin";
  element("banner").classList.toggle("warning", !trained);
  element("banner-title").textContent = trained ? "" : "Untrained weights.";
  element("banner-text").textContent = trained ? "Built-in weights. The official MobileSAM weights segment better." : note;
}

/** Tell what was found of an object, to those who do not see it too. */
export function showFound(name, { area, score, width, height }) {
  const share = ((100 * area) / (width * height)).toFixed(1);
  say(area ? `${name}: ${share} % of the image, score ${score.toFixed(2)}` : `${name}: nothing found there`);
  if (!area) hint("Nothing found there: try another spot, or drag a box");
}

/** Calls back once what was drawn is on the screen. */
export function afterPaint(callback) {
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => callback(performance.now());
    port2.postMessage(null);
  });
}

/** How long the last click took, until its mask was painted. */
export function showLatency(milliseconds, service) {
  const chip = element("latency");
  chip.replaceChildren(quiet("last click "), `${Math.round(milliseconds)} ms`);
  chip.title = `From the click to the painted mask; ${Math.round(service)} ms of it waiting for the service`;
  Object.assign(chip.dataset, { milliseconds: milliseconds.toFixed(1), service: service.toFixed(1) });
  chip.hidden = false;
}
