// The handles of a polygon: a button on each point, and one in the middle of each edge that is long enough.

import { createButton, element, setPosition } from "./dom.js";
import { edgeLength, exact, middle } from "./vertices.js";

/** Length on the screen from which an edge has a handle. */
const MIN_EDGE_PIXELS = 36;

/**
 * @typedef {object} Handle
 * @property {import("./vertices.js").Ring} ring
 * @property {number} at index of the vertex in its ring
 * @property {HTMLButtonElement} point on the vertex
 * @property {HTMLButtonElement} edge in the middle of the edge that begins at the vertex
 */

export class Handles {
  /** @type {Handle[]} */
  list = [];
  /** Whether a ring is being drawn: its edges have no handles. */
  isDraft = false;

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.layer = element("points");
    this.paths = document.querySelectorAll("#outline path");
    this.layer.addEventListener("focusin", (event) => this.#reveal(/** @type {HTMLElement} */ (event.target)));
    stage.view.addEventListener("zoom", () => this.showEdges());
  }

  /** Show the handles of these rings. */
  show(rings) {
    // Keys add points with the handle of a point.
    const buttons = () => ({ point: createButton("point", null), edge: createButton("edge", null, { tabIndex: -1, ariaLabel: "Add a point" }) });
    this.list = rings.flatMap((ring) => ring.map((_, at) => ({ ring, at, ...buttons() })));
    this.layer.replaceChildren(...this.list.map(({ edge }) => edge), ...this.list.map(({ point }) => point));
    for (const handle of this.list) this.#place(handle);
    this.showEdges();
    this.draw();
  }

  /** Move the focus to a point by its number. */
  focus(index) {
    this.list[index]?.point.focus({ preventScroll: true });
  }

  /** Return the number of the handle that has this button, or -1. */
  indexOf(target) {
    return this.list.findIndex(({ point, edge }) => target === point || target === edge);
  }

  /** Update the handles around a point that has moved. */
  update(index) {
    const { ring, at } = this.list[index];
    const before = this.list.find((handle) => handle.ring === ring && (handle.at + 1) % ring.length === at);
    this.#place(before);
    this.#place(this.list[index]);
    this.draw();
  }

  /** Show handles on the edges that are long enough. */
  showEdges() {
    const shortest = MIN_EDGE_PIXELS / this.stage.transform.scale;
    for (const { ring, at, edge } of this.list) edge.hidden = this.isDraft || edgeLength(ring, at) < shortest;
  }

  #place(handle) {
    const { ring, at, point, edge } = handle;
    setPosition(point, ring[at]);
    setPosition(edge, middle(ring, at));
    const [x, y] = [ring[at].x, ring[at].y].map(Math.round);
    point.ariaLabel = `Point ${this.list.indexOf(handle) + 1} of ${this.list.length} at ${x}, ${y}`;
  }

  /** Draw the lines of rings, by default of those with handles. @param {Iterable<import("./vertices.js").Ring>} rings */
  draw(rings = new Set(this.list.map(({ ring }) => ring))) {
    const path = [...rings].map((ring) => `M${exact(ring).join(" ")}Z`).join("");
    for (const line of this.paths) line.setAttribute("d", path);
  }

  /** Move the image if a point that gets the focus is outside the view. */
  #reveal(target) {
    const frame = this.stage.view.getBoundingClientRect(), box = target.getBoundingClientRect();
    const x = box.left + box.width / 2, y = box.top + box.height / 2;
    if (x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom) return;
    this.stage.pan(frame.left + frame.width / 2 - x, frame.top + frame.height / 2 - y);
  }
}
