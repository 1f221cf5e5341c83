// "Refine here": while it is on, clicks are answered from the visible part of the image, at its full resolution.

import { element } from "./dom.js";
import { hint } from "./notices.js";
import { rounded } from "./regions.js";
import { modelOf } from "./versions.js";

/** Largest visible share of each side at which refining is offered. */
const MAX_SHARE = 0.5;
/** A smaller part is extended to this size: the model needs to see what is around an object. */
const MIN_PART_PIXELS = 256;

export class Refine {
  /** @type {import("./session.js").Session | null} */
  #session = null;
  #on = false;

  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.button = element("refine");
    stage.view.addEventListener("zoom", () => this.#update());
  }

  /** Switch to a new session. Its objects ask here for the part of their next request. */
  use(session) {
    this.#session = session;
    this.#on = false;
    if (session) session.objects.partOf = (object, isAhead) => this.#partOf(object, !isAhead);
    this.#update();
  }

  /** Return whether the view shows a small part of an image that is larger than the model's input. */
  get isUseful() {
    if (!this.#session) return false;
    const { width, height } = this.#session, [x0, y0, x1, y1] = this.#visible();
    const isPart = x0 < x1 && y0 < y1 && x1 - x0 <= MAX_SHARE * width && y1 - y0 <= MAX_SHARE * height;
    return isPart && Math.max(width, height) > modelOf().descriptor.side;
  }

  /**
   * Switch refining on or off.
   * @returns {number[] | null} the part for the active object's clicks, if it was switched on and all of them are visible
   */
  toggle() {
    if (!this.isUseful) return null;
    this.#on = !this.#on;
    this.#update();
    hint(this.#on ? "Clicks are now answered from the visible part" : "Clicks now use the whole image; refined objects stay as they are");
    const part = this.#part();
    return this.#on && isWithin(this.#session.objects.active, part) ? part : null;
  }

  /** Return the part for an object's next request: the last one, the visible one, or null for the whole image. */
  #partOf(object, explains) {
    const { part } = object, visible = this.#on ? this.#part() : null;
    const next = [part, visible].find((one) => one && isWithin(object, one)) ?? null;
    if (explains && part && part !== next) {
      hint(next ? "Refined again, in the part that is visible now" : "This is outside of the refined part: the whole image was used instead (Undo brings the part back)");
    }
    return next;
  }

  /** Return the visible part, extended to the smallest size that is of use, and rounded. */
  #part() {
    const [x0, y0, x1, y1] = this.#visible(), { width, height } = this.#session;
    const extended = (from, to, end) => {
      const size = Math.min(Math.max(to - from, MIN_PART_PIXELS), end);
      const start = Math.min(Math.max(Math.round((from + to - size) / 2), 0), end - size);
      return [start, start + size];
    };
    const [[left, right], [top, bottom]] = [extended(x0, x1, width), extended(y0, y1, height)];
    return rounded([left, top, right, bottom], this.#session);
  }

  /** Return the visible image pixels: x0, y0, x1, y1; x1 and y1 are exclusive. */
  #visible() {
    const { view, transform: { scale, x, y } } = this.stage, { width, height } = this.#session;
    const start = (offset) => Math.max(0, Math.floor(-offset / scale));
    const end = (size, offset, limit) => Math.min(limit, Math.ceil((size - offset) / scale));
    return [start(x), start(y), end(view.clientWidth, x, width), end(view.clientHeight, y, height)];
  }

  #update() {
    const { isUseful } = this;
    if (this.#on && !isUseful) {
      this.#on = false;
      hint("Zoomed out: clicks use the whole image again; refined objects stay as they are");
    }
    this.button.hidden = !isUseful;
    this.button.setAttribute("aria-pressed", String(this.#on));
  }
}

/** Return whether all marks of an object are within a part. */
function isWithin({ points, box }, part) {
  const [x0, y0, x1, y1] = part;
  const corners = box ? [{ x: box[0], y: box[1] }, { x: box[2], y: box[3] }] : [];
  return [...points, ...corners].every(({ x, y }) => x >= x0 && y >= y0 && x < x1 && y < y1);
}
