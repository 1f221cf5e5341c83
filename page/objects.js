// The objects on an image with their clicks and boxes, and the undo history. Their masks are in masks.js.

import { annotator } from "./annotator.js";
import { cached } from "./cached.js";
import { colourOf } from "./colours.js";
import { Mask } from "./rle.js";
import { acceptsClicks, versionField } from "./versions.js";

/**
 * @typedef {{x: number, y: number, label: 0 | 1}} Point image pixels
 * @typedef {object} ImageObject
 * @property {number} id
 * @property {string} name
 * @property {string} colour `#rrggbb`
 * @property {Point[]} points
 * @property {[number, number, number, number] | null} box x0, y0, x1, y1
 * @property {0 | 1 | 2 | 3} candidate 0: the model's mask for unambiguous prompts
 * @property {boolean} clip whether the mask is clipped to the box
 * @property {import("./rle.js").Mask | null} found mask from "Segment everything", in place of clicks
 * @property {boolean} [proposal] found, and not yet accepted: neither counted nor exported
 * @property {import("./rle.js").Mask | null} drawn mask edited by hand, in place of the requested or found one
 * @property {number} [settled] number of clicks before `drawn`: later ones change it; undefined in projects of earlier versions: all
 * @property {boolean} hidden
 * @property {number[] | null} [part] x0, y0, x1, y1 of the part of the image that is asked for the mask, x1 and y1 exclusive; null: all of it
 * @property {number} [version] version of the model that is asked for the mask; undefined: the one in use
 * @property {number} classId
 * @property {string[]} [review] why a mask that was followed to this image may be wrong, until a person has changed or confirmed it
 * @property {import("./follow.js").Track} [track] of an object that was followed
 * @property {string} [by] name of the person who made the object, or changed its mask last
 */

/** Undo steps that are stored. */
const MAX_STORED_STEPS = 100;

/** A name that an object gets at first. */
export const NUMBERED_NAME = /^object (\d+)$/;

/** A person has changed or confirmed the mask: it is no longer in doubt, and is what later images are compared with. */
const SEEN = { review: undefined, track: undefined };

/** Fields that change the mask. */
const MASK_CHANGES = ["points", "box", "candidate", "clip", "found", "drawn", "part"];

/** Fields with a mask. */
const MASK_FIELDS = ["found", "drawn"];

/** Return the stored form of an object, the same each time, so that all states that share the object store it once. */
const toStored = cached((object) => {
  const masks = MASK_FIELDS.filter((name) => object[name]).map((name) => [name, object[name].record]);
  return { ...object, ...Object.fromEntries(masks) };
});

/** @returns {ImageObject} */
function newObject(id, number, classId) {
  return {
    id,
    name: `object ${number}`,
    colour: colourOf(number),
    points: [],
    box: null,
    candidate: 0,
    clip: false,
    found: null,
    proposal: false,
    drawn: null,
    settled: 0,
    part: null,
    hidden: false,
    classId,
  };
}

/** Return whether the object has enough clicks for a request, or a box. */
export function isPrompted(object) {
  return object.box !== null || object.points.some((point) => point.label === 1);
}

/** Return whether the object has a mask or enough marks for one. */
export function isMarked(object) {
  return object.drawn !== null || object.found !== null || isPrompted(object);
}

/** Return the objects, without proposals, that have a mask or enough marks for one. @param {any} work on an image, as it is stored */
export function markedIn(work) {
  return (work?.objects.now.list ?? []).filter((object) => !object.proposal && isMarked(object));
}

/** Return whether the object's mask is all of its box, and nothing else: it was imported so. */
export function isWholeBox(object) {
  const { box, drawn, proposal } = object;
  if (!box || !drawn || proposal || laterClicks(object).length) return false;
  const [x0, y0, x1, y1] = box;
  return String(drawn.box) === String([x0, y0, x1 + 1, y1 + 1]) && drawn.area === (x1 + 1 - x0) * (y1 + 1 - y0);
}

/** Return the clicks that change a mask edited by hand. */
export function laterClicks({ drawn, points, settled = points.length }) {
  return drawn ? points.slice(settled) : [];
}

