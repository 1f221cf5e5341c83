// The outline of a mask as a polygon: its points are dragged, added and deleted.

import { element } from "./dom.js";
import { Handles } from "./handles.js";
import { arrowStep } from "./keys.js";
import { hint } from "./notices.js";
import { deleteVertex, edgeDistance, fill, insertVertex, middle, moveVertex, trace } from "./vertices.js";

const MAX_POINTS = 500;
/** Tolerance at the lowest detail as a share of the image's longer side; each step of the slider divides it by the root of 2. */
const COARSEST_TOLERANCE_SHARE = 0.01;
/** Distance from which a double click hits an edge, on the screen. */
const MAX_EDGE_DISTANCE_PIXELS = 10;
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
   * @param {{change: () => void, apply: () => void}} actions change: the history has changed; apply: Enter was pressed
   */
  constructor(stage, actions) {
    this.stage = stage;
    this.actions = actions;
    /** @type {import("./rle.js").Mask | null} the mask whose outline is open */
    this.mask = null;
    this.handles = new Handles(stage);
    const { layer } = this.handles;
    layer.addEventListener("pointerdown", (event) => this.#press(event));
    layer.addEventListener("pointermove", (event) => this.#dragTo(stage.pointAt(event)));
    for (const end of ["pointerup", "pointercancel"]) layer.addEventListener(end, () => this.#drop());
    layer.addEventListener("keydown", (event) => this.#handleKey(event));
    let isOnHandle = false;
    stage.view.addEventListener("pointerdown", (event) => (isOnHandle = this.handles.indexOf(event.target) >= 0), true);
    stage.view.addEventListener("dblclick", (event) => isOnHandle || this.#insertNear(stage.pointAt(event)));
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
    this.mask = mask;
    this.stage.view.classList.add("outlining");
    return true;
  }

  close() {
    this.mask = null;
    this.#polygons = [];
    this.#past = [];
    this.#future = [];
    this.#drag = null;
    this.handles.show([]);
    this.stage.view.classList.remove("outlining");
  }

  /** Return the edited mask. */
  result() {
    return fill(this.#polygons, this.mask);
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
    } else if (event.altKey || (point === this.#lastPress.point && event.timeStamp - this.#lastPress.time < DOUBLE_CLICK_MS)) {
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

  #drop() {
    this.#drag = null;
    this.handles.showEdges();
  }

  #move(index, { x, y }) {
    const { ring, at } = this.handles.list[index];
    moveVertex(ring, at, { x: Math.min(Math.max(x, 0), this.stage.width), y: Math.min(Math.max(y, 0), this.stage.height) });
    this.handles.update(index);
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
    if (nearest * this.stage.transform.scale <= MAX_EDGE_DISTANCE_PIXELS) this.#insert(distances.indexOf(nearest), position);
  }

  #delete(index) {
    const { ring, at } = this.handles.list[index];
    if (ring.length <= 3) {
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
      this.actions.apply();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
