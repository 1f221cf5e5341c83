// Changes of the objects on the open image, by clicks, boxes, keys and buttons.

import { connection, project, screen, session } from "./current.js";
import { element, radio } from "./dom.js";
import { listed, proposalsOf, stacked, withoutKnown } from "./found.js";
import { Mend } from "./mend.js";
import { counted, hint, say, showBusy, showDone, showProgress } from "./notices.js";
import { isEmpty, isLater, isMarked, isPrompted } from "./objects.js";
import { Preview } from "./preview.js";
import { ask } from "./question.js";
import { Refine } from "./refine.js";
import { handleError, segment, segmentAll } from "./requests.js";
import { acceptsClicks, hintAtPrompts, versionField } from "./versions.js";

export const mend = new Mend(screen, { edit, leaveClicks: () => hover(null) });
export const refine = new Refine(screen.stage);
export const preview = new Preview(screen.stage, (reason) => connection.away || hint(reason));

screen.connect({
  select,
  rename: (id, name) => setDisplay(id, { name }),
  hide: (id) => setDisplay(id, { hidden: !session.objects.list.find((object) => object.id === id).hidden }),
  confirm: (id) => edit((objects) => objects.confirm(id)),
  remove: (id) => edit((objects) => objects.remove(id)),
  removeMark: (index) => (isLater(session.objects.active, index) ? edit : replace)((objects) => objects.removeMark(index)),
});

/** Change the objects, show the result and request the active object's mask. */
export function edit(change, clickTime) {
  if (!session) return;
  mend.settle();
  const { objects, masks } = session;
  change(objects);
  masks.abortStale(objects.list);
  // First of all the request: the screen is updated while the service works.
  segment(objects.active, clickTime);
  preview.clear();
  screen.show();
  project.changed(session);
}

/**
 * Change the active object's marks; ask before this replaces a mask edited by hand.
 * @param {(objects: import("./objects.js").Objects, isNew: boolean) => void} change isNew: for a new object
 * @param {{time?: number, canAdd?: boolean, verb?: string}} [options] time: as in `edit`; canAdd: the change can be one for a new object; verb: what happens to the edits
 */
export function replace(change, { time, canAdd = false, verb = "Replace" } = {}) {
  if (!session.objects.active.drawn) {
    edit((objects) => change(objects, false), time);
    return;
  }
  ask(`This object was edited by hand. ${verb} the edits?`, {
    [verb]: () => edit((objects) => change(objects, false)),
    ...(canAdd && { "Keep and add a new object": () => edit((objects) => change(objects, true)) }),
    "Cancel": () => screen.show(),
  });
}

/** Undo or redo, and request all missing masks. */
export function restore(change) {
  edit(change);
  if (session) segmentAll();
}

function setDisplay(id, fields) {
  session.objects.setDisplay(id, fields);
  project.changed(session);
  screen.show();
}

function select(id) {
  const isActive = id === session.objects.active.id;
  if (!isActive) mend.settle();
  session.objects.select(id);
  if (isActive) return;
  project.changed(session);
  screen.show();
  segment(session.objects.active);
}

export async function everything() {
  const current = session;
  if (!current || element("everything").matches(":disabled")) return;
  showProgress(true);
  try {
    const found = await current.everything(Number(element("grid").value), showDone);
    if (current !== session) return;
    const added = withoutKnown(found, current), dropped = found.length - added.length;
    edit((objects) => objects.addAll(added.map((mask) => ({ found: mask, proposal: true }))));
    const rest = dropped ? ` (without ${dropped} already here)` : "";
    say(added.length ? `${counted(added.length, "object")} found${rest}: click those to keep` : `No new objects found${rest}`);
  } catch (error) {
    if (current === session) handleError(error, everything);
  } finally {
    if (current === session) {
      showProgress(false);
      showBusy("");
    }
  }
}

/** Hide other proposals than before. */
export function changeFilter(filter) {
  session.objects.filter = filter;
  project.changed(session);
  screen.show();
}

