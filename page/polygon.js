// The outline of a mask as a polygon: its points are dragged, added and deleted. A draft is a polygon that is drawn from nothing.

import { element } from "./dom.js";
import { MAX_CLICK_MOVE_PIXELS } from "./gestures.js";
import { Handles } from "./handles.js";
import { arrowStep } from "./keys.js";
import { hint } from "./notices.js";
import { boxOf } from "./stage.js";
import { deleteVertex, edgeDistance, fill, insertVertex, middle, moveVertex, trace, vertexAt } from "./vertices.js";

const MAX_POINTS = 500;
/** Tolerance at the lowest detail as a share of the image's longer side; each step of the slider divides it by the root of 2. */
const COARSEST_TOLERANCE_SHARE = 0.01;
/** Distance from which a double click hits an edge, and a click the first or last point of a draft, on the screen. */
const MAX_DISTANCE_PIXELS = 10;
const DOUBLE_CLICK_MS = 400;
/** Movement from which a press on a point is a drag, on the screen. */
const MIN_DRAG_PIXELS = 3;

export class PolygonEditor {
  /** @type {import("./vertices.js").Ring[][]} */
  #polygons = [];
  #past = [];
  #future = [];
  /** The mask that the outlines were traced from; null after a point was changed. */
  #traced = null;
  /**
   * The point that is dragged.
   * @type {{index: number, from: {x: number, y: number}, offset: {x: number, y: number}, isStep: boolean} | null}
   */
  #drag = null;
  #lastPress = { point: null, time: 0 };
  /** The point moved by the last key. */
  #nudged = null;

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {{change: () => void, apply: () => void, close: () => void}} actions
   *   change: the history has changed; apply: Enter was pressed; close: a draft is complete
   */
  constructor(stage, actions) {
    this.stage = stage;
    this.actions = actions;
    /** @type {import("./rle.js").Mask | null} the mask whose outline is open */
    this.mask = null;
    /** @type {string | null} the object that a draft is for; null: there is no draft */
    this.draft = null;
    this.handles = new Handles(stage);
    const { layer } = this.handles;
    layer.addEventListener("pointerdown", (event) => this.#press(event));
    layer.addEventListener("pointermove", (event) => this.#dragTo(stage.pointAt(event)));
    for (const end of ["pointerup", "pointercancel"]) layer.addEventListener(end, () => this.#drop(end === "pointerup"));
    layer.addEventListener("keydown", (event) => this.#handleKey(event));
    let isOnHandle = false;
    stage.view.addEventListener("pointerdown", (event) => (isOnHandle = this.handles.indexOf(event.target) >= 0), true);
    stage.view.addEventListener("dblclick", (event) => isOnHandle || this.draft || this.#insertNear(stage.pointAt(event)));
    stage.view.addEventListener("pointermove", (event) => this.#follow(stage.pointAt(event)));
    stage.view.addEventListener("keydown", (event) => this.#handleDraftKey(event));
    element("detail").addEventListener("input", () => this.#retrace());
  }

  /** Return whether a point was changed. */
  get isEdited() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  /**
   * Show the outline of a mask that is not empty.
   * @returns {boolean} false: it has too many points
   */
  open(mask) {
    this.close();
    if (!this.#trace(mask)) return false;
    this.keep(mask);
    return true;
  }

  /** Begin a draft. @param {string} draft the object that it is for */
  begin(draft) {
    this.close();
    this.#setDraft(draft);
    this.#polygons = [[[]]];
    hint("Click to add points, then the first one to close; or drag a rectangle", "(Enter closes, Backspace takes a point back)");
  }

  /** Take over the mask of the outline, which stays open without its history. */
  keep(mask) {
    this.mask = mask;
    this.stage.view.classList.toggle("outlining", mask !== null);
    this.#setDraft(null);
    this.#past = [];
    this.#future = [];
    this.#drag = null;
    this.#show(this.handles.indexOf(document.activeElement));
  }

  close() {
    this.#polygons = [];
    this.keep(null);
  }

  #setDraft(draft) {
    this.draft = draft;
    this.handles.isDraft = draft !== null;
    this.stage.view.classList.toggle("drafting", draft !== null);
    element("detail").toggleAttribute("disabled", draft !== null);
  }

  /** Remove the points of a draft, which undo brings back; return whether there were any. */
  discard() {
    if (!this.#ring?.length) return false;
    this.#step();
    this.#polygons = [[[]]];
    this.#show();
    return true;
  }

  /** Return the edited mask. */
  result() {
    return fill(this.#polygons, this.stage);
  }

  /** The ring of a draft, or null. */
  get #ring() {
    return this.draft === null ? null : this.#polygons[0][0];
  }

  /** Undo a change; return whether there was one. */
  undo() {
    return this.#restore(this.#past, this.#future);
  }

  /** Redo a change; return whether there was one. */
  redo() {
    return this.#restore(this.#future, this.#past);
  }

  #restore(from, to) {
    if (!from.length) return false;
    to.push(this.#polygons);
    this.#polygons = from.pop();
    this.#traced = null;
    this.#show(this.handles.indexOf(document.activeElement));
    this.actions.change();
    return true;
  }

  #show(focused = -1) {
    this.handles.show(this.#polygons.flat());
    this.handles.focus(focused);
  }

  /** Trace a mask with the chosen detail, or with less if there are too many points; return false if there always are. */
  #trace(mask) {
    const slider = element("detail");
    for (;;) {
      const tolerance = (COARSEST_TOLERANCE_SHARE * Math.max(mask.width, mask.height)) / 2 ** (slider.valueAsNumber / 2);
      const polygons = trace(mask, tolerance);
      const count = polygons.flat(2).length;
      if (count <= MAX_POINTS) {
        this.#polygons = polygons;
        this.#traced = mask;
        slider.setAttribute("aria-valuetext", `${count} points`);
        this.#show();
        return true;
      }
      if (slider.value === slider.min) return false;
      slider.stepDown();
    }
  }

  #retrace() {
    if (!this.mask) return;
    const wanted = element("detail").value;
    if (!this.#traced) {
      const edited = this.result();
      this.#step();
      this.#traced = edited;
    }
    this.#trace(this.#traced);
    if (element("detail").value !== wanted) hint(`More detail would need more than ${MAX_POINTS} points`);
  }

  /** Begin an undoable change. */
  #step() {
    this.#past.push(structuredClone(this.#polygons));
    this.#future = [];
    this.#traced = null;
    this.#nudged = null;
    this.actions.change();
  }

  // ---- changes

  #press(event) {
    let index = this.handles.indexOf(event.target);
    if (index < 0 || event.button) return;
    event.preventDefault();
    const { point } = this.handles.list[index];
    const isEdge = event.target !== point;
    if (isEdge) {
      index = this.#insert(index);
    } else if (event.altKey || (!this.draft && point === this.#lastPress.point && event.timeStamp - this.#lastPress.time < DOUBLE_CLICK_MS)) {
      this.#delete(index);
      return;
    } else {
      this.handles.focus(index);
      this.#lastPress = { point, time: event.timeStamp };
    }
    const { ring, at } = this.handles.list[index], from = this.stage.pointAt(event);
    this.#drag = { index, from, offset: { x: ring[at].x - from.x, y: ring[at].y - from.y }, isStep: isEdge };
    this.handles.layer.setPointerCapture(event.pointerId);
  }

  #dragTo({ x, y }) {
    if (!this.#drag) return;
    const { index, from, offset, isStep } = this.#drag;
    if (!isStep) {
      if (Math.hypot(x - from.x, y - from.y) * this.stage.transform.scale < MIN_DRAG_PIXELS) return;
      this.#step();
      this.#drag.isStep = true;
      this.#lastPress.point = null;
    }
    this.#move(index, { x: x + offset.x, y: y + offset.y });
  }

  #drop(isReleased) {
    const dropped = this.#drag;
    this.#drag = null;
    this.handles.showEdges();
    if (isReleased && this.#ring && dropped && !dropped.isStep && [0, this.#ring.length - 1].includes(dropped.index)) this.#finish();
  }

  #move(index, point) {
    const { ring, at } = this.handles.list[index];
    moveVertex(ring, at, this.#inImage(point));
    this.handles.update(index);
  }

  #inImage({ x, y }) {
    return { x: Math.min(Math.max(x, 0), this.stage.width), y: Math.min(Math.max(y, 0), this.stage.height) };
  }

  /** Add a point, by default in the middle of the edge that begins at this one; return its number. */
  #insert(index, position) {
    const { ring, at } = this.handles.list[index];
    this.#step();
    insertVertex(ring, at, position ?? middle(ring, at));
    this.#show(index + 1);
    return index + 1;
  }

  #insertNear(position) {
    const { list } = this.handles;
    if (!list.length) return;
    const distances = list.map(({ ring, at }) => edgeDistance(ring, at, position));
    const nearest = Math.min(...distances);
    if (nearest * this.stage.transform.scale <= MAX_DISTANCE_PIXELS) this.#insert(distances.indexOf(nearest), position);
  }

  #delete(index) {
    const { ring, at } = this.handles.list[index];
    if (ring.length <= 3 && !this.draft) {
      hint("An outline needs three points: use the eraser to remove it");
      return;
    }
    this.#step();
    deleteVertex(ring, at);
    this.#show(at < ring.length ? index : index - 1);
  }

  #handleKey(event) {
    const index = this.handles.indexOf(event.target);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const { ring, at, point } = this.handles.list[index], step = arrowStep(event);
    if (step) {
      if (this.#nudged !== point) this.#step();
      this.#nudged = point;
      this.#move(index, { x: ring[at].x + step[0], y: ring[at].y + step[1] });
    } else if (["Delete", "Backspace"].includes(event.key)) {
      this.#delete(index);
    } else if (event.key === "Insert" || event.key.toLowerCase() === "a") {
      this.#insert(index);
    } else if (event.key === "Enter") {
      if (this.draft) this.#finish();
      else this.actions.apply();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // ---- drafts

  /**
   * Begin a click, which adds a point, or a drag, which makes a rectangle of a draft without points.
   * @param {PointerEvent} from
   * @returns {import("./gestures.js").Stroke | null}
   */
  beginShape(from) {
    if (from.button) return null;
    const start = vertexAt(this.#inImage(this.stage.pointAt(from))), isFirst = !this.#ring.length;
    let added = [start];
    return {
      move: (event) => {
        const end = vertexAt(this.#inImage(this.stage.pointAt(event)));
        const distance = Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY);
        if (!isFirst) added = [end];
        else if (this.draft && (added.length > 1 || distance > MAX_CLICK_MOVE_PIXELS[event.pointerType])) this.handles.draw([(added = rectangle(start, end))]);
      },
      end: () => this.draft && this.add(added),
      cancel: () => this.#show(),
    };
  }

  /** Add points to a draft. One at its first or last point, or several, close it. @param {import("./vertices.js").Ring} added */
  add(added) {
    const ring = this.#ring, [{ x, y }] = added;
    const isNear = (end) => end && Math.hypot(end.x - x, end.y - y) * this.stage.transform.scale <= MAX_DISTANCE_PIXELS;
    const isEnd = added.length === 1 && (isNear(ring[0]) || isNear(ring.at(-1)));
    if (!isEnd) {
      this.#step();
      ring.push(...added);
      this.#show();
    }
    if (isEnd || added.length > 1) this.#finish();
  }

  #finish() {
    if (this.result().area) this.actions.close();
    else hint("An outline needs at least three points, around a pixel");
  }

  /** Draw the edges of a draft to the pointer or the crosshair. */
  #follow(point) {
    if (this.#ring?.length && !this.#drag) this.handles.draw([[...this.#ring, vertexAt(point)]]);
  }

  #handleDraftKey(event) {
    if (!this.#ring?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Backspace") {
      this.#step();
      this.#ring.pop();
      this.#show();
    } else if (event.key === "Enter" && !this.stage.cursor) {
      this.#finish();
    } else {
      // Later listeners of the key move the crosshair.
      requestAnimationFrame(() => this.stage.cursor && this.#follow({ x: this.stage.cursor.x + 0.5, y: this.stage.cursor.y + 0.5 }));
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Return the ring of a rectangle along pixel edges. */
function rectangle(start, end) {
  const [x0, y0, x1, y1] = boxOf(start, end).map(Math.round);
  return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]].map(([x, y]) => vertexAt({ x, y }));
}
