// Exports of the active object: PNG files, Python code, a curl command.

import { canvasOf, create } from "./dom.js";
import { scaled } from "./regions.js";
import { versionField } from "./versions.js";
import { viewOf } from "./view.js";

const HAND_WORK = "The mask on the page was edited by hand: this request returns it without these edits.";

/** Save the active object's mask, white on black, as a PNG of the image's size. */
export function saveMask(session) {
  return savePng(session, "mask", (context, { width, height }) => {
    context.globalCompositeOperation = "destination-over";
    context.fillRect(0, 0, width, height);
  });
}

/** Save the image inside the active object's mask as a PNG, transparent elsewhere. */
export async function saveCutout(session, picture) {
  const { original: full } = session.image, view = full && (await viewOf(full.file, { orientation: full.orientation }));
  const original = view && (await createImageBitmap(view.picture));
  await savePng(session, "cutout", (context, { width, height }) => {
    context.globalCompositeOperation = "source-in";
    context.drawImage(original ?? picture, 0, 0, width, height);
  });
  original?.close();
}

/** Save the active object's mask in white on transparent, after `draw` has changed it. */
async function savePng(session, what, draw) {
  const { active } = session.objects, mask = atFullSize(session.masks.get(active), session.image.original);
  if (!mask) return;
  const canvas = canvasOf(mask.width, mask.height, (context) => {
    const painted = mask.pixels(1, 0xffffffff);
    if (painted) context.putImageData(painted.pixels, painted.x, painted.y);
    draw(context, mask);
  });
  download(await canvas.convertToBlob({ type: "image/png" }), fileName(session.name, active.name, `${what}.png`));
}

/** Return a mask at the size of the original image: a copy's is scaled up. */
export function atFullSize(mask, original) {
  return mask && original ? scaled(mask, original) : mask;
}

/** Return the name of a file about an image, without spaces. */
export function fileName(image, ...parts) {
  return [image.replace(/\.\w+$/, ""), ...parts].join("-").replace(/\s+/g, "-");
}

/** Return Python code that requests the active object's mask. */
export function pythonCode({ name, objects, masks }) {
  const { active } = objects, image = JSON.stringify(name), version = versionField(active.version).model_version;
  const { multimask_output: multimask, ...fields } = masks.fieldsOf(active);
  // The Python client sorts candidates by score; this page does not.
  const ranked = (masks.candidates(active) ?? []).sort((one, other) => other.score - one.score);
  const rank = multimask ? ranked.indexOf(masks.get(active)) : -1;
  const parameters = Object.entries(fields).map(([field, value]) => `${field}=${JSON.stringify(value)}`);
  if (multimask) parameters.push("multimask_output=True");
  const lines = [
    ...(active.drawn ? [`# ${HAND_WORK}`] : []),
    "from mobile_sam_client import Client",
    "",
    `with Client(${JSON.stringify(serviceUrl())}${version ? `, model_version=${version}` : ""}) as service:`,
    `    found = service.segment(${image}, ${parameters.join(", ")})${rank >= 0 ? `.candidates[${rank}]` : ""}`,
    "print(found.score, found.mask.shape, found.box_xyxy)",
    ...notesOn(active),
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
  const { active } = objects, { candidate, drawn } = active;
  const key = withKey ? ' -H "Authorization: Bearer $MOBILE_SAM_API_KEY"' : "";
  const request = `request=${JSON.stringify({ ...masks.fieldsOf(active), ...versionField(active.version) })}`;
  const lines = [
    ...(drawn ? [`# ${HAND_WORK}`] : []),
    ...(candidate ? [`# This mask is masks[${candidate - 1}] of the answer.`] : []),
    ...notesOn(active),
    `curl -sS --fail-with-body -H 'Accept: application/json'${key} \\`,
    `  -F ${shellQuoted(`image=@${JSON.stringify(name)}`)} -F ${shellQuoted(request)} \\`,
    `  ${shellQuoted(`${serviceUrl()}/mobile_sam`)}`,
    "",
  ];
  return lines.join("\n");
}

/** Return comments on what distinguishes the request's mask from the page's. @param {import("./objects.js").ImageObject} object */
function notesOn({ clip, box }) {
  return clip && box ? ["# On the page this mask is clipped to its box."] : [];
}

function serviceUrl() {
  return new URL(".", document.baseURI).href.replace(/\/$/, "");
}

function shellQuoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Download a blob as a file. */
export function download(blob, name) {
  const link = create("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Copy a text without the clipboard API; return whether the browser did. */
export function copyByCommand(text) {
  const field = create("textarea", { value: text, className: "hidden" }), { activeElement } = document;
  document.body.append(field);
  field.focus({ preventScroll: true });
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  /** @type {HTMLElement} */ (activeElement).focus({ preventScroll: true });
  return isCopied;
}