/** Return whether a mark is one of the later clicks, by its index; null: the box. */
export function isLater(object, index) {
  return laterClicks(object).includes(object.points[index]);
}

/** Return whether the object has neither marks nor a mask. */
export function isEmpty(object) {
  return !object.points.length && !isMarked(object);
}

/**
 * Return the prompt fields of the request for the object's mask.
 * @param {Pick<ImageObject, "points" | "box" | "candidate">} object
 */
export function promptsOf(object) {
  const marked = (label) => object.points.filter((point) => point.label === label).map(({ x, y }) => [x, y]);
  const positive = marked(1), negative = marked(0);
  return {
    ...(positive.length && { pos_coords: positive }),
    ...(negative.length && { neg_coords: negative }),
    ...(object.box && { box: object.box }),
    ...(object.candidate && { multimask_output: true }),
  };
}

function activeOf({ list, activeId }) {
  return list.find(({ id }) => id === activeId);
}

function withFields(list, id, fields) {
  return list.map((object) => (object.id === id ? { ...object, ...fields } : object));
}

function withActiveFields(state, fields) {
  return { ...state, list: withFields(state.list, state.activeId, fields) };
}

/** All objects and the undo history. States are immutable, so undo and redo only swap them. */
export class Objects {
  #past = [];
  #future = [];
  /** Ids are never reused, even after undo, because responses for an old id may still arrive. */
  #lastId = 0;
  /** Which proposals are listed, and how: kept with the image. `size`: least share of the image in per cent. */
  filter = { size: 0, score: 0, sort: "order" };

  /** @param {number} classId class of new objects */
  constructor(classId) {
    this.classId = classId;
    /**
     * Returns the part of the image that is asked for an object's mask after a new click or box; isAhead: there is none yet.
     * @type {(object: ImageObject, isAhead: boolean) => number[] | null}
     */
    this.partOf = () => null;
    const list = this.#append([], 1);
    this.now = { list, activeId: list[0].id };
  }

