// Pictures as the service sees them, whatever the browser itself would make of the files.

import { canvasOf } from "./dom.js";
import { flipsOf, layoutOf, turnedSize, UPRIGHT, withOrientation } from "./orientation.js";
import { ask } from "./workers.js";

/** @typedef {import("./orientation.js").Layout} Layout */

const JPEG_QUALITY = 0.95;
/** Number of pictures of files with 16-bit samples that are kept. */
const MAX_RECENT = 4;
/** An orientation that exchanges the sides, and a size that shows it. */
const TEST_ORIENTATION = 6, TEST_SIZE = { width: 2, height: 1 };

/**
 * @typedef {object} View
 * @property {Blob} picture what browsers draw as the service sees the image
 * @property {number} orientation by which the stored pixels are turned
 * @property {{width: number, height: number} | null} size of the picture in pixels; null: only the browser knows
 * @property {number[] | null | undefined} range of an image with 16-bit samples: the values that are shown as 0 and 255;
 *   null: the upper byte is shown
 */

/**
 * Return what to draw for an image file. Most files are drawn as they are; only those that browsers show otherwise are decoded.
 * @param {Blob} file
 * @param {{orientation?: number, range?: number[] | null}} [wanted] orientation and range of the service; default: by the
 *   rules that the service has too
 * @returns {Promise<View>}
 * @throws {import("./formats/project.js").FormatError} a damaged file with 16-bit samples
 */
export async function viewOf(file, wanted = {}) {
  const layout = layoutOf(new Uint8Array(await file.arrayBuffer()));
  const orientation = wanted.orientation ?? layout.orientation;
  const size = layout.stored && turnedSize(layout.stored, orientation);
  if (layout.isDeep) return { ...(await picture16(file, orientation, wanted.range)), orientation, size };
  return { picture: await turnedFile(file, layout, orientation), orientation, size, range: undefined };
}

/**
 * Compare the size with which an image was stored, and its objects with it, with the size of its picture.
 * @param {{name: string, width: number, height: number}} stored
 * @param {{width: number, height: number} | null} size null: only the browser knows
 */
export function checkSize({ name, width, height }, size) {
  if (!size || (size.width === width && size.height === height)) return;
  const sizes = `${width} x ${height} pixels, but its file has ${size.width} x ${size.height}`;
  throw new Error(`${name} was stored with ${sizes}: another program turned it. Remove it from the project and add it again.`);
}

/** Return a file that this browser shows turned by an orientation, without decoding it if possible. */
async function turnedFile(file, layout, orientation) {
  if (orientation === UPRIGHT || (await browserTurns(layout.kind))) return withOrientation(file, layout, orientation);
  return turnedCopy(file, layout, orientation, "image/png");
}

/** @type {Map<string | null, Promise<boolean>>} */
const known = new Map([[null, Promise.resolve(false)], ["webp", Promise.resolve(false)]]);

/** Return whether this browser turns files of a kind by the orientation that `withOrientation` writes. */
function browserTurns(kind) {
  if (!known.has(kind)) known.set(kind, testTurning(kind).catch(() => false));
  return known.get(kind);
}

/** Let the browser show a small file that is turned, in both ways in which the page shows files. */
async function testTurning(kind) {
  const canvas = canvasOf(TEST_SIZE.width, TEST_SIZE.height, (context) => context.fillRect(0, 0, 1, 1));
  const file = await canvas.convertToBlob({ type: `image/${kind}` });
  const turned = withOrientation(file, layoutOf(new Uint8Array(await file.arrayBuffer())), TEST_ORIENTATION);
  const bitmap = await createImageBitmap(turned), image = new Image();
  image.src = URL.createObjectURL(turned);
  await image.decode().finally(() => URL.revokeObjectURL(image.src));
  return [bitmap.height, image.naturalHeight].every((height) => height === TEST_SIZE.width);
}

/** Return a file with the pixels turned, and nothing that would turn them again. */
async function turnedCopy(file, layout, orientation, type) {
  const bitmap = await createImageBitmap(withOrientation(file, layout, UPRIGHT));
  const { flipsX, flipsY, isTransposed } = flipsOf(orientation), { width, height } = turnedSize(bitmap, orientation);
  const [across, down] = [flipsX ? -1 : 1, flipsY ? -1 : 1];
  const [left, top] = [flipsX ? bitmap.width : 0, flipsY ? bitmap.height : 0];
  const canvas = canvasOf(width, height, (context) => {
    if (isTransposed) context.setTransform(0, across, down, 0, top, left);
    else context.setTransform(across, 0, 0, down, left, top);
    context.drawImage(bitmap, 0, 0);
  });
  bitmap.close();
  const copy = await canvas.convertToBlob({ type, quality: JPEG_QUALITY });
  if (copy.type !== type) throw new Error(`this browser cannot write ${type}. Use another one, or save the image as PNG.`);
  return copy;
}

/**
 * Return an image file whose pixels are stored as they are displayed, and that no program turns: for data sets, which many
 * programs read without its metadata. A file that is upright already stays as it is.
 * @param {Blob} file
 * @param {{name: string, width: number, height: number, orientation?: number}} drawn orientation: default: by the rule
 */
export async function uprightFile(file, drawn) {
  const layout = layoutOf(new Uint8Array(await file.arrayBuffer())), turn = drawn.orientation ?? layout.orientation;
  checkSize(drawn, layout.stored && turnedSize(layout.stored, turn));
  if (turn === UPRIGHT) return withOrientation(file, layout, UPRIGHT);
  if (layout.isDeep) return askPng16({ file, orientation: turn, isFile: true });
  return turnedCopy(file, layout, turn, `image/${layout.kind}`);
}

/** @type {{file: Blob, orientation: number, range: number[] | null | undefined, made: Promise<any>}[]} */
let recent = [];

/** Return the picture of a file with 16-bit samples, and its range. An image that was just added is opened next. */
function picture16(file, orientation, range) {
  const same = recent.find((one) => one.file === file && one.orientation === orientation && String(one.range) === String(range));
  const made = same?.made ?? askPng16({ file, orientation, range });
  const latest = { file, orientation, range, made };
  recent = [latest, ...recent.filter((one) => one !== same)].slice(0, MAX_RECENT);
  made.catch(() => (recent = recent.filter((one) => one !== latest))); // the worker's code may not have arrived
  return made;
}

/** Ask the worker for files of 16 bits, which ends afterwards and gives back its memory. */
function askPng16(message) {
  const worker = new Worker(new URL("png16worker.js", import.meta.url), { type: "module" });
  return ask(worker, message).finally(() => worker.terminate());
}
