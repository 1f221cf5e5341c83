// The brush and the eraser: their size, their cursor, and strokes painted as they are drawn.

import { element, setPosition } from "./dom.js";
import { Stroke } from "./stroke.js";

/** Radius with the slider at its end: 50 pixels, or more in large images. */
const MIN_LARGEST_RADIUS = 50, LARGEST_RADIUS_SHARE = 0.1;

export class Brush {
  /** @param {import("./stage.js").Stage} stage */
  constructor(stage) {
    this.stage = stage;
    this.slider = element("radius");
    this.cursor = element("brush");
    this.slider.addEventListener("input", () => this.showRadius());
    stage.view.addEventListener("pointermove", (event) => this.#moveCursor(stage.pointAt(event)));
    stage.view.addEventListener("pointerdown", (event) => this.#moveCursor(stage.pointAt(event)));
    // A lifted finger leaves the view, too.
    stage.view.addEventListener("pointerleave", () => this.#moveCursor(null));
    // Later listeners of the key move the crosshair.
    const followCrosshair = () => stage.cursor && this.#moveCursor({ x: stage.cursor.x + 0.5, y: stage.cursor.y + 0.5 });
    document.addEventListener("keydown", () => requestAnimationFrame(followCrosshair));
  }

  /** Radius in image pixels; the slider's steps are proportional. */
  get radius() {
    const largest = Math.max(MIN_LARGEST_RADIUS, LARGEST_RADIUS_SHARE * Math.max(this.stage.width, this.stage.height));
    return Math.max(1, Math.round(largest ** (this.slider.valueAsNumber / 100)));
  }

  resize(change) {
    this.slider.valueAsNumber += change;
    this.showRadius();
  }

  showRadius() {
    const { radius } = this;
    element("radius-value").textContent = `${radius} px`;
    this.slider.setAttribute("aria-valuetext", `${radius} pixels`);
    this.cursor.style.setProperty("--radius", String(radius));
  }

  #moveCursor(point) {
    this.cursor.hidden = !point;
    if (point) setPosition(this.cursor, point);
  }

  /**
   * Begin a stroke on a mask.
   * @param {import("./rle.js").Mask | null} mask null: empty
   * @param {{colour: string, erases: boolean, start: {x: number, y: number}}} options
   * @param {(mask: import("./rle.js").Mask) => void} onEnd
   * @returns {import("./gestures.js").Stroke}
   */
  begin(mask, { colour, erases, start }, onEnd) {
    const { stage } = this;
    const stroke = new Stroke(mask, stage, { radius: this.radius, erases });
    const lineTo = (point) => stage.active.paintPart(stroke, stroke.lineTo(point), colour);
    const finish = () => {
      stage.active.endParts();
      stage.view.classList.remove("drawing");
    };
    stage.view.classList.add("drawing");
    lineTo(start);
    return {
      move(event) {
        const events = event.getCoalescedEvents?.() ?? [];
        for (const one of events.length ? events : [event]) lineTo(stage.pointAt(one));
      },
      end() {
        finish();
        onEnd(stroke.mask());
      },
      cancel() {
        finish();
        onEnd(null);
      },
    };
  }
}
