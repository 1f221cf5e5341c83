// The masks of one image's objects: asked for once for the same clicks.

import { isMarked, promptsOf } from "./objects.js";

const keyOf = (object) => JSON.stringify(promptsOf(object));

export class Masks {
  #known = new Map();
  /** By object, the mask that it showed last. */
  #last = new Map();
  /** By object, the request on its way. */
  #asking = new Map();

  /** @param {import("./service.js").Service} service @param {{remote: object, embedded: Promise<void>}} image */
  constructor(service, image) {
    this.service = service;
    this.image = image;
  }

  /** Whether an answer is on its way. */
  get waiting() {
    return this.#asking.size > 0;
  }

  /** An object's mask; null where it has none, or not yet. */
  of(object) {
    if (object.found) return object.found;
    return isMarked(object) ? (this.#known.get(keyOf(object))?.[Math.max(object.candidate - 1, 0)] ?? null) : null;
  }

  /** The mask to show for an object: that of before while its own is on the way. */
  toShow(object) {
    const mask = this.of(object);
    if (mask) this.#last.set(object.id, mask);
    else if (!isMarked(object)) this.#last.delete(object.id);
    return mask ?? this.#last.get(object.id) ?? null;
  }

  /**
   * Ask for an object's mask; what was asked for it before is dropped.
   * @returns {Promise<number>} milliseconds that the service took
   * @throws {DOMException} AbortError: something else was asked for the object in the meantime
   */
  async ask(object) {
    this.#asking.get(object.id)?.abort();
    const request = new AbortController();
    this.#asking.set(object.id, request);
    try {
      // Where that has failed, this request sends the image, and tells what is wrong with it.
      await this.image.embedded.catch(() => {});
      request.signal.throwIfAborted();
      const began = performance.now();
      this.#known.set(keyOf(object), await this.service.segment(this.image.remote, promptsOf(object), request.signal));
      return performance.now() - began;
    } finally {
      if (this.#asking.get(object.id) === request) this.#asking.delete(object.id);
    }
  }

  /** Drop all that is on its way. */
  stop() {
    for (const request of this.#asking.values()) request.abort();
  }
}
