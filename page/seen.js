// How the service sees an image, compared with what the page draws: no mask is shown on a picture that differs.

import { isOrientation, turnedSize } from "./orientation.js";

/**
 * @typedef {object} Drawn what the page draws of an image
 * @property {string} name
 * @property {number} width
 * @property {number} height
 * @property {number} orientation by which the stored pixels are turned
 * @property {number[] | null} [range] of an image with 16-bit samples
 */

/** The service sees an image otherwise than the page draws it. */
export class SeenOtherwise extends Error {
  title = "The service sees another picture";

  /**
   * @param {string} message
   * @param {{width: number, height: number, orientation: number, range?: number[] | null} | null} view how the page can draw
   *   the picture that the service sees; null: not at all
   */
  constructor(message, view) {
    super(message);
    this.view = view;
  }
}

/**
 * Compare how an answer says that the service sees an image with how the page draws it.
 * @param {Record<string, any>} answer older services give no orientation: then only sizes are compared
 * @param {Drawn} drawn
 * @throws {SeenOtherwise} another size, orientation, or range of values
 */
export function checkSeen(answer, drawn) {
  const { width, height, orientation } = answer, here = sizeText(drawn), there = sizeText(answer);
  const { name } = drawn, isSameSize = width === drawn.width && height === drawn.height;
  const how = isSameSize ? ` by the EXIF orientation ${orientation} there, and by ${drawn.orientation} here` : ` there, and ${here} here`;
  if (orientation === undefined) {
    if (!isSameSize) throw new SeenOtherwise(`${name} has ${there} pixels there, and ${here} here. This service is older than the page and may turn it by other metadata. Save the image again without metadata, or have the service updated.`, null);
  } else if (!isOrientation(orientation) || !isExplained(answer, drawn)) {
    throw new SeenOtherwise(`${name} has ${there} pixels${how}. Something between this page and the service may change images: ask the person who runs the service.`, null);
  } else if (orientation !== drawn.orientation) {
    const view = { width, height, orientation, range: drawn.range === undefined ? undefined : answer.range ?? null };
    throw new SeenOtherwise(`${name} is turned by the EXIF orientation ${orientation} there, and by ${drawn.orientation} here.`, view);
  }
  if (String(answer.range ?? null) !== String(drawn.range ?? null)) {
    const view = { width, height, orientation: drawn.orientation, range: answer.range ?? null };
    const [there, here] = [answer.range, drawn.range].map((range) => (range ? `values ${rangeText(range)}` : "the upper byte of its values"));
    const message = `${name} is seen with ${there} there, and with ${here} here.`;
    throw new SeenOtherwise(message, drawn.range === undefined ? null : view);
  }
}

/** Compare the file that the service got with the one that was sent. @throws {SeenOtherwise} */
export function checkFile(imageId, sentId, { name }) {
  if (sentId && imageId !== sentId) {
    throw new SeenOtherwise(`The service got another file than ${name}: something between this page and the service changes images. Ask the person who runs the service.`, null);
  }
}

/** Compare the size of a mask with the picture's. @throws {SeenOtherwise} */
export function checkMask({ width, height }, drawn) {
  if (width === drawn.width && height === drawn.height) return;
  throw new SeenOtherwise(`A mask has ${width} x ${height} pixels, and ${drawn.name} ${sizeText(drawn)}: it is not shown.`, null);
}

/**
 * Return whether the pixels as stored have the answer's size after the answer's orientation.
 * @param {Record<string, any>} answer
 * @param {Drawn} drawn
 */
function isExplained({ width, height, orientation }, drawn) {
  const expected = turnedSize(turnedSize(drawn, drawn.orientation), orientation);
  return expected.width === width && expected.height === height;
}

/** Return the values that are shown as black and white, as text. @param {number[]} range */
export function rangeText(range) {
  return range.join(" to ");
}

/** @param {Record<string, any>} size */
function sizeText({ width, height }) {
  return `${width} x ${height}`;
}
