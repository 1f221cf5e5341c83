// The image view: zoom and pan, mask layers, and the marks of the active object.

import { createButton, element } from "./dom.js";
import { Layer } from "./layer.js";
import { SeenOtherwise } from "./seen.js";

const MARGIN_PIXELS = 16;
const MIN_SCALE = 0.02, MAX_SCALE = 40, MAX_FIT_SCALE = 6;
/** Smaller images may be enlarged up to MAX_SCALE to fit the view. */
const MIN_REGULAR_PIXELS = 100;
/** A long strip is fitted by its shorter side, which is at least this long on the screen. */
const MIN_FIT_SIDE_PIXELS = 100;
/** From this scale on, image pixels are drawn as squares without smoothing. */
const PIXELATED_SCALE = 3;

export class Stage {
  #fitted = true;
  #frame = 0;
  /** @type {number[] | null} the box on the screen: x0, y0, x1, y1 */
  shownBox = null;
  #marks = [];

  /** @param {() => void} onZoom */
  constructor(onZoom) {
    this.onZoom = onZoom;
    const view = (this.view = element("view")), scene = (this.scene = element("scene"));
    this.picture = /** @type {HTMLImageElement} */ (element("picture"));
    this.box = element("box");
    this.markers = element("markers");
    this.crosshair = element("crosshair");
    this.width = this.height = 0;
    /** From image to view pixels. */
    this.transform = { scale: 1, x: 0, y: 0 };
    /** The crosshair's pixel, and the first corner of a box drawn by keyboard; null: none. */
    this.cursor = this.corner = null;
    this.others = new Layer(scene, view, "others", { halo: null, width: 1.5, colour: null });
    this.active = new Layer(scene, view, "active", { halo: "rgb(255 255 255 / 0.9)", width: 2, colour: null });
    this.preview = new Layer(scene, view, "preview", { halo: "rgb(0 0 0 / 0.55)", width: 1.5, colour: "#ffffff" });
    view.append(this.box, this.markers, this.crosshair);
    new ResizeObserver(() => (this.#fitted ? this.fit() : this.#applyTransform())).observe(view);
  }

  /**
   * Show a new image without marks.
   * @throws {SeenOtherwise} the browser shows another size
   */
  async show(url, width, height) {
    this.width = width;
    this.height = height;
    this.picture.src = url;
    for (const element of [this.scene, this.picture]) {
      element.style.width = `${width}px`;
      element.style.height = `${height}px`;
    }
    for (const layer of [this.others, this.active, this.preview]) layer.reset(width, height);
    this.cursor = this.corner = null;
    this.crosshair.hidden = true;
    this.view.hidden = false;
    this.fit();
    await this.picture.decode();
    const { naturalWidth, naturalHeight } = this.picture;
    if (naturalWidth === width && naturalHeight === height) return;
    const sizes = `${naturalWidth} x ${naturalHeight} pixels instead of ${width} x ${height}`;
    throw new SeenOtherwise(`This browser shows the image with ${sizes}. Use another one, or save the image as PNG.`, null);
  }

  /** Show masks on a layer. */
  paint(layer, items) {
    layer.show(items, this.transform);
  }

  fit() {
    if (!this.width || !this.view.clientWidth) return;
    const tools = element("tools").offsetHeight;
    const width = this.view.clientWidth - 2 * MARGIN_PIXELS, height = this.view.clientHeight - 2 * MARGIN_PIXELS - tools;
    const maxScale = Math.max(this.width, this.height) < MIN_REGULAR_PIXELS ? MAX_SCALE : MAX_FIT_SCALE;
    const fills = [width / this.width, height / this.height];
    const readable = Math.min(MIN_FIT_SIDE_PIXELS / Math.min(this.width, this.height), Math.max(...fills));
    const scale = Math.min(Math.max(Math.min(...fills), readable), maxScale);
    // What does not fit begins at the left, or at the top.
    this.transform = {
      scale,
      x: MARGIN_PIXELS + Math.max(0, width - this.width * scale) / 2,
      y: MARGIN_PIXELS + Math.max(0, height - this.height * scale) / 2,
    };
    this.#fitted = true;
    this.#applyTransform();
  }

  /** Zoom by a factor about a point of the view, by default its centre. */
  zoom(factor, centre = { x: this.view.clientWidth / 2, y: this.view.clientHeight / 2 }) {
    const scale = Math.min(Math.max(this.transform.scale * factor, MIN_SCALE), MAX_SCALE);
    const ratio = scale / this.transform.scale;
    this.#setTransform({ scale, x: centre.x - (centre.x - this.transform.x) * ratio, y: centre.y - (centre.y - this.transform.y) * ratio });
  }

  pan(x, y) {
    this.#setTransform({ ...this.transform, x: this.transform.x + x, y: this.transform.y + y });
  }

  #setTransform(transform) {
    this.transform = transform;
    this.#fitted = false;
    this.#applyTransform();
  }

  /** Convert window coordinates to view pixels. */
  toView({ clientX, clientY }) {
    const frame = this.view.getBoundingClientRect();
    return { x: clientX - frame.left, y: clientY - frame.top };
  }

  /** Return the pointer's position in image pixels, from their edges: pixel (0, 0) is from 0, 0 to 1, 1. */
  pointAt(event) {
    const point = this.toView(event);
    return { x: (point.x - this.transform.x) / this.transform.scale, y: (point.y - this.transform.y) / this.transform.scale };
  }

  /** Return the image pixel under the pointer; outside the image null, or the nearest pixel with `clamp`. */
  pixelAt(event, clamp = false) {
    const point = this.pointAt(event);
    const x = Math.floor(point.x), y = Math.floor(point.y);
    if (clamp) return this.clamp(x, y);
    return x >= 0 && y >= 0 && x < this.width && y < this.height ? { x, y } : null;
  }

  /** Return the nearest image pixel. */
  clamp(x, y) {
    return { x: Math.min(Math.max(x, 0), this.width - 1), y: Math.min(Math.max(y, 0), this.height - 1) };
  }

  /**
   * Show the active object's clicks and box.
   * @param {import("./objects.js").Point[]} points
   * @param {number[] | null} box
   * @param {(index: number | null) => void} remove called with a click's index, or null for the box
   */
  showMarks(points, box, remove) {
    const focused = this.#marks.findIndex(({ button }) => button === document.activeElement);
    const mark = (kind, label, index) => {
      // The second click of a double-click hits the marker created by the first.
      const onclick = (event) => event.detail < 2 && remove(index);
      return createButton(`marker ${kind}`, onclick, { ariaLabel: `Remove ${label}`, title: "Remove" });
    };
    this.#marks = points.map(({ x, y, label }, index) => {
      const kind = label ? "positive" : "negative";
      return { x: x + 0.5, y: y + 0.5, button: mark(kind, `${kind} click at ${x}, ${y}`, index) };
    });
    if (box) this.#marks.push({ x: box[2] + 1, y: box[1], button: mark("corner", `box from ${box.slice(0, 2)} to ${box.slice(2)}`, null) });
    this.markers.replaceChildren(...this.#marks.map(({ button }) => button));
    if (focused >= 0) (this.#marks[focused]?.button ?? this.view).focus();
    this.#positionMarks();
    this.drawBox(box);
  }

  /** Show a box, or hide it with null. */
  drawBox(box) {
    this.shownBox = box;
    this.box.hidden = !box;
    if (!box) return;
    const { scale, x, y } = this.transform;
    Object.assign(this.box.style, {
      transform: `translate(${x + box[0] * scale}px, ${y + box[1] * scale}px)`,
      width: `${(box[2] + 1 - box[0]) * scale}px`,
      height: `${(box[3] + 1 - box[1]) * scale}px`,
    });
  }

  /** Show the frame of a part of the image: x0, y0, x1, y1; x1 and y1 are exclusive. */
  showPart(part) {
    const frame = element("part");
    frame.hidden = !part;
    if (part) Object.assign(frame.style, { left: `${part[0]}px`, top: `${part[1]}px`, width: `${part[2] - part[0]}px`, height: `${part[3] - part[1]}px` });
  }

  /** Move the crosshair to a pixel; null hides it and cancels a box begun by keyboard. */
  moveCursor(pixel) {
    this.cursor = pixel;
    if (!pixel) this.corner = null;
    this.crosshair.hidden = !pixel;
    if (pixel) placeAt(this.crosshair, this.transform, pixel.x + 0.5, pixel.y + 0.5);
  }

  #positionMarks() {
    for (const { x, y, button } of this.#marks) placeAt(button, this.transform, x, y);
  }

  #applyTransform() {
    const { scale, x, y } = this.transform;
    this.scene.style.setProperty("--scale", String(scale));
    this.scene.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    this.scene.classList.toggle("squares", scale >= PIXELATED_SCALE);
    this.#positionMarks();
    this.drawBox(this.shownBox);
    this.moveCursor(this.cursor);
    this.onZoom();
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      for (const layer of [this.others, this.active, this.preview]) layer.drawLines(this.transform);
    });
  }
}

/** Return the box with two opposite corners: x0, y0, x1, y1. */
export function boxOf(one, other) {
  return [Math.min(one.x, other.x), Math.min(one.y, other.y), Math.max(one.x, other.x), Math.max(one.y, other.y)];
}

function placeAt(element, { scale, x, y }, imageX, imageY) {
  element.style.transform = `translate(${x + imageX * scale}px, ${y + imageY * scale}px)`;
}
