// Image input: file dialog, drag and drop, clipboard.

import { jpegCopy, millions, TooManyBytes, TooManyPixels, toPng } from "./copies.js";
import { element } from "./dom.js";

const ACCEPTED_TYPES = ["image/png", "image/jpeg", "image/webp"];
const BASE64_RATIO = 4 / 3;

/**
 * Return the image in a format the service accepts; convert it to PNG if necessary.
 * @param {Blob} file
 * @param {string} name of the file
 * @param {{max_body_bytes: number, max_image_pixels: number} | undefined} limits from `/info`, if known
 * @param {boolean} allowCopy whether an image above the limits becomes a copy within them
 * @returns {Promise<{file: Blob, width: number, height: number, original?: import("./copies.js").Original}>} size with EXIF
 *   orientation applied; original: of a copy
 * @throws {import("./copies.js").TooLarge} the image is above the limits
 */
export async function prepareImage(file, name, limits, allowCopy) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`This browser cannot read ${name} as an image. Choose a PNG, JPEG or WebP file.`);
  }
  const { width, height } = bitmap;
  const maxPixels = limits?.max_image_pixels ?? Infinity, maxBytes = (limits?.max_body_bytes ?? Infinity) / BASE64_RATIO;
  try {
    const fits = width * height <= maxPixels;
    if (!fits && !allowCopy) throw new TooManyPixels(width * height, maxPixels);
    const accepted = !fits || ACCEPTED_TYPES.includes(file.type) ? file : await toPng(bitmap);
    if (fits && accepted.size <= maxBytes) return { file: accepted, width, height };
    if (!allowCopy) throw new TooManyBytes(accepted.size, maxBytes);
    const copy = await jpegCopy(bitmap, file, maxPixels);
    if (copy.file.size > maxBytes) throw new Error(`Even as a JPEG copy, ${name} is above the limit of ${millions(maxBytes)} MB.`);
    return copy;
  } finally {
    bitmap.close();
  }
}

/**
 * Call `accept(images)` for dropped, pasted or chosen images, also in folders, and `reject()` where there are only others.
 * @param {(images: {file: File, name: string}[]) => void} accept name: with the folder, if there is one
 * @param {() => void} reject
 * @returns {{files: () => void, folder: () => void}} open the dialogs
 */
export function listenForFiles(accept, reject) {
  /** @param {{file: File, name: string}[]} found */
  const handle = (found) => {
    const images = found.filter(({ file }) => file.type.startsWith("image/"));
    images.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
    if (images.length) accept(images);
    else if (found.length) reject();
  };
  const handleFiles = (files) => handle([...files].map((file) => ({ file, name: file.webkitRelativePath || file.name || "image" })));
  const inputs = [element("file"), element("folder")];
  for (const input of inputs) {
    input.addEventListener("change", () => {
      handleFiles(input.files);
      input.value = "";
    });
  }
  document.addEventListener("paste", (event) => handleFiles(event.clipboardData.files));
  const setDragging = (on) => document.body.classList.toggle("dragging", on);
  // Handle non-files too: otherwise a dropped link navigates away from the page.
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    setDragging(event.dataTransfer.types.includes("Files"));
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || setDragging(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    setDragging(false);
    // Entries are gone once this handler has returned; without them, as for dropped text, files are read.
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry);
    if (entries.some((entry) => entry.isDirectory)) filesIn(entries).then(handle);
    else handleFiles(event.dataTransfer.files);
  });
  return { files: () => inputs[0].click(), folder: () => inputs[1].click() };
}

/**
 * Return all files in dropped folders.
 * @param {any[]} entries FileSystemEntry
 * @returns {Promise<{file: File, name: string}[]>}
 */
async function filesIn(entries) {
  const found = [];
  for (const entry of entries) {
    if (entry.isFile) {
      found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), name: entry.fullPath.slice(1) });
      continue;
    }
    const reader = entry.createReader();
    // Each call returns up to 100 entries, and none at the end.
    for (;;) {
      const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!part.length) break;
      found.push(...(await filesIn(part)));
    }
  }
  return found;
}
