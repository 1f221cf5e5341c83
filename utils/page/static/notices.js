// What the page tells: errors, waiting, and the weights in use.

import { Problem } from "./service.js";

/** @param {string} id */
export const element = (id) => document.getElementById(id);

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
  form.onsubmit = (event) => {
    event.preventDefault();
    form.hidden = true;
    use(field.value.trim());
    field.value = "";
  };
}

/** Which weights answer; a banner where they are not the real ones. */
export function showWeights({ name, trained, note }) {
  const chip = element("weights");
  chip.replaceChildren(quiet("weights: "), name);
  chip.title = note;
  chip.hidden = false;
  element("banner").hidden = trained && name !== "builtin";
  element("banner-title").textContent = trained ? "Built-in weights." : "Untrained weights.";
  element("banner-text").textContent = note;
}

/** How long the last click took, until its mask was painted. */
export function showLatency(milliseconds, service) {
  const chip = element("latency");
  chip.replaceChildren(quiet("last click "), `${Math.round(milliseconds)} ms`);
  chip.title = `From the click to the painted mask; ${Math.round(service)} ms of it waiting for the service`;
  Object.assign(chip.dataset, { milliseconds: milliseconds.toFixed(1), service: service.toFixed(1) });
  chip.hidden = false;
}
