// Copies of objects, on the open image and on others, and the union of two objects.

import { annotator } from "./annotator.js";
import { project, screen, session } from "./current.js";
import { create, createButton, element } from "./dom.js";
import { edit, mend } from "./edits.js";
import { union } from "./formats/spans.js";
import { imageList, openImage } from "./images.js";
import { isElsewhere } from "./keys.js";
import { counted, hint, say } from "./notices.js";
import { NUMBERED_NAME } from "./objects.js";
import { Mask } from "./rle.js";

/**
 * @typedef {{object: import("./objects.js").ImageObject, mask: Mask}} Annotated
 * @type {Annotated | null} the object that was copied last
 */
let copied = null;

/** Return the fields of a copy: a drawn mask without the score, and what the object is. */
function copyOf({ object, mask: { record } }) {
  return { drawn: Mask.fromRecord({ ...record, score: null, point: null }), ...identityOf(object) };
}

/** Return the class of a copy, its name unless it is only a number, and who makes it. @param {import("./objects.js").ImageObject} object */
export function identityOf({ name, classId }) {
  return { classId: project.categoryOf(classId).id, by: annotator(), ...(!NUMBERED_NAME.test(name) && { name }) };
}

/** Return the selected object with its mask; say why if it cannot be copied or merged. @returns {Annotated | undefined} */
function selected() {
  mend.settle();
  const { annotated, objects: { active } } = session, found = annotated.find(({ object }) => object === active);
  if (!found) say(active.proposal ? "This is a proposal: give it a class first" : "Select an object that has a mask first");
  return found;
}

/** Return whether a mask fits on an image; say so if it does not. */
function fits(mask, { width, height }, what) {
  const isSame = width === mask.width && height === mask.height;
  if (!isSame) say(`Nothing copied: ${what} has another size, ${width} x ${height}, not ${mask.width} x ${mask.height}`);
  return isSame;
}

/** Copy the selected object; return whether there is one. */
export function copyObject() {
  const found = selected();
  if (!found) return false;
  copied = found;
  say(`${found.object.name} copied`);
  return true;
}

/** Add the copied object to the open image. */
export function pasteObject() {
  if (!copied) return say("Nothing to paste: select an object and copy it first");
  if (!fits(copied.mask, session, "this image")) return;
  const below = session.annotated.find(({ mask }) => mask.record.counts === copied.mask.record.counts);
  edit((objects) => objects.paste(copyOf(copied)));
  const { name } = session.objects.active;
  say(below ? `${name} pasted on top of ${below.object.name}: draw, erase or click to change it` : `${name} pasted`);
}

/** Open the next image, and add copies of all objects of this one. */
export async function copyToNext() {
  mend.settle();
  const current = session;
  await current.masks.settled();
  if (current !== session) return; // another image was opened
  const { annotated, image } = current, next = imageList.after(image);
  if (!next) say("This is the last image of the list");
  else if (!annotated.length) say("This image has no objects to copy");
  else if (fits(image, next, "the next image")) openWithCopies(next, annotated.map(copyOf));
}

function openWithCopies(image, copies) {
  openImage(image, copies, (added) => {
    const rest = thereAlready(copies.length - added.length);
    hint(`${counted(added.length, "object")} copied to ${image.name}${rest}`);
  });
}

/** Return the end of a sentence about objects that were not added. */
export function thereAlready(count) {
  return count ? `; ${count} ${count === 1 ? "was" : "were"} there already` : "";
}

/** List the objects with which the selected one can be merged. */
function offerMerge(event) {
  if (event.newState === "closed") return;
  const one = selected(), others = session.annotated.filter(({ object }) => object !== one?.object);
  if (one && !others.length) say("There is no other object that has a mask");
  if (!one || !others.length) event.preventDefault();
  element("merge-title").textContent = `Merge ${one?.object.name} with`;
  element("merge-list").replaceChildren(...others.map(({ object: { id, name, classId } }, index) => {
    const highlight = () => screen.highlight(id), textContent = `${name}, ${project.categoryOf(classId).name}`;
    const properties = { textContent, autofocus: !index, onfocus: highlight, onpointerenter: highlight };
    return create("li", {}, createButton("", () => merge(id), properties));
  }));
}

function merge(id) {
  for (const menu of ["merge-menu", "object-menu"]) element(menu).hidePopover();
  const one = selected(), other = session.annotated.find(({ object }) => object.id === id);
  if (!one || !other) return;
  edit((objects) => objects.merge(id, Mask.fromSpans(union([one.mask.spans(), other.mask.spans()]), null)));
  say(`${other.object.name} merged into ${one.object.name}`);
}

element("merge-menu").addEventListener("beforetoggle", offerMerge);
// All actions but the menu of objects to merge are done by one press.
for (const action of document.querySelectorAll("#object-menu > button:not(#merge)")) {
  action.addEventListener("click", () => element("object-menu").hidePopover());
}
// The clipboard gets the name: otherwise an image that is in it would be pasted.
document.addEventListener("copy", (event) => {
  if (!session || isElsewhere() || !document.getSelection().isCollapsed || !copyObject()) return;
  event.clipboardData.setData("text/plain", copied.object.name);
  event.preventDefault();
});
document.addEventListener("paste", ({ clipboardData: { files } }) => {
  if (session && copied && !files.length && !isElsewhere()) pasteObject();
});
