// The worker of view.js: PNG files with samples of 16 bits take a second for ten megapixels.

import { canvasOf } from "./dom.js";
import { encodePng } from "./formats/png.js";
import { turnedSize, turnedValues } from "./orientation.js";
import { decodePng16, rangeOf, stretched } from "./png16.js";
import { answerBy } from "./workers.js";

/** Return the picture of a file, and the values that it shows as 0 and 255. */
async function pictureOf(image, orientation, given) {
  const range = given === undefined ? rangeOf(image) : given;
  const { width, height } = turnedSize(image, orientation);
  const pixels = turnedValues(stretched(image, range), image, 4, orientation);
  const canvas = canvasOf(width, height, (context) => context.putImageData(new ImageData(pixels, width, height), 0, 0));
  return { picture: await canvas.convertToBlob({ type: "image/png" }), range };
}

/** Return a file of all 16 bits whose pixels are stored as they are displayed. */
function uprightFile(image, orientation) {
  const { width, height } = turnedSize(image, orientation);
  return encodePng(turnedValues(image.values, image, image.samples, orientation), width, height, null, image.samples);
}

answerBy(async ({ file, orientation, range, isFile }) => {
  const image = await decodePng16(new Uint8Array(await file.arrayBuffer()));
  return isFile ? uprightFile(image, orientation) : pictureOf(image, orientation, range);
});
