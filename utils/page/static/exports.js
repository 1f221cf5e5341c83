// Exports of a session: PNG files, COCO JSON, Python code.

import { isMarked, promptsOf } from "./objects.js";

/** Save the active object's mask, white on black, as a PNG of the image's size. */
export async function saveMask({ name, objects, masks }) {
  const { active } = objects;
  const mask = masks.get(active);
  if (!mask) return;
  const { canvas, context } = newCanvas(mask);
  context.fillStyle = "#000";
  context.fillRect(0, 0, mask.width, mask.height);
  // drawImage blends; putImageData would also write the transparent pixels outside the mask.
  context.drawImage(whiteMask(mask), 0, 0);
  save(await canvas.convertToBlob({ type: "image/png" }), `${stem(name)} ${active.name} mask.png`);
}

/** Save the image inside the active object's mask as a PNG, transparent elsewhere. */
export async function saveCutout({ name, objects, masks }, picture) {
  const { active } = objects;
  const mask = masks.get(active);
  if (!mask) return;
  const { canvas, context } = newCanvas(mask);
  context.drawImage(whiteMask(mask), 0, 0);
  context.globalCompositeOperation = "source-in";
  context.drawImage(picture, 0, 0, mask.width, mask.height);
  save(await canvas.convertToBlob({ type: "image/png" }), `${stem(name)} ${active.name} cutout.png`);
}

/**
 * Save all objects as COCO JSON, with one category per object name without its trailing number.
 * @returns {number} number of marked objects omitted because they have no mask
 */
export function saveCoco({ name, width, height, objects, masks }) {
  const found = objects.list.map((object) => ({ object, mask: masks.get(object) })).filter(({ mask }) => mask?.area);
  const categoryOf = ({ object }) => object.name.replace(/\s*\d+$/, "").trim() || "object";
  const categories = [...new Set(found.map(categoryOf))];
  const document = {
    images: [{ id: 1, file_name: name, width, height }],
    categories: categories.map((category, index) => ({ id: index + 1, name: category })),
    annotations: found.map(({ object, mask }, index) => ({
      id: index + 1,
      image_id: 1,
      category_id: categories.indexOf(categoryOf({ object })) + 1,
      segmentation: { size: [mask.height, mask.width], counts: mask.counts },
      area: mask.area,
      bbox: [mask.box[0], mask.box[1], mask.box[2] - mask.box[0], mask.box[3] - mask.box[1]],
      iscrowd: 0,
      score: mask.score,
      name: object.name,
    })),
  };
  save(new Blob([JSON.stringify(document)], { type: "application/json" }), `${stem(name)} coco.json`);
  return objects.list.filter(isMarked).length - found.length;
}

/** Return a file name without its extension. */
function stem(name) {
  return name.replace(/\.\w+$/, "");
}

/** Copy Python code that requests the active object's mask. */
export async function copyPython({ name, objects, masks }) {
  const { active } = objects;
  if (active.found || !isMarked(active)) return;
  const { multimask_output: multimask, ...prompts } = promptsOf(active);
  // The Python client sorts candidates by score; this page does not.
  const rank = multimask ? (masks.candidates(active) ?? []).indexOf(masks.get(active)) : -1;
  const fields = Object.entries(prompts).map(([field, value]) => `${field}=${JSON.stringify(value)}`);
  if (multimask) fields.push("multimask_output=True");
  const url = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const lines = [
    "from mobile_sam_client import Client",
    "",
    `with Client(${JSON.stringify(url)}) as service:`,
    `    found = service.segment(${JSON.stringify(name)}, ${fields.join(", ")})${rank >= 0 ? `.candidates[${rank}]` : ""}`,
    "print(found.score, found.mask.shape, found.box_xyxy)",
    "",
  ];
  await navigator.clipboard.writeText(lines.join("\n"));
}

/** Download a blob as a file. */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return a canvas with the mask in white on transparent. */
function whiteMask(mask) {
  const { canvas, context } = newCanvas(mask);
  const painted = mask.pixels(1, 0xffffffff);
  if (painted) context.putImageData(painted.pixels, painted.x, painted.y);
  return canvas;
}

function newCanvas({ width, height }) {
  const canvas = new OffscreenCanvas(width, height);
  return { canvas, context: canvas.getContext("2d") };
}
