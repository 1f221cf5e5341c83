// Exports of a session: PNG files, COCO JSON, Python code, a curl command.

import { isMarked } from "./objects.js";

const HAND_WORK = "The mask on the page was edited by hand: this request returns it without these edits.";

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
      score: mask.score ?? undefined,
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

/** Return Python code that requests the active object's mask. */
export function pythonCode({ name, objects, masks }) {
  const { active } = objects;
  const { multimask_output: multimask, ...fields } = masks.fieldsOf(active);
  // The Python client sorts candidates by score; this page does not.
  const rank = multimask ? (masks.candidates(active) ?? []).indexOf(masks.get(active)) : -1;
  const parameters = Object.entries(fields).map(([field, value]) => `${field}=${JSON.stringify(value)}`);
  if (multimask) parameters.push("multimask_output=True");
  const lines = [
    ...(active.drawn ? [`# ${HAND_WORK}`] : []),
    "from mobile_sam_client import Client",
    "",
    `with Client(${JSON.stringify(serviceUrl())}) as service:`,
    `    found = service.segment(${JSON.stringify(name)}, ${parameters.join(", ")})${rank >= 0 ? `.candidates[${rank}]` : ""}`,
    "print(found.score, found.mask.shape, found.box_xyxy)",
    "",
  ];
  return lines.join("\n");
}

/**
 * Return a shell command that requests the active object's mask.
 * @param {import("./session.js").Session} session
 * @param {boolean} withKey whether the service requires an API key
 */
export function curlCommand({ name, objects, masks }, withKey) {
  const { candidate, drawn } = objects.active;
  const key = withKey ? ' -H "Authorization: Bearer $MOBILE_SAM_API_KEY"' : "";
  const request = `request=${JSON.stringify(masks.fieldsOf(objects.active))}`;
  const lines = [
    ...(drawn ? [`# ${HAND_WORK}`] : []),
    ...(candidate ? [`# This mask is masks[${candidate - 1}] of the answer.`] : []),
    `curl -sS --fail-with-body -H 'Accept: application/json'${key} \\`,
    `  -F ${shellQuoted(`image=@${JSON.stringify(name)}`)} -F ${shellQuoted(request)} \\`,
    `  ${shellQuoted(`${serviceUrl()}/mobile_sam`)}`,
    "",
  ];
  return lines.join("\n");
}

function serviceUrl() {
  return new URL(".", document.baseURI).href.replace(/\/$/, "");
}

function shellQuoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
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
