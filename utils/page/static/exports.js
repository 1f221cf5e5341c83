// What a person takes along: files of the masks.

import { isMarked, promptsOf } from "./objects.js";

/** A mask as a PNG of the image's size, white on black. */
export async function maskPng(mask) {
  const { canvas, context } = sheet(mask);
  context.fillStyle = "#000";
  context.fillRect(0, 0, mask.width, mask.height);
  putOver(context, mask.pixels(1, 0xffffffff));
  return canvas.convertToBlob({ type: "image/png" });
}

/** The image where the mask is, nothing elsewhere. */
export async function cutoutPng(mask, picture) {
  const { canvas, context } = sheet(mask);
  putOver(context, mask.pixels(1, 0xffffffff));
  context.globalCompositeOperation = "source-in";
  context.drawImage(picture, 0, 0, mask.width, mask.height);
  return canvas.convertToBlob({ type: "image/png" });
}

/**
 * All objects in COCO's format; a category for each name, without a number at its end.
 * @param {{name: string, width: number, height: number}} image
 * @param {{name: string, mask: import("./rle.js").Mask}[]} objects
 */
export function coco(image, objects) {
  const category = ({ name }) => name.replace(/\s*\d+$/, "").trim() || "object";
  const names = [...new Set(objects.map(category))];
  return {
    images: [{ id: 1, file_name: image.name, width: image.width, height: image.height }],
    categories: names.map((name, index) => ({ id: index + 1, name })),
    annotations: objects.map((object, index) => {
      const { area, box, score, height, width, counts } = object.mask;
      return {
        id: index + 1,
        image_id: 1,
        category_id: names.indexOf(category(object)) + 1,
        segmentation: { size: [height, width], counts },
        area,
        bbox: [box[0], box[1], box[2] - box[0], box[3] - box[1]],
        iscrowd: 0,
        score,
        name: object.name,
      };
    }),
  };
}

/** Python that asks for an object's mask; null where no clicks lead to it. */
export function python(object, imageName) {
  if (object.found || !isMarked(object)) return null;
  const { multimask_output: multimask, ...prompts } = promptsOf(object);
  const fields = Object.entries(prompts).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  if (multimask) fields.push("multimask_output=True");
  const url = new URL(".", document.baseURI).href.replace(/\/$/, "");
  return [
    "from mobile_sam_client import Client",
    "",
    `with Client(${JSON.stringify(url)}) as service:`,
    `    found = service.segment(${JSON.stringify(imageName)}, ${fields.join(", ")})`,
    "print(found.score, found.mask.shape, found.box_xyxy)",
    "",
  ].join("\n");
}

/** Let the browser save a file. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function sheet({ width, height }) {
  const canvas = new OffscreenCanvas(width, height);
  return { canvas, context: canvas.getContext("2d") };
}

function putOver(context, painted) {
  if (painted) context.putImageData(painted.pixels, painted.x, painted.y);
}
