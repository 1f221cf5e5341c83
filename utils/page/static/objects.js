// What a person has marked: objects with their clicks and boxes, and the way back. Masks follow from it (see masks.js).

/**
 * @typedef {{x: number, y: number, label: 0 | 1}} Point in pixels of the image
 * @typedef {object} Thing an object on the image
 * @property {number} id
 * @property {string} name
 * @property {string} colour `#rrggbb`
 * @property {Point[]} points
 * @property {[number, number, number, number] | null} box x0, y0, x1, y1
 * @property {0 | 1 | 2 | 3} candidate 0: the best mask
 * @property {import("./rle.js").Mask | null} found by segmenting everything: no clicks lead to it
 * @property {boolean} hidden
 */

/** Bright enough for a dark photograph, dark enough for a light one, and told apart by most eyes side by side. */
const COLOURS = ["#4f7cff", "#ff6b4a", "#16b57f", "#e5a000", "#a259ff", "#00a5c8", "#f25fa8", "#7fae1a", "#c4612d", "#6f8aa8"];

/** @returns {Thing} */
function thing(id, number) {
  return {
    id,
    name: `object ${number}`,
    colour: COLOURS[(number - 1) % COLOURS.length],
    points: [],
    box: null,
    candidate: 0,
    found: null,
    hidden: false,
  };
}

/** Whether a mask follows from it. */
export function isMarked(object) {
  return object.found !== null || object.box !== null || object.points.some((point) => point.label === 1);
}

/** Whether nothing has been done to it yet. */
export function isEmpty(object) {
  return !object.points.length && !isMarked(object);
}

/** The fields of the request for its mask. */
export function promptsOf(object) {
  const inside = object.points.filter((point) => point.label === 1);
  const outside = object.points.filter((point) => point.label === 0);
  return {
    ...(inside.length && { pos_coords: inside.map(({ x, y }) => [x, y]) }),
    ...(outside.length && { neg_coords: outside.map(({ x, y }) => [x, y]) }),
    ...(object.box && { box: object.box }),
    ...(object.candidate && { multimask_output: true }),
  };
}

function withFields(list, id, fields) {
  return list.map((object) => (object.id === id ? { ...object, ...fields } : object));
}

function changed(state, fields) {
  return { ...state, list: withFields(state.list, state.activeId, fields) };
}

/** All objects, and every earlier state of them. Never changed in place, so that a state can be returned to. */
export class Objects {
  #past = [];
  #future = [];
  /** Never used again, also when what they named is undone: answers to it may still come. */
  #ids = 0;

  constructor() {
    const list = this.#with([], 1);
    this.now = { list, activeId: list[0].id };
  }

  /** @returns {Thing[]} */
  get list() {
    return this.now.list;
  }

  /** @returns {Thing} */
  get active() {
    return this.list.find((object) => object.id === this.now.activeId);
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
   * A click on the active object, or on a new one. What was found without a click begins with the click that found it.
   * @param {Point} point
   * @param {boolean} fresh
   */
  addPoint(point, fresh) {
    const state = fresh ? this.#withNew() : this.now;
    const { points, found } = state.list.find(({ id }) => id === state.activeId);
    this.#step(changed(state, { points: [...(found ? [found.point] : points), point], found: null, hidden: false }));
  }

  /** A box around the active object. What was found without a click has nothing to go with it. */
  addBox(box) {
    this.change({ box, found: null, hidden: false });
  }

  /** Take away a click, or with null the box. */
  removeMark(index) {
    this.change(index === null ? { box: null } : { points: this.active.points.filter((_, at) => at !== index) });
  }

  /** Take away everything that leads to the active object's mask. */
  clear() {
    if (!isEmpty(this.active)) this.change({ points: [], box: null, found: null, candidate: 0 });
  }

  /** Change the active object in a way that can be undone. */
  change(fields) {
    this.#step(changed(this.now, fields));
  }

  /** Change how an object is shown: no step to undo, and no undoing brings the old name back. */
  show(id, fields) {
    const shown = (state) => ({ ...state, list: withFields(state.list, id, fields) });
    this.now = shown(this.now);
    this.#past = this.#past.map(shown);
    this.#future = this.#future.map(shown);
  }

  select(id) {
    this.now = { ...this.now, activeId: id };
  }

  /** A new object, unless the active one has nothing yet. */
  add() {
    const state = this.#withNew();
    if (state !== this.now) this.#step(state);
  }

  /** Objects that were found without a click, and a new one, on which the next click is. */
  addFound(masks) {
    if (!masks.length) return;
    const kept = this.list.filter((object) => !isEmpty(object));
    const list = this.#with(kept, masks.length + 1);
    masks.forEach((mask, index) => (list[kept.length + index].found = mask));
    this.#step({ list, activeId: list.at(-1).id });
  }

  remove(id) {
    const at = this.list.findIndex((object) => object.id === id);
    let list = this.list.filter((object) => object.id !== id);
    if (!list.length) list = this.#with([], 1);
    this.#step({ list, activeId: this.now.activeId === id ? list[Math.min(at, list.length - 1)].id : this.now.activeId });
  }

  /** The state with a new object at hand, or the one at hand where that is new enough. */
  #withNew() {
    if (isEmpty(this.active)) return this.now;
    const list = this.#with(this.list, 1);
    return { list, activeId: list.at(-1).id };
  }

  /** The list with new objects, numbered on from how many there are, and from the highest number. */
  #with(list, count) {
    const highest = Math.max(list.length, ...list.map(({ name }) => Number(/^object (\d+)$/.exec(name)?.[1] ?? 0)));
    return [...list, ...Array.from({ length: count }, (_, index) => thing(++this.#ids, highest + index + 1))];
  }

  #step(state) {
    this.#past.push(this.now);
    this.#future = [];
    this.now = state;
  }
}
