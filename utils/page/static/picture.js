// The image that a person brings: by file, drop, clipboard, or one of the samples.

const TAKEN = ["image/png", "image/jpeg", "image/webp"];
const BASE64 = 4 / 3;

/** What cannot be used, in words for the person who brought it. */
export class Unusable extends Error {}

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
    throw new Unusable(`This browser cannot show ${file.name || "that"}: a PNG, JPEG or WebP image is expected.`);
  }
  const { width, height } = bitmap;
  const taken = TAKEN.includes(file.type) ? file : await asPng(bitmap);
  bitmap.close();
  if (width * height > (limits?.max_image_pixels ?? Infinity)) {
    throw new Unusable(
      `The image has ${millions(width * height)} megapixels; this service takes up to ${millions(limits.max_image_pixels)}.`,
    );
  }
  if (taken.size * BASE64 > (limits?.max_body_bytes ?? Infinity)) {
    throw new Unusable(
      `The file has ${millions(taken.size)} MB; this service takes up to ${millions(limits.max_body_bytes / BASE64)}.`,
    );
  }
  return { file: taken, width, height };
}

/** Call `take(file)` with what is dropped, pasted or chosen, and `refuse()` where that is no image. */
export function listenForFiles(take, refuse) {
  const input = document.getElementById("file");
  const choose = (files) => {
    const file = [...files].find(({ type }) => type.startsWith("image/"));
    if (file) take(file);
    else if (files.length) refuse();
  };
  input.addEventListener("change", () => {
    choose(input.files);
    input.value = "";
  });
  document.addEventListener("paste", (event) => choose(event.clipboardData.files));
  const dragging = (on) => document.body.classList.toggle("dragging", on);
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    dragging(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || dragging(false));
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
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
