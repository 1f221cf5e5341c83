// Image input: file dialog, drag and drop, clipboard.

import { jpegCopy, millions, tooManyBytes, tooManyPixels, toPng } from "./copies.js";
import { element } from "./dom.js";
import { UPRIGHT } from "./orientation.js";
import { viewOf } from "./view.js";

const ACCEPTED_TYPES = ["image/png", "image/jpeg", "image/webp"];
const BASE64_RATIO = 4 / 3;
const HEIC = /\.hei[cf]$/i;

/**
 * Return the image in a format the service accepts; convert it to PNG if necessary.
 * @param {Blob} file
 * @param {string} name of the file
 * @param {{max_body_bytes: number, max_image_pixels: number} | undefined} limits from `/info`, if known
 * @param {boolean} allowCopy whether an image above the limits becomes a copy within them
 * @returns {Promise<{file: Blob, picture: Blob, width: number, height: number, orientation: number, original?: import("./copies.js").Original}>}
 *   picture: what to draw; size and orientation of the displayed image; original: of a copy
 * @throws {import("./copies.js").TooLarge} the image is above the limits
 */
export async function prepareImage(file, name, limits, allowCopy) {
  const { picture, orientation } = await viewOf(file);
  let bitmap;
  try {
    bitmap = await createImageBitmap(picture);
  } catch {
    throw new Error(whyUnreadable(file, name));
  }
  const { width, height } = bitmap;
  const maxPixels = limits?.max_image_pixels ?? Infinity, maxBytes = (limits?.max_body_bytes ?? Infinity) / BASE64_RATIO;
  try {
    const fits = width * height <= maxPixels;
    if (!fits && !allowCopy) throw tooManyPixels(width * height, maxPixels);
    const isAccepted = ACCEPTED_TYPES.includes(file.type);
    const accepted = !fits || isAccepted ? file : await toPng(bitmap);
    if (fits && accepted.size <= maxBytes) {
      const drawn = isAccepted ? { picture, orientation } : { picture: accepted, orientation: UPRIGHT };
      return { file: accepted, ...drawn, width, height };
    }
    if (!allowCopy) throw tooManyBytes(accepted.size, maxBytes);
    const copy = await jpegCopy(bitmap, file, orientation, maxPixels);
    if (copy.file.size > maxBytes) throw new Error(`even a JPEG copy is above the limit of ${millions(maxBytes)} MB. Scale the image down first.`);
    return { ...copy, picture: copy.file };
  } finally {
    bitmap.close();
  }
}

/** Return why the browser cannot read a file as an image, and what to do. */
function whyUnreadable(file, name) {
  if (HEIC.test(name)) return "this browser cannot read HEIC. Save it as JPEG, or open this page in Safari, which reads it.";
  if (!file.type.startsWith("image/")) return "this is not an image. Choose a PNG, JPEG or WebP file.";
  return "this browser cannot read it as an image: it is damaged, or in a format unknown here. Save it again as PNG, JPEG or WebP.";
}

/**
 * Call `accept(files)` for dropped, pasted or chosen files. In a folder, only images are accepted, if it has any.
 * @param {(files: {file: File, name: string}[]) => void} accept name: with the folder, if there is one
 * @returns {{files: () => void, folder: () => void}} open the dialogs
 */
export function listenForFiles(accept) {
  /** @param {{file: File, name: string}[]} found */
  const handle = (found) => {
    // Many systems know no type of HEIC files.
    const images = found.filter(({ file, name }) => file.type.startsWith("image/") || HEIC.test(name) || !name.includes("/"));
    const files = images.length ? images : found;
    files.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
    if (files.length) accept(files);
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
