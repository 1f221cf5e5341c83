// The masks of one image's objects: asked for once for the same clicks.

import { isMarked, promptsOf } from "./objects.js";

const keyOf = (object) => JSON.stringify(promptsOf(object));

export class Masks {
  #known = new Map();
  /** By object, the mask that it showed last. */
  #last = new Map();
  /** By object, the request on its way. */
  #asking = new Map();

  /**
   * @param {import("./service.js").Service} service
   * @param {{remote: import("./service.js").RemoteImage, embedded: Promise<object>}} image
   */
  constructor(service, image) {
    this.service = service;
    this.image = image;
  }

  /** Whether an answer is on its way. */
  get waiting() {
    return this.#asking.size > 0;
  }

  /** The smallest object that is shown at a pixel; null: none. */
  at(x, y, objects) {
    const shown = objects.filter((object) => !object.hidden && this.of(object)?.has(x, y));
    return shown.sort((one, other) => this.of(one).area - this.of(other).area)[0] ?? null;
  }

  /** Whether the answer for an object as it is marked is on its way. */
  asks(object) {
    return this.#asking.get(object.id)?.key === keyOf(object);
  }

  /** An object's mask; null where it has none, or not yet. */
  of(object) {
    if (object.found) return object.found;
    return isMarked(object) ? (this.#known.get(keyOf(object))?.[Math.max(object.candidate - 1, 0)] ?? null) : null;
  }

  /** The three candidates of an object's mask, the best by its score first; null where they are not known. */
  candidates(object) {
    const known = object.candidate ? this.#known.get(keyOf(object)) : null;
    return known ? [...known].sort((one, other) => other.score - one.score) : null;
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
    this.#asking.get(object.id)?.request.abort();
    const request = new AbortController();
    const asking = { request, key: keyOf(object) };
    this.#asking.set(object.id, asking);
    try {
      // Where that has failed, this request sends the image, and tells what is wrong with it.
      await this.image.embedded.catch(() => {});
      request.signal.throwIfAborted();
      const began = performance.now();
      this.#known.set(keyOf(object), await this.service.segment(this.image.remote, promptsOf(object), request.signal));
      return performance.now() - began;
    } finally {
      if (this.#asking.get(object.id) === asking) this.#asking.delete(object.id);
    }
  }

  /** Drop what is on its way for objects that are gone, or that are no longer marked as they were. */
  keep(objects) {
    for (const [id, { request, key }] of this.#asking) {
      const object = objects.find((one) => one.id === id);
      if (!object || keyOf(object) !== key) request.abort();
    }
  }
}
