// The mask candidates of the active object: thumbnails with scores, once they are known.

import { element } from "./dom.js";
import { rgbaWord } from "./layer.js";
import { isPrompted } from "./objects.js";

/** If the automatic mask scores lower than this, the page requests the candidates unasked. */
const LOW_SCORE = 0.75;
const MARGIN_SHARE = 0.15, OPACITY = 0.6;

/** Return whether an object's automatic mask is so uncertain that another candidate may be better. */
export function isUncertain(object, masks) {
  const mask = object.found || object.drawn ? null : masks.get({ ...object, candidate: 0 });
  return mask !== null && mask.score < LOW_SCORE;
}

/** Colour and masks in the thumbnails at present. */
let shown = [];

/**
 * Show the candidates, or only their names while they are unknown.
 * @param {import("./session.js").Session} session
 * @param {HTMLImageElement} picture
 * @param {string} colour of the active object
 */
export function showCandidates({ masks, objects }, picture, colour) {
  const object = objects.active, hasPrompts = isPrompted(object) && !object.found;
  const candidates = masks.candidates(object);
  element("compare").hidden = !hasPrompts || candidates !== null;
  const note = element("candidates-note");
  note.hidden = !isUncertain(object, masks) || object.candidate > 0;
  note.textContent = "Low score: one of the alternatives 1 to 3 may be better.";
  const all = candidates ? [masks.get({ ...object, candidate: 0 }), ...candidates] : [];
  const next = [colour, ...all];
  if (next.length === shown.length && next.every((part, index) => part === shown[index])) return;
  shown = next;
  const crop = cropOf(all.filter((mask) => mask?.area), picture);
  document.querySelectorAll("#candidates label").forEach((label, index) => {
    const mask = all[index], canvas = label.querySelector("canvas");
    canvas.hidden = !candidates;
    label.querySelector("small").textContent = mask?.scoreText ?? "";
    if (candidates) drawThumbnail(canvas, picture, crop, mask, rgbaWord(colour));
  });
}

/** Return the part of the picture around all masks, x, y, width, height, in the shape of a thumbnail. */
function cropOf(masks, picture) {
  const { width, height } = /** @type {HTMLCanvasElement} */ (document.querySelector("#candidates canvas"));
  if (!masks.length) return [0, 0, picture.naturalWidth, picture.naturalHeight];
  const corners = [0, 1].map((at) => Math.min(...masks.map(({ box }) => box[at])));
  const ends = [2, 3].map((at) => Math.max(...masks.map(({ box }) => box[at])));
  const [boxWidth, boxHeight] = [0, 1].map((at) => (ends[at] - corners[at]) * (1 + 2 * MARGIN_SHARE));
  const scale = Math.max(boxWidth / width, boxHeight / height);
  const [cropWidth, cropHeight] = [width * scale, height * scale];
  return [(corners[0] + ends[0] - cropWidth) / 2, (corners[1] + ends[1] - cropHeight) / 2, cropWidth, cropHeight];
}

function drawThumbnail(canvas, picture, crop, mask, colour) {
  const context = canvas.getContext("2d");
  const scale = canvas.width / crop[2];
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.globalAlpha = 1;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.setTransform(scale, 0, 0, scale, -crop[0] * scale, -crop[1] * scale);
  context.drawImage(picture, 0, 0);
  const step = Math.max(1, Math.floor(1 / scale));
  const painted = mask?.canvas(step, colour);
  if (!painted) return;
  const { canvas: fill, x, y } = painted;
  context.globalAlpha = OPACITY;
  context.drawImage(fill, x * step, y * step, fill.width * step, fill.height * step);
}
