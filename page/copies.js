// Copies of images: in another format, or within the limits of the service.

import { canvasOf } from "./dom.js";
import { UPRIGHT } from "./orientation.js";

/** A copy stays a little below the limit: 24 of 25 megapixels. */
const COPY_SHARE = 0.96;
const JPEG_QUALITY = 0.95;

/**
 * @typedef {{file: Blob, width: number, height: number, orientation?: number}} Original what a copy was made of; exported
 *   masks have its size. Without an orientation, it is turned by the rule.
 */

/** The image is above a limit of the service, but a copy of it is not. */
export class TooLarge extends Error {
  /** @param {string} message @param {string} offer text of a button that opens the copy */
  constructor(message, offer) {
    super(message);
    this.offer = offer;
  }
}

export function tooManyPixels(pixels, maxPixels) {
  const message = `it has ${millions(pixels)} megapixels; this service accepts up to ${millions(maxPixels)}.`;
  return new TooLarge(message, `Open a copy of ${Number(millions(maxPixels * COPY_SHARE))} megapixels`);
}

export function tooManyBytes(bytes, maxBytes) {
  const message = `the file has ${millions(bytes)} MB; this service accepts up to ${millions(maxBytes)}.`;
  return new TooLarge(message, "Open a JPEG copy of the same size");
}

/** Return the image as a JPEG, on white, scaled down if it has more than `maxPixels`; `orientation`: by which the file is turned. */
export async function jpegCopy(bitmap, file, orientation, maxPixels) {
  const pixels = bitmap.width * bitmap.height;
  const scale = pixels > maxPixels ? Math.sqrt((COPY_SHARE * maxPixels) / pixels) : 1;
  const width = Math.max(1, Math.floor(bitmap.width * scale)), height = Math.max(1, Math.floor(bitmap.height * scale));
  const canvas = canvasOf(width, height, (context) => {
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    // A canvas above the browser's limit stays transparent without an error.
    if (!context.getImageData(0, 0, 1, 1).data[3]) throw new Error("this browser cannot make a copy of this size. Scale the image down first.");
    context.imageSmoothingQuality = "high";
    context.drawImage(bitmap, 0, 0, width, height);
  });
  const copy = await canvas.convertToBlob({ type: "image/jpeg", quality: JPEG_QUALITY });
  return { file: copy, width, height, orientation: UPRIGHT, original: { file, width: bitmap.width, height: bitmap.height, orientation } };
}

export function toPng(bitmap) {
  return canvasOf(bitmap.width, bitmap.height, (context) => context.drawImage(bitmap, 0, 0)).convertToBlob({ type: "image/png" });
}

export function millions(number) {
  return (number / 1e6).toFixed(1);
}
