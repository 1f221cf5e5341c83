// Mask preview under the pointer: one request at a time, always for the latest position.

import { Service } from "./service.js";

const COLOUR = "#ffffff";
/** Previews pause after this many consecutive requests slower than the limit. */
const MAX_SLOW_PREVIEWS = 4, MAX_PREVIEW_MS = 400;
/** The pause doubles until a preview succeeds again. */
const FIRST_PAUSE_MS = 2000, MAX_PAUSE_MS = 30_000;

export class Preview {
  // No retries when the service is busy: the preview would arrive too late.
  #service = new Service(() => {
    throw new Error("The service is busy");
  });
  #session = null;
  #wanted = null;
  #running = false;
  #slowCount = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #paused = false;

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {(point: {x: number, y: number}) => number[] | null} partOf returns the part of the image to ask
   * @param {(reason: string) => void} onPause called at the first of several pauses
   */
  constructor(stage, partOf, onPause) {
    this.stage = stage;
    this.partOf = partOf;
    this.onPause = onPause;
  }

  /** Switch to a new session. */
  use(session) {
    this.#session = session;
    this.#slowCount = 0;
    this.clear();
  }

  /** Preview a click at this pixel; null ends the preview. */
  at(point) {
    const part = point && this.partOf(point);
    // What is not encoded yet is not sent for a preview.
    const isKnown = point && this.#session && (this.#session.part(part) ?? this.#session).remote.id;
    if (!isKnown) {
      if (this.#wanted) this.clear();
      return;
    }
    const wanted = { points: [{ ...point, label: 1 }], box: null, candidate: 0, part };
    if (JSON.stringify(wanted) === JSON.stringify(this.#wanted)) return; // it moved within the pixel
    this.#wanted = wanted;
    if (!this.#running && !this.#paused) this.#run();
  }

  clear() {
    this.#wanted = null;
    this.stage.paint(this.stage.preview, []);
  }

  async #run() {
    this.#running = true;
    const session = this.#session;
    try {
      for (let last = null; this.#wanted && this.#wanted !== last && session === this.#session; ) {
        last = this.#wanted;
        const began = performance.now();
        const [mask] = await session.masks.preview(this.#service, last);
        this.#slowCount = performance.now() - began > MAX_PREVIEW_MS ? this.#slowCount + 1 : 0;
        if (this.#slowCount >= MAX_SLOW_PREVIEWS) throw new Error("The service is too slow for previews");
        if (!this.#slowCount) this.#pauseMs = FIRST_PAUSE_MS;
        if (this.#wanted && session === this.#session) this.stage.paint(this.stage.preview, [{ mask, colour: COLOUR }]);
      }
    } catch (error) {
      this.stage.paint(this.stage.preview, []);
      this.#pause(error.message.replace(/\.$/, ""));
    } finally {
      this.#running = false;
    }
  }

  #pause(reason) {
    if (this.#pauseMs === FIRST_PAUSE_MS) this.onPause(`${reason}: previews pause and come back by themselves`);
    this.#paused = true;
    setTimeout(() => {
      this.#paused = false;
      const point = this.#wanted?.points[0] ?? null;
      this.#wanted = null;
      this.at(point);
    }, this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }
}
