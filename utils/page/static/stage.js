// The image on the screen: where it lies, the masks over it, and the marks of the active object.

import { element } from "./dom.js";
import { Layer } from "./layer.js";

const MARGIN = 16;
const SCALES = { least: 0.02, most: 40, fit: 6 };
/** Pixels of an image of which each is to be seen. */
const TINY = 100;
/** From this scale on the image's pixels are shown as squares. */
const SQUARES = 3;

export class Stage {
  #fitted = true;
  #frame = 0;
  #box = null;
  #marks = [];

  /** @param {() => void} onZoom */
  constructor(onZoom) {
    this.onZoom = onZoom;
    const [view, scene, picture, box, markers, cross] = ["view", "scene", "picture", "box", "markers", "crosshair"].map(element);
    Object.assign(this, { view, scene, picture, box, markers, cross });
    this.place = { scale: 1, x: 0, y: 0 };
    /** The pixel under the cross that keys move, and that where a box was begun by key; null: none. */
    this.cursor = this.corner = null;
    this.others = new Layer(scene, view, "others", { halo: null, width: 1.5, colour: null });
    this.active = new Layer(scene, view, "active", { halo: "rgb(255 255 255 / 0.9)", width: 2, colour: null });
    this.preview = new Layer(scene, view, "preview", { halo: "rgb(0 0 0 / 0.55)", width: 1.5, colour: "#ffffff" });
    view.append(box, markers, cross);
    new ResizeObserver(() => (this.#fitted ? this.fit() : this.#placed())).observe(view);
  }

  /** Show an image; nothing is marked on it. */
  async show(url, width, height) {
    Object.assign(this, { width, height });
    this.picture.src = url;
    for (const element of [this.scene, this.picture]) {
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    for (const layer of [this.others, this.active, this.preview]) layer.reset(width, height);
    this.cursor = this.corner = null;
    this.cross.hidden = true;
    this.view.hidden = false;
    this.fit();
    await this.picture.decode();
  }

  /** Paint masks on one of the layers. */
  paint(layer, items) {
    layer.show(items, this.place);
  }

  fit() {
    if (!this.width || !this.view.clientWidth) return;
    const tools = element("tools").offsetHeight;
    const width = this.view.clientWidth - 2 * MARGIN, height = this.view.clientHeight - 2 * MARGIN - tools;
    const most = Math.max(this.width, this.height) < TINY ? SCALES.most : SCALES.fit;
    const scale = Math.min(width / this.width, height / this.height, most);
    this.place = {
      scale,
      x: MARGIN + (width - this.width * scale) / 2,
      y: MARGIN + (height - this.height * scale) / 2,
    };
    this.#fitted = true;
    this.#placed();
  }

  /** Zoom by a factor, about a point of the view or its middle. */
  zoom(factor, at = { x: this.view.clientWidth / 2, y: this.view.clientHeight / 2 }) {
    const scale = Math.min(Math.max(this.place.scale * factor, SCALES.least), SCALES.most);
    const by = scale / this.place.scale;
    this.#move({ scale, x: at.x - (at.x - this.place.x) * by, y: at.y - (at.y - this.place.y) * by });
  }

  pan(x, y) {
    this.#move({ ...this.place, x: this.place.x + x, y: this.place.y + y });
  }

  #move(place) {
    this.place = place;
    this.#fitted = false;
    this.#placed();
  }

  /** Where something on the screen lies in the view. */
  inView({ clientX, clientY }) {
    const frame = this.view.getBoundingClientRect();
    return { x: clientX - frame.left, y: clientY - frame.top };
  }

  /** The pixel of the image under a pointer; outside of the image the nearest one where `clamp`, else null. */
  pixel(event, clamp = false) {
    const at = this.inView(event);
    const x = Math.floor((at.x - this.place.x) / this.place.scale), y = Math.floor((at.y - this.place.y) / this.place.scale);
    if (clamp) return this.inside(x, y);
    return x >= 0 && y >= 0 && x < this.width && y < this.height ? { x, y } : null;
  }

  /** The nearest pixel of the image. */
  inside(x, y) {
    return { x: Math.min(Math.max(x, 0), this.width - 1), y: Math.min(Math.max(y, 0), this.height - 1) };
  }

  /**
   * Show clicks and box of the active object.
   * @param {import("./objects.js").Point[]} points
   * @param {number[] | null} box
   * @param {(index: number | null) => void} remove a click, or the box
   */
  showMarks(points, box, remove) {
    const focused = [...this.markers.children].indexOf(document.activeElement);
    const mark = (kind, label, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = `marker ${kind}`;
      button.setAttribute("aria-label", `${label}: remove`);
      button.title = "Remove";
      // The second click of a double one meets the marker that the first has made.
      button.addEventListener("click", (event) => event.detail < 2 && remove(index));
      return button;
    };
    this.#marks = points.map(({ x, y, label }, index) => {
      const [kind, name] = label ? ["positive", "Click on the object"] : ["negative", "Click beside the object"];
      return { x: x + 0.5, y: y + 0.5, button: mark(kind, `${name} at ${x}, ${y}`, index) };
    });
    if (box) this.#marks.push({ x: box[2] + 1, y: box[1], button: mark("corner", `Box from ${box.slice(0, 2)} to ${box.slice(2)}`, null) });
    this.markers.replaceChildren(...this.#marks.map(({ button }) => button));
    if (focused >= 0) (this.markers.children[focused] ?? this.view).focus();
    this.#placeMarks();
    this.drawBox(box);
  }

  /** Show a box, while it is drawn too. */
  drawBox(box) {
    this.#box = box;
    this.box.hidden = !box;
    if (!box) return;
    const { scale, x, y } = this.place;
    Object.assign(this.box.style, {
      transform: `translate(${x + box[0] * scale}px, ${y + box[1] * scale}px)`,
      width: `${(box[2] + 1 - box[0]) * scale}px`,
      height: `${(box[3] + 1 - box[1]) * scale}px`,
    });
  }

  /** Show the cross that keys move, or hide it, and with it what keys have begun. */
  point(at) {
    this.cursor = at;
    if (!at) this.corner = null;
    this.cross.hidden = !at;
    if (at) placeAt(this.cross, this.place, at.x + 0.5, at.y + 0.5);
  }

  #placeMarks() {
    for (const { x, y, button } of this.#marks) placeAt(button, this.place, x, y);
  }

  #placed() {
    const { scale, x, y } = this.place;
    this.scene.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    this.scene.classList.toggle("squares", scale >= SQUARES);
    this.#placeMarks();
    this.drawBox(this.#box);
    this.point(this.cursor);
    this.onZoom();
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      for (const layer of [this.others, this.active, this.preview]) layer.follow(this.place);
    });
  }
}

/** The box with these corners: x0, y0, x1, y1. */
export function boxOf(one, other) {
  return [Math.min(one.x, other.x), Math.min(one.y, other.y), Math.max(one.x, other.x), Math.max(one.y, other.y)];
}

function placeAt(element, { scale, x, y }, imageX, imageY) {
  element.style.transform = `translate(${x + imageX * scale}px, ${y + imageY * scale}px)`;
}
