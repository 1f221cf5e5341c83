// Mask preview under the pointer: one request at a time, always for the latest position.

import { maskOptions } from "./options.js";
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
   * @param {(reason: string) => void} onPause called at the first of several pauses
   */
  constructor(stage, onPause) {
    this.stage = stage;
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
    if (!point) {
      if (this.#wanted) this.clear();
      return;
    }
    this.#wanted = point;
    if (!this.#running && !this.#paused && this.#session?.remote.id) this.#run();
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
        const fields = { pos_coords: [[last.x, last.y]], ...maskOptions(session) };
        const [mask] = await this.#service.segment(session.remote, fields);
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
      this.at(this.#wanted);
    }, this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }
}
