// Errors, hints, the busy indicator and other status texts.

import { create, element } from "./dom.js";
import { rangeText } from "./seen.js";

/**
 * Show an error until it is dismissed.
 * @param {Error & {title?: string, requestId?: string}} error
 * @param {(() => void) | null} action of the message's button; null: no button
 * @param {{label?: string, note?: string}} texts of the button, and after the message
 */
export function showError(error, action = null, { label = "Try again", note = "" } = {}) {
  const text = element("alert-text");
  const title = create("strong", { textContent: `${error.title ?? "Something went wrong"}. ` });
  const id = error.requestId ? create("small", { textContent: ` Request ${error.requestId}` }) : "";
  text.replaceChildren(title, error.message, note && ` ${note}`, id);
  Object.assign(element("alert-action"), { textContent: label, hidden: !action, onclick: action });
  element("alert").hidden = false;
}

export function hideError() {
  element("alert").hidden = true;
}

const CONNECTION_TITLES = {
  away: "The service does not answer. Your work is saved in this browser, and this page goes on when the service is back",
  busy: "The service refuses requests for a while. This page repeats them",
};

/**
 * Show whether the service is away or busy.
 * @param {import("./connection.js").State} state
 * @param {number} seconds since when
 * @param {number} waiting number of objects that wait for their masks
 */
export function showConnection(state, seconds, waiting) {
  const chip = element("connection"), was = chip.dataset.state ?? "";
  const time = seconds < 100 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  chip.textContent = `${state === "away" ? "Offline" : "Busy"} ${time}${waiting ? `, ${counted(waiting, "object")} queued` : ""}`;
  chip.title = CONNECTION_TITLES[state] ?? "";
  chip.dataset.state = state;
  chip.hidden = !state;
  if (state !== was) announce(chip.title || "The service is back");
}

/**
 * List what could not be read or added, until the list is dismissed.
 * @param {string} title
 * @param {string[]} problems each with its file, the reason and the remedy; none: hide the list
 * @param {{label: string, act: () => void} | null} action of a button below the list
 */
export function showReport(title, problems, action = null) {
  element("report-title").textContent = title;
  element("report-list").replaceChildren(...problems.map((textContent) => create("li", { textContent })));
  Object.assign(element("report-action"), { textContent: action?.label ?? "", hidden: !action, onclick: action?.act });
  element("report").hidden = !problems.length;
}

/** Show the busy indicator; an empty text hides it. */
export function showBusy(text) {
  element("busy-text").textContent = text;
  element("busy").hidden = !text;
}

/** Return a number of things in words. */
export function counted(count, noun) {
  return `${count} ${count === 1 ? noun : `${noun}s`}`;
}

/** Show the progress of "Segment everything" in per cent. */
export function showDone(done, total) {
  Object.assign(element("progress-bar"), { max: total, value: done });
  element("progress-text").textContent = `${Math.round((100 * done) / total)} %`;
}

/** Show the progress bar of "Segment everything", or hide it. */
export function showProgress(running) {
  element("progress-bar").removeAttribute("value");
  element("progress-text").textContent = "";
  element("progress").hidden = !running;
  element("everything").toggleAttribute("disabled", running);
}

/** Announce a text to screen readers. */
export function announce(text) {
  element("status").textContent = text;
}

let hintTimer = 0;

/** Show a hint for six seconds, with an addition for those who have a keyboard; an empty text hides it. */
export function hint(text, withKeys = "") {
  const line = element("hint");
  line.replaceChildren(text, create("span", { className: "no-touch", textContent: withKeys }));
  line.hidden = !text;
  clearTimeout(hintTimer);
  if (text) hintTimer = setTimeout(() => hint(""), 6000);
}

/** Show a hint, and announce it. */
export function say(text) {
  hint(text);
  announce(text);
}

/** Return text that narrow screens hide. */
function wideOnly(text) {
  return create("span", { className: "wide", textContent: text });
}

/** Ask for the API key, until one is accepted. @param {(key: string) => Promise<boolean>} accept */
export function askForKey(accept) {
  const form = element("key-form"), field = element("key");
  form.hidden = false;
  field.focus();
  field.oninput = () => field.setCustomValidity("");
  form.onsubmit = async (event) => {
    event.preventDefault();
    const key = field.value.trim();
    let problem = "";
    if (!/^[\x21-\x7e]+$/.test(key)) problem = "An API key consists of ASCII letters, digits and symbols, without spaces";
    else if (!(await accept(key))) problem = "The service does not know this key. Check it for typing errors, or ask the person who runs the service";
    field.setCustomValidity(problem);
    if (!form.reportValidity()) return;
    form.hidden = true;
    field.value = "";
  };
}

/** Show the name of the weights, with a warning for untrained ones and a note for the built-in ones. */
export function showWeights({ name, trained, note }) {
  const chip = element("weights");
  element("weights-name").textContent = element("version").hidden ? name : "";
  chip.title = note;
  chip.hidden = false;
  element("banner").hidden = trained && name !== "builtin";
  element("banner").classList.toggle("warning", !trained);
  element("banner-title").textContent = trained ? "" : "Untrained weights.";
  element("banner-text").textContent = trained ? "Built-in weights. The official MobileSAM weights give better masks." : note;
}

/**
 * Say how an image with 16-bit samples is shown.
 * @param {number[] | null | undefined} range values that are shown as black and white; null: their upper byte is shown;
 *   undefined: no such image
 */
export function showRange(range) {
  element("range").hidden = range === undefined;
  element("range").textContent = `16-bit image, shown with ${range ? `values ${rangeText(range)}` : "the upper byte of its values"}`;
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

/** Show the time from the last click to its painted mask, and where the mask was made. */
export function showLatency(milliseconds, { milliseconds: service, isHere }) {
  const chip = element("latency"), where = isHere ? "here" : "server";
  chip.replaceChildren(wideOnly("last click "), `${Math.round(milliseconds)} ms, ${where}`);
  chip.title = `From the click to the painted mask, including ${Math.round(service)} ms ${isHere ? "in this browser" : "for the request"}`;
  Object.assign(chip.dataset, { milliseconds: milliseconds.toFixed(1), service: service.toFixed(1), where });
  chip.hidden = false;
}
