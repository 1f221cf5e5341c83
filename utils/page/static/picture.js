// The image that a person brings: by file, drop, clipboard, or one of the samples.

import { element } from "./dom.js";

const TAKEN = ["image/png", "image/jpeg", "image/webp"];
const BASE64 = 4 / 3;

/**
 * An image as the service takes it.
 * @param {Blob} file
 * @param {{max_body_bytes: number, max_image_pixels: number} | undefined} limits of the service, where known
 * @returns {Promise<{file: Blob, width: number, height: number}>} size as displayed
 */
export async function usable(file, limits) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || "That"} cannot be read as an image here: a PNG, JPEG or WebP file is expected.`);
  }
  const { width, height } = bitmap;
  const taken = TAKEN.includes(file.type) ? file : await asPng(bitmap);
  bitmap.close();
  if (width * height > (limits?.max_image_pixels ?? Infinity)) {
    throw new Error(
      `The image has ${millions(width * height)} megapixels; this service takes up to ${millions(limits.max_image_pixels)}.`,
    );
  }
  if (taken.size * BASE64 > (limits?.max_body_bytes ?? Infinity)) {
    throw new Error(
      `The file has ${millions(taken.size)} MB; this service takes up to ${millions(limits.max_body_bytes / BASE64)}.`,
    );
  }
  return { file: taken, width, height };
}

/**
 * Call `take(file, more)` with what is dropped, pasted or chosen, and `refuse()` where that is no image.
 * @returns {() => void} lets the person choose a file
 */
export function listenForFiles(take, refuse) {
  const input = element("file");
  const choose = (files) => {
    const file = [...files].find(({ type }) => type.startsWith("image/"));
    if (file) take(file, files.length > 1);
    else if (files.length) refuse();
  };
  input.addEventListener("change", () => {
    choose(input.files);
    input.value = "";
  });
  document.addEventListener("paste", (event) => choose(event.clipboardData.files));
  const dragging = (on) => document.body.classList.toggle("dragging", on);
  // Also what is no file: the browser would leave the page for a link that is dropped on it.
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    dragging(event.dataTransfer.types.includes("Files"));
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || dragging(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    dragging(false);
    choose(event.dataTransfer.files);
  });
  return () => input.click();
}

async function asPng(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}

function millions(number) {
  return (number / 1e6).toFixed(1);
}
