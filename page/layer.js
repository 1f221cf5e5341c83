// Masks over the image: fills at the image's resolution, outlines at the screen's.

import { cached } from "./cached.js";
import { create } from "./dom.js";

/** Larger images are painted at a half, a third, ... of their resolution. */
const MAX_PAINTED_PIXELS = 4_000_000;
/** Lengths on the screen. */
const DASHES = [6, 4];
/** Fields of an item that a layer shows. */
const SHOWN = ["mask", "colour", "dashed"];

/** A layer of masks: a fill canvas that moves with the image, and an outline canvas of the view's size over it. */
export class Layer {
  #items = [];
  #step = 1;
  /** True while `paintPart` owns the layer. */
  #isDrawing = false;

  /**
   * @param {HTMLElement} scene parent of the fill canvas, moves with the image
   * @param {HTMLElement} view parent of the outline canvas
   * @param {string} name id of the fill canvas; the outline canvas is `${name}-lines`
   * @param {{halo: string | null, width: number, colour: string | null}} line colour null: the mask's colour
   */
  constructor(scene, view, name, line) {
    this.fill = create("canvas", { id: name, ariaHidden: "true" });
    this.lines = create("canvas", { id: `${name}-lines`, ariaHidden: "true" });
    scene.append(this.fill);
    view.append(this.lines);
    this.line = line;
  }

  /** Clear the layer and fit it to a new image. */
  reset(width, height) {
    this.#step = Math.max(1, Math.ceil(Math.sqrt((width * height) / MAX_PAINTED_PIXELS)));
    this.fill.width = Math.ceil(width / this.#step);
    this.fill.height = Math.ceil(height / this.#step);
    this.fill.style.width = `${this.fill.width * this.#step}px`;
    this.fill.style.height = `${this.fill.height * this.#step}px`;
    this.endParts();
  }

  /**
   * Show these masks in place of the previous ones.
   * @param {{mask: import("./rle.js").Mask, colour: string, dashed?: boolean}[]} items dashed: of a proposal
   * @param {{scale: number, x: number, y: number}} transform from image to view pixels
   */
  show(items, transform) {
    if (this.#isDrawing) return;
    const previous = this.#items;
    if (items.length === previous.length && items.every((item, i) => SHOWN.every((field) => item[field] === previous[i][field]))) {
      return;
    }
    this.#items = items;
    const context = this.fill.getContext("2d");
    context.clearRect(0, 0, this.fill.width, this.fill.height);
    if (items.length === 1) {
      const painted = items[0].mask.pixels(this.#step, rgbaWord(items[0].colour));
      if (painted) context.putImageData(painted.pixels, painted.x, painted.y);
    } else {
      for (const { mask, colour } of items) {
        const fill = fillOf(mask, this.#step, colour);
        if (fill) context.drawImage(fill.canvas, fill.x, fill.y);
      }
    }
    this.drawLines(transform);
  }

  /**
   * Paint a part of one mask at once, while it is being drawn.
   * @param {{columns: Uint8Array, height: number}} mask 1 in the mask, column by column
   * @param {[number, number, number, number]} box x0, y0, x1, y1 of the part; x1 and y1 are exclusive
   */
  paintPart({ columns, height }, [x0, y0, x1, y1], colour) {
    this.#isDrawing = true;
    const step = this.#step, word = rgbaWord(colour);
    const left = Math.ceil(x0 / step), top = Math.ceil(y0 / step);
    const width = Math.ceil(x1 / step) - left, rowCount = Math.ceil(y1 / step) - top;
    if (width <= 0 || rowCount <= 0) return;
    const pixels = new ImageData(width, rowCount);
    const words = new Uint32Array(pixels.data.buffer);
    for (let x = 0; x < width; x++) {
      const column = (left + x) * step * height + top * step;
      for (let y = 0; y < rowCount; y++) if (columns[column + y * step]) words[y * width + x] = word;
    }
    this.fill.getContext("2d").putImageData(pixels, left, top);
  }

  /** End `paintPart`: the next `show` repaints everything. */
  endParts() {
    this.#isDrawing = false;
    this.#items = [];
  }

  /** Redraw the outlines at the image's current position. */
  drawLines({ scale, x, y }) {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.lines;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.lines.width !== width || this.lines.height !== height) {
      this.lines.width = width;
      this.lines.height = height;
    }
    const context = this.lines.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    context.lineJoin = "round";
    // Skip outline detail below one screen pixel.
    const step = Math.max(1, Math.floor(1 / (scale * ratio)));
    for (const { mask, colour, dashed } of this.#items) {
      const path = outlineOf(mask, step);
      context.setLineDash(dashed ? DASHES.map((length) => length / scale) : []);
      const { halo, width, colour: own } = this.line, strokes = [{ style: halo, wide: width + 2 }, { style: own ?? colour, wide: width }];
      for (const { style, wide } of strokes.filter(({ style }) => style)) {
        Object.assign(context, { strokeStyle: style, lineWidth: wide / scale });
        context.stroke(path);
      }
    }
  }
}

/** Return the fill of a mask on a separate canvas, which blends with others; null for an empty mask. */
const fillOf = cached((mask, step, colour) => mask.canvas(step, rgbaWord(colour)));

const outlineOf = cached((mask, step) => mask.outline(step) ?? new Path2D());

/** Convert `#rrggbb` to a little-endian RGBA word. */
export function rgbaWord(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
