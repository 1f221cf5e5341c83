// Masks before the click that takes them over: previews under the pointer, one request at a time and always for the
// latest position; and the mask of a press, which arrives while the button is still down.

import { MAX_PREVIEW_MS } from "./local.js";
import { isMarked } from "./objects.js";
import { limitedUntil } from "./service.js";

const COLOUR = "#ffffff";
/** Previews pause after this many consecutive requests slower than MAX_PREVIEW_MS. */
const MAX_SLOW_PREVIEWS = 4;
/** The pause doubles until a preview succeeds again. */
const FIRST_PAUSE_MS = 2000, MAX_PAUSE_MS = 30_000;
/** After a rate limit's time: a timer may end a little early. */
const MARGIN_MS = 50;

export class Preview {
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

  /**
   * Show the mask of an object as a click would leave it; null ends the preview.
   * @param {import("./objects.js").ImageObject | null} object
   */
  at(object) {
    if (!object || !this.#isReady(object)) {
      if (this.#wanted) this.clear();
      return;
    }
    if (JSON.stringify(object) === JSON.stringify(this.#wanted)) return; // the pointer moved within the pixel
    this.#wanted = object;
    if (!this.#running && !this.#paused) this.#run();
  }

  /**
   * Ask for the mask of a click before the button is released.
   * @param {import("./objects.js").ImageObject} object as the click would leave it
   */
  press(object) {
    const { masks } = this.#session;
    if (isMarked(object) && !this.#paused && this.#isReady(object) && !masks.get(object)) masks.preview(object, "press");
  }

  /**
   * Return whether no rate limit is reached, and the service has encoded what an object asks for: a preview waits for nothing.
   * @param {import("./objects.js").ImageObject} object
   */
  #isReady({ part }) {
    const isEncoded = this.#session?.remote.id && (!part || this.#session.encodedParts.has(String(part)));
    return Boolean(performance.now() >= limitedUntil && isEncoded);
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
        const masks = await session.masks.preview(last, "hover");
        const mask = masks[Math.max(last.candidate - 1, 0)];
        this.#slowCount = performance.now() - began > MAX_PREVIEW_MS ? this.#slowCount + 1 : 0;
        if (this.#slowCount >= MAX_SLOW_PREVIEWS) throw new Error("Masks take too long for previews.");
        if (!this.#slowCount) this.#pauseMs = FIRST_PAUSE_MS;
        if (this.#wanted && session === this.#session) this.stage.paint(this.stage.preview, [{ mask, colour: COLOUR }]);
      }
    } catch (error) {
      this.stage.paint(this.stage.preview, []);
      this.#pause(error.message.replace(/[^.?!]$/, "$&."));
    } finally {
      this.#running = false;
    }
  }

  #pause(reason) {
    if (this.#pauseMs === FIRST_PAUSE_MS) this.onPause(`${reason} Previews pause and come back by themselves.`);
    this.#paused = true;
    setTimeout(() => {
      this.#paused = false;
      const wanted = this.#wanted;
      this.#wanted = null;
      this.at(wanted);
    }, Math.max(this.#pauseMs, limitedUntil - performance.now() + MARGIN_MS));
    this.#pauseMs = Math.min(2 * this.#pauseMs, MAX_PAUSE_MS);
  }
}
