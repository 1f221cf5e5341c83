// The mask that a click would give, while the pointer moves: one question at a time, about where the pointer is by then.

import { Service } from "./service.js";

const COLOUR = "#ffffff";
/** Milliseconds; a preview that comes later than this, several times in a row, is of no use. */
const LATE = 400;
const LATE_IN_A_ROW = 4;

export class Preview {
  // A service that is busy is not asked again: waiting for it would be for nothing.
  #service = new Service(() => {
    throw new Error("The service is busy");
  });
  #session = null;
  #wanted = null;
  #asking = false;
  #late = 0;

  /**
   * @param {import("./stage.js").Stage} stage
   * @param {(why: string) => void} giveUp is told that there will be no more previews
   */
  constructor(stage, giveUp) {
    this.stage = stage;
    this.giveUp = giveUp;
  }

  /** Preview clicks on a session's image from now on. */
  use(session) {
    this.#session = session;
    this.#late = 0;
    this.clear();
  }

  /** The pointer is here; null: nowhere, or where no preview is wanted. */
  at(point) {
    if (!point) {
      if (this.#wanted) this.clear();
      return;
    }
    this.#wanted = point;
    if (!this.#asking && this.#session?.remote.id) this.#ask();
  }

  clear() {
    this.#wanted = null;
    this.stage.paint(this.stage.preview, []);
  }

  async #ask() {
    this.#asking = true;
    const session = this.#session;
    try {
      for (let asked = null; this.#wanted && this.#wanted !== asked && session === this.#session; ) {
        asked = this.#wanted;
        const began = performance.now();
        const [mask] = await this.#service.segment(session.remote, { pos_coords: [[asked.x, asked.y]] });
        this.#late = performance.now() - began > LATE ? this.#late + 1 : 0;
        if (this.#late >= LATE_IN_A_ROW) throw new Error("The service takes too long for previews");
        if (this.#wanted && session === this.#session) this.stage.paint(this.stage.preview, [{ mask, colour: COLOUR }]);
      }
    } catch (error) {
      this.clear();
      this.giveUp(`${error.message.replace(/\.$/, "")}: no preview for now`);
    } finally {
      this.#asking = false;
    }
  }
}