/** Make objects of the class in use of all proposals that the filter does not hide. */
export function acceptShown() {
  const shown = proposalsOf(listed(session.objects));
  edit((objects) => objects.accept(shown.map(({ id }) => id)));
  hint(`${counted(shown.length, "object")} added as ${project.categoryOf(project.classId).name}`);
}

export function discardProposals() {
  const count = proposalsOf(session.objects.list).length;
  edit((objects) => objects.discardProposals());
  hint(`${counted(count, "proposal")} discarded`);
}

// ---- gestures

/** Return the label of the next click: 1 includes, 0 excludes. */
export function currentLabel() {
  return Number(radio("label").value);
}

/** Return whether a mark at a pixel begins a new object. With "One click, one object" it does beside the mask, unless Shift is held. */
function isForNew(x, y, label, shift) {
  if (!element("one-click").checked) return shift;
  const { masks, objects: { active } } = session;
  return !shift && label === 1 && isMarked(active) && !masks.objectAt(x, y, [active]);
}

/** Return the proposal that a plain click accepts, unless the click belongs to an object that has clicks. */
function acceptable(x, y, label) {
  const { masks, objects } = session, { active } = objects;
  const isBeside = isEmpty(active) || active.found || isForNew(x, y, label, false);
  const object = label === 1 && isBeside ? masks.objectAt(x, y, stacked(objects)) : null;
  return object?.proposal ? object : null;
}

export function click(x, y, { label: ownLabel, shift, pick, time }) {
  if (mend.tool !== "click") {
    mend.press(x, y, ownLabel === 0);
    return;
  }
  hint("");
  const { masks, objects } = session, label = ownLabel ?? currentLabel(), isNew = isForNew(x, y, label, shift);
  const object = pick ? masks.objectAt(x, y, stacked(objects)) : shift ? null : acceptable(x, y, label);
  if (object) {
    if (pick) select(object.id);
    else edit(() => objects.accept([object.id], object.id));
  } else if (pick) {
    hint("No object there");
  } else if (!acceptsClicks()) {
    hintAtPrompts();
  } else {
    edit(() => objects.addPoint({ x, y, label }, isNew), time);
    if (!isMarked(objects.active)) hint("Now click the object itself, or drag a box around it");
  }
  screen.highlight(null);
}

/** Ask for the mask of a press that may become a click. */
export function press(x, y, { label: ownLabel, shift, pick }) {
  const { objects } = session, label = ownLabel ?? currentLabel(), isNew = isForNew(x, y, label, shift);
  if (pick || !acceptsClicks() || (!shift && acceptable(x, y, label))) return;
  preview.press(objects.clicked({ x, y, label }, isNew));
}

/** Set the box of the active object or of a new one; isChange: the active object's box is moved or resized. */
export function box(corners, time, isChange = false) {
  if (!corners || corners[0] >= corners[2] || corners[1] >= corners[3]) screen.stage.drawBox(session.objects.active.box);
  else if (!isChange && element("one-click").checked && isMarked(session.objects.active)) edit((objects) => objects.addBox(corners, true), time);
  else replace((objects, isNew) => objects.addBox(corners, isNew), { time, canAdd: !isChange });
}

export function clear() {
  replace((objects) => objects.clear(), { verb: "Discard" });
}

export function hover(pixel) {
  if (mend.tool !== "click") pixel = null;
  const object = pixel ? acceptable(pixel.x, pixel.y, currentLabel()) : null;
  const isNew = pixel !== null && isForNew(pixel.x, pixel.y, currentLabel(), false);
  screen.highlight(object?.id ?? null);
  const isShown = pixel && !object && (isNew || !isMarked(session.objects.active)) && element("hover").checked && acceptsClicks();
  preview.at(isShown ? session.objects.clicked({ ...pixel, label: 1 }, isNew) : null);
}

/** Refine the active object in the visible part of the image, and what is clicked from now on; or stop that. */
export function refineHere() {
  const part = refine.toggle(), { active } = session.objects;
  if (part && isPrompted(active) && !active.found && !active.drawn) edit((objects) => objects.change({ part, version: versionField().model_version }));
}

export function setCandidate(number, time) {
  if (!element("candidates").disabled) replace((objects) => objects.choose(number), { time });
}