  /** Return the objects and the undo history as plain data. */
  save() {
    const plain = ({ list, activeId }) => ({ list: list.map((object) => toStored(object)), activeId });
    const [past, future] = [this.#past.slice(-MAX_STORED_STEPS), this.#future.slice(-MAX_STORED_STEPS)];
    return { past: past.map(plain), now: plain(this.now), future: future.map(plain), lastId: this.#lastId, filter: this.filter };
  }

  /** Take over what `save` returned. No object is selected then: the next click begins a new one. */
  restore({ past, now, future, lastId, filter }) {
    /** @type {Map<object, any>} */
    const revived = new Map();
    const once = (record, revive) => {
      if (!revived.has(record)) revived.set(record, revive(record));
      return revived.get(record);
    };
    const object = (record) => {
      const masks = MASK_FIELDS.filter((name) => record[name]).map((name) => [name, once(record[name], Mask.fromRecord)]);
      return { ...record, ...Object.fromEntries(masks) };
    };
    const state = ({ list, activeId }) => ({ list: list.map((record) => once(record, object)), activeId });
    [this.#past, this.now, this.#future] = [past.map(state), state(now), future.map(state)];
    this.#lastId = lastId;
    Object.assign(this.filter, filter);
    this.now = this.#withNew();
  }

  /** @returns {ImageObject[]} */
  get list() {
    return this.now.list;
  }

  /** @returns {ImageObject} */
  get active() {
    return activeOf(this.now);
  }

  /** Return the objects that are counted and exported: all but the proposals. */
  get accepted() {
    return this.list.filter(({ proposal }) => !proposal);
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  undo() {
    if (!this.canUndo) return;
    this.#future.push(this.now);
    this.now = this.#past.pop();
  }

  redo() {
    if (!this.canRedo) return;
    this.#past.push(this.now);
    this.now = this.#future.pop();
  }

  /**
   * Add a click to the active object or to a new one. An object found automatically keeps the grid click that found it.
   * @param {Point} point
   * @param {boolean} isNew
   */
  addPoint(point, isNew) {
    this.#step(this.#withPoint(point, isNew, false));
  }

  /** Return the object that `addPoint` would leave as the active one. @returns {ImageObject} */
  clicked(point, isNew) {
    return activeOf(this.#withPoint(point, isNew, true));
  }

  #withPoint(point, isNew, isAhead) {
    const state = isNew ? this.#withNew() : this.now;
    const { points, found, drawn } = activeOf(state);
    return this.#marked(state, { drawn, points: [...(found?.point ? [found.point] : points), point] }, isAhead);
  }

  /** Set the box of the active object or of a new one. An object found automatically loses the click that found it. */
  addBox(box, isNew) {
    const fields = acceptsClicks() ? { box } : { box, points: [] };
    this.#step(this.#marked(isNew ? this.#withNew() : this.now, fields, false));
  }

  /** Return a state with other clicks or another box of the active object. */
  #marked(state, fields, isAhead) {
    const marked = withActiveFields(state, { ...this.#accepting(activeOf(state)), found: null, drawn: null, hidden: false, ...SEEN, ...fields });
    return withActiveFields(marked, { part: this.partOf(activeOf(marked), isAhead), version: versionField().model_version });
  }

  /** Replace the active object's mask by one made by hand. An object found automatically keeps the click that found it. */
  draw(mask) {
    const { found } = this.active, points = found?.point ? [found.point] : this.active.points;
    this.change({ ...this.#accepting(this.active), drawn: mask, points, settled: points.length, found: null, hidden: false, ...SEEN });
  }

  /** Note that a person has seen an object that was to be reviewed. @param {number} id */
  confirm(id) {
    this.#step({ ...this.now, list: withFields(this.list, id, SEEN) });
  }

  /** Remove a click by its index, or the box with null. A mask edited by hand outlives only later clicks. */
  removeMark(index) {
    const { points, drawn } = this.active;
    this.change({ ...(index === null ? { box: null } : { points: points.filter((_, at) => at !== index) }), drawn: isLater(this.active, index) ? drawn : null, ...SEEN });
  }

  /** Replace objects by others with the same ids, in one step. @param {Map<number, ImageObject>} changed */
  replaceAll(changed) {
    this.#step({ ...this.now, list: this.list.map((object) => changed.get(object.id) ?? object) });
  }

  /** Remove the active object's clicks, box and mask. */
  clear() {
    if (!isEmpty(this.active)) this.change({ points: [], box: null, found: null, proposal: false, drawn: null, part: null, candidate: 0, by: undefined });
  }

  /** Take a candidate of the active object's mask, or the automatic one. @param {0 | 1 | 2 | 3} candidate */
  choose(candidate) {
    this.change({ candidate, drawn: null, ...SEEN });
  }

  /** Change the active object as an undoable step. */
  change(fields) {
    const isMade = this.active.proposal && fields.proposal === false;
    const isSigned = isMade || MASK_CHANGES.some((name) => name in fields);
    this.#step(withActiveFields(this.now, { ...(isSigned && { by: annotator() }), ...fields }));
  }

  /** Change an object's name or visibility in all states: not an undoable step. */
  setDisplay(id, fields) {
    this.#updateAll((list) => withFields(list, id, fields));
  }

  /** Move all objects of a class to another one, in all states. */
  replaceClass(classId, newId) {
    this.#updateAll((list) => list.map((object) => (object.classId === classId ? { ...object, classId: newId } : object)));
  }

  /** Give the class of new objects to all that are empty, and to those of no class in `ids`, in all states. */
  useClasses(ids) {
    const isKept = (object) => ids.has(object.classId) && !isEmpty(object);
    this.#updateAll((list) => list.map((object) => (isKept(object) ? object : { ...object, classId: this.classId })));
  }

  /** @param {(list: ImageObject[]) => ImageObject[]} change */
  #updateAll(change) {
    const update = (state) => ({ ...state, list: change(state.list) });
    this.now = update(this.now);
    this.#past = this.#past.map(update);
    this.#future = this.#future.map(update);
  }

  select(id) {
    this.now = { ...this.now, activeId: id };
  }

  /** Add an object, unless the active one is empty. */
  add() {
    const state = this.#withNew();
    if (state !== this.now) this.#step(state);
  }

  /**
   * Add objects, and select a new empty one.
   * @param {Partial<ImageObject>[]} added fields of each, such as `found`
   * @param {Set<number>} replaced ids of objects that are removed in the same step
   */
  addAll(added, replaced = new Set()) {
    if (!added.length) return;
    const kept = this.list.filter((object) => !isEmpty(object) && !replaced.has(object.id));
    const list = this.#append(kept, added.length + 1);
    added.forEach((fields, index) => Object.assign(list[kept.length + index], fields));
    this.#step({ list, activeId: list.at(-1).id });
  }

  /** Add an object, and select it. @param {Partial<ImageObject>} fields such as `drawn` */
  paste(fields) {
    const list = this.#append(this.list.filter((object) => !isEmpty(object)), 1);
    Object.assign(list.at(-1), fields);
    this.#step({ list, activeId: list.at(-1).id });
  }

  /**
   * Change, remove and add objects as one step, and select a new empty one.
   * @param {{changed: Map<number, Partial<ImageObject>>, removed: Set<number>, added: Partial<ImageObject>[]}} changes
   *   changed: fields by id; added: fields of each
   */
  reconcile({ changed, removed, added }) {
    if (!changed.size && !removed.size && !added.length) return;
    const isKept = (object) => !removed.has(object.id) && !isEmpty(object);
    const kept = this.list.filter(isKept).map((object) => ({ ...object, ...changed.get(object.id) }));
    const list = this.#append(kept, added.length + 1);
    added.forEach((fields, index) => Object.assign(list[kept.length + index], fields));
    this.#step({ list, activeId: list.at(-1).id });
  }

  /** Give the active object a mask, its union with another object's, and remove that object. */
  merge(id, mask) {
    this.draw(mask);
    this.now = { ...this.now, list: this.list.filter((object) => object.id !== id) };
  }

  /**
   * Return the fields of an object that gets a mask, also of a proposal, which gets the class of new objects.
   * @param {ImageObject} object
   */
  #accepting({ proposal, classId }) {
    return { proposal: false, classId: proposal ? this.classId : classId, by: annotator() };
  }

  /**
   * Make objects of proposals.
   * @param {number[]} ids
   * @param {number} [activeId] the object to select
   */
  accept(ids, activeId = this.now.activeId) {
    const accepted = new Set(ids);
    this.#step({ list: this.list.map((object) => (accepted.has(object.id) ? { ...object, ...this.#accepting(object) } : object)), activeId });
  }

  /** Remove all proposals, also those that are not listed. */
  discardProposals() {
    this.#keepOnly(this.accepted);
  }

  remove(id) {
    this.#keepOnly(this.list.filter((object) => object.id !== id));
  }

  /** Keep some of the objects. If the active one is not among them, an empty one is: keys then change no other object. */
  #keepOnly(list) {
    const next = list.find(({ id }) => id === this.now.activeId) ?? list.find(isEmpty);
    const kept = next ? list : this.#append(list, 1);
    this.#step({ list: kept, activeId: (next ?? kept.at(-1)).id });
  }

  /** Return a state with an empty active object, a new one if there is none. */
  #withNew() {
    if (isEmpty(this.active)) return this.now;
    const empty = this.list.find(isEmpty);
    if (empty) return withActiveFields({ ...this.now, activeId: empty.id }, { classId: this.classId });
    const list = this.#append(this.list, 1);
    return { list, activeId: list.at(-1).id };
  }

  /** Return the list with `count` new objects, numbered after the highest number so far. */
  #append(list, count) {
    const highest = Math.max(list.length, ...list.map(({ name }) => Number(NUMBERED_NAME.exec(name)?.[1] ?? 0)));
    return [...list, ...Array.from({ length: count }, (_, index) => newObject(++this.#lastId, highest + index + 1, this.classId))];
  }

  #step(state) {
    this.#past.push(this.now);
    this.#future = [];
    this.now = state;
  }
}
