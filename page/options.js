// Options of mask requests: the controls hold those of the open image, and new images begin with them.

import { element } from "./dom.js";

/** Smoothing changes regions below this share of the image, which are specks at any size; in small images, below 20 pixels. */
const SMOOTHED_SHARE = 0.0001, MIN_SMOOTHED_PIXELS = 20;

/** Largest distance of a threshold from 0, as the slider has it. */
const MAX_THRESHOLD = 5;

/** @typedef {{smooth: boolean, threshold: number}} Options */

/** Return what the controls show. @returns {Options} */
export function chosenOptions() {
  return { smooth: element("smooth").checked, threshold: element("threshold").valueAsNumber };
}

/** Show options in the controls. @param {Options} options */
export function showOptions({ smooth, threshold }) {
  const slider = element("threshold");
  element("smooth").checked = smooth;
  slider.valueAsNumber = threshold;
  slider.dispatchEvent(new Event("input")); // shows the value
}

/** Return whether a value has the form of options. @param {any} value */
export function isOptions(value) {
  return typeof value?.smooth === "boolean" && typeof value.threshold === "number" && Math.abs(value.threshold) <= MAX_THRESHOLD;
}

/**
 * Return the options with which masks were made that an earlier version stored, by the fields of their requests; undefined: there
 * are none.
 * @param {[string, any][]} masks as `Masks.save` returned them
 * @returns {Options | undefined}
 */
export function optionsOf(masks) {
  if (!masks.length) return undefined;
  const { mask_threshold: threshold = 0, min_mask_region_area: area } = JSON.parse(masks[0][0]);
  return { smooth: area !== undefined, threshold };
}

/**
 * Return the fields of a request for smoothing.
 * @param {{width: number, height: number}} image
 * @param {Options} options
 */
export function smoothing({ width, height }, { smooth }) {
  if (!smooth) return {};
  return { min_mask_region_area: Math.max(MIN_SMOOTHED_PIXELS, Math.floor(width * height * SMOOTHED_SHARE)) };
}

/**
 * Return the fields of a request for a mask that differ from the API's defaults, without its prompts.
 * @param {{width: number, height: number}} image
 * @param {Options} options
 */
export function maskOptions(image, options) {
  const { threshold } = options;
  return { ...smoothing(image, options), ...(threshold && { mask_threshold: threshold }) };
}

/** Keep in this browser whether a switch is on. */
export function keepSwitch(id) {
  keep(id, "checked", "change");
}

/** Keep in this browser whether a section of the panel is open. */
export function keepSection(id) {
  keep(id, "open", "toggle");
}

/** Keep a property of an element that is true or false. */
function keep(id, property, event) {
  const key = `mobile-sam-${id}`, kept = localStorage.getItem(key);
  if (kept) element(id)[property] = kept === "on";
  element(id).addEventListener(event, () => localStorage.setItem(key, element(id)[property] ? "on" : "off"));
}

/**
 * Show a slider's value beside it, in the element with the id `${id}-value`, and to screen readers.
 * @param {string} id
 * @param {(value: number) => string} textOf
 * @returns {() => void} shows a value that the page has set
 */
export function labelSlider(id, textOf) {
  const slider = element(id);
  const show = () => {
    const text = textOf(slider.valueAsNumber);
    element(`${id}-value`).textContent = text;
    slider.setAttribute("aria-valuetext", text);
  };
  show();
  slider.addEventListener("input", show);
  return show;
}
