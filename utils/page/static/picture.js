// Image input: file dialog, drag and drop, clipboard.

import { element } from "./dom.js";

const ACCEPTED_TYPES = ["image/png", "image/jpeg", "image/webp"];
const BASE64_RATIO = 4 / 3;

/**
 * Return the image in a format the service accepts; convert it to PNG if necessary.
 * @param {Blob} file
 * @param {string} name of the file
 * @param {{max_body_bytes: number, max_image_pixels: number} | undefined} limits from `/info`, if known
 * @returns {Promise<{file: Blob, width: number, height: number}>} size with EXIF orientation applied
 */
export async function prepareImage(file, name, limits) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`This browser cannot read ${name} as an image. Choose a PNG, JPEG or WebP file.`);
  }
  const { width, height } = bitmap;
  const accepted = ACCEPTED_TYPES.includes(file.type) ? file : await toPng(bitmap);
  bitmap.close();
  if (width * height > (limits?.max_image_pixels ?? Infinity)) {
    throw new Error(
      `The image has ${millions(width * height)} megapixels; this service accepts up to ${millions(limits.max_image_pixels)}.`,
    );
  }
  if (accepted.size * BASE64_RATIO > (limits?.max_body_bytes ?? Infinity)) {
    throw new Error(
      `The file has ${millions(accepted.size)} MB; this service accepts up to ${millions(limits.max_body_bytes / BASE64_RATIO)}.`,
    );
  }
  return { file: accepted, width, height };
}

/**
 * Call `accept(file, severalFiles)` for dropped, pasted or chosen images, and `reject()` for other files.
 * @returns {() => void} opens the file dialog
 */
export function listenForFiles(accept, reject) {
  const input = element("file");
  const handleFiles = (files) => {
    const file = [...files].find(({ type }) => type.startsWith("image/"));
    if (file) accept(file, files.length > 1);
    else if (files.length) reject();
  };
  input.addEventListener("change", () => {
    handleFiles(input.files);
    input.value = "";
  });
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
    handleFiles(event.dataTransfer.files);
  });
  return () => input.click();
}

async function toPng(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}

function millions(number) {
  return (number / 1e6).toFixed(1);
}
