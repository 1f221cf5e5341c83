// Options of mask requests. The controls hold them, so that they apply to all objects, previews and images.

import { element } from "./dom.js";

/** Smoothing changes regions below this share of the image, which are specks at any size; in small images, below 20 pixels. */
const SMOOTHED_SHARE = 0.0001, MIN_SMOOTHED_PIXELS = 20;

/** Return the fields of a request for smoothing. @param {{width: number, height: number}} image */
export function smoothing({ width, height }) {
  if (!element("smooth").checked) return {};
  return { min_mask_region_area: Math.max(MIN_SMOOTHED_PIXELS, Math.floor(width * height * SMOOTHED_SHARE)) };
}

/** Return the fields of a request for a mask that differ from the API's defaults, without its prompts. */
export function maskOptions(image) {
  const threshold = element("threshold").valueAsNumber;
  return { ...smoothing(image), ...(threshold && { mask_threshold: threshold }) };
}

/**
 * Set the controls to the options of an image's masks, so that these stay as they were made.
 * @param {[string, any][]} masks as `Masks.save` returned them, by the fields of their requests
 */
export function takeOptions(masks) {
  if (!masks.length) return;
  const [[key]] = masks, { mask_threshold = 0, min_mask_region_area: smoothed } = JSON.parse(key), threshold = element("threshold");
  element("smooth").checked = smoothed !== undefined;
  threshold.valueAsNumber = mask_threshold;
  threshold.dispatchEvent(new Event("input")); // shows the value
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
