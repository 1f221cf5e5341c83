// Errors, hints, the busy indicator and other status texts.

import { element } from "./dom.js";

/**
 * Show an error until it is dismissed.
 * @param {Error & {title?: string, requestId?: string}} error
 * @param {(() => void) | null} action of the message's button; null: no button
 * @param {{label?: string, note?: string}} texts of the button, and after the message
 */
export function showError(error, action = null, { label = "Try again", note = "" } = {}) {
  const text = element("alert-text");
  const title = document.createElement("strong");
  title.textContent = `${error.title ?? "Something went wrong"}. `;
  text.replaceChildren(title, error.message, note && ` ${note}`);
  if (error.requestId) {
    const id = document.createElement("small");
    id.textContent = ` Request ${error.requestId}`;
    text.append(id);
  }
  const button = element("alert-action");
  button.textContent = label;
  button.hidden = !action;
  button.onclick = action;
  element("alert").hidden = false;
}

export function hideError() {
  element("alert").hidden = true;
}

/** Show the busy indicator; an empty text hides it. */
export function showBusy(text) {
  element("busy-text").textContent = text;
  element("busy").hidden = !text;
}

/** Announce a text to screen readers. */
export function announce(text) {
  element("status").textContent = text;
}

let hintTimer = 0;

/** Show a hint for six seconds; an empty text hides it. */
export function hint(text) {
  const line = element("hint");
  line.textContent = text;
  line.hidden = !text;
  clearTimeout(hintTimer);
  if (text) hintTimer = setTimeout(() => hint(""), 6000);
}

/** Return text that narrow screens hide. */
function wideOnly(text) {
  const span = document.createElement("span");
  span.className = "wide";
  span.textContent = text;
  return span;
}

/** Ask for the API key and pass it to `onKey`. */
export function askForKey(onKey) {
  const form = element("key-form"), field = element("key");
  form.hidden = false;
  field.focus();
  field.oninput = () => field.setCustomValidity("");
  form.onsubmit = (event) => {
    event.preventDefault();
    const key = field.value.trim();
    field.setCustomValidity(/^[\x21-\x7e]+$/.test(key) ? "" : "An API key consists of ASCII letters, digits and symbols, without spaces");
    if (!form.reportValidity()) return;
    form.hidden = true;
    field.value = "";
    onKey(key);
  };
}

/** Show the name of the weights, with a warning for untrained ones and a note for the built-in ones. */
export function showWeights({ name, trained, note }) {
  const chip = element("weights");
  chip.replaceChildren(wideOnly("weights: "), name);
  chip.title = note;
  chip.hidden = false;
  element("banner").hidden = trained && name !== "builtin";
  element("banner").classList.toggle("warning", !trained);
  element("banner-title").textContent = trained ? "" : "Untrained weights.";
  element("banner-text").textContent = trained ? "Built-in weights. The official MobileSAM weights give better masks." : note;
}

const SAVED_TEXTS = { saved: "Saved", saving: "Saving", failed: "Not saved", memory: "Not kept" };

/**
 * Show whether the work is saved in this browser.
 * @param {import("./project.js").SaveState} state
 * @param {string} reason why it is not
 */
export function showSaved(state, reason) {
  const chip = element("saved");
  chip.textContent = SAVED_TEXTS[state];
  chip.classList.toggle("warning", ["failed", "memory"].includes(state));
  chip.title = {
    saved: "All changes are saved in this browser",
    saving: "Saving the last change in this browser",
    failed: `This browser cannot save: ${reason}. Export the project to keep it.`,
    memory: `Not saved in this browser (${reason}): the project ends with this tab. Export it to keep it.`,
  }[state];
  chip.hidden = false;
  if (reason) hint(chip.title);
}

/** Announce an object's new mask; hint if nothing was found. */
export function showResult(name, { area, score, scoreText, width, height }) {
  const share = ((100 * area) / (width * height)).toFixed(1), byHand = score === null;
  announce(area || byHand ? `${name}: ${share} % of the image, ${byHand ? "" : "score "}${scoreText}` : `${name}: nothing found here`);
  if (!area && !byHand) hint("Nothing found here: click another spot, or drag a box");
}

/** Return the time at which the next frame has been painted; a hidden tab paints none. */
export function nextPaint() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(performance.now());
    if (document.hidden) port2.postMessage(null);
    else requestAnimationFrame(() => port2.postMessage(null));
  });
}

/** Show the time from the last click to its painted mask. */
export function showLatency(milliseconds, service) {
  const chip = element("latency");
  chip.replaceChildren(wideOnly("last click "), `${Math.round(milliseconds)} ms`);
  chip.title = `From the click to the painted mask, including ${Math.round(service)} ms for the request`;
  Object.assign(chip.dataset, { milliseconds: milliseconds.toFixed(1), service: service.toFixed(1) });
  chip.hidden = false;
}
