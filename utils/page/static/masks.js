// The masks of an image's objects, requested once per set of prompts and options.

import { isMarked, promptsOf } from "./objects.js";
import { maskOptions } from "./options.js";

export class Masks {
  /** Masks by the fields of their request. */
  #known = new Map();
  /** The mask displayed last, by object id. */
  #last = new Map();
  /** The request in flight, by object id. */
  #requests = new Map();

  /**
   * @param {import("./service.js").Service} service
   * @param {{remote: import("./service.js").RemoteImage, embedding: Promise<object>, width: number, height: number}} image
   */
  constructor(service, image) {
    this.service = service;
    this.image = image;
  }

  /** Return the fields of the request for an object's mask. */
  fieldsOf(object) {
    return { ...promptsOf(object), ...maskOptions(this.image) };
  }

  #keyOf(object) {
    return JSON.stringify(this.fieldsOf(object));
  }

  /** Whether a request is in flight. */
  get pending() {
    return this.#requests.size > 0;
  }

  /** Return the smallest visible object at a pixel, or null. */
  objectAt(x, y, objects) {
    const visible = objects.filter((object) => !object.hidden && this.get(object)?.has(x, y));
    return visible.sort((one, other) => this.get(one).area - this.get(other).area)[0] ?? null;
  }

  /** Return whether a request for the object's current mask is in flight. */
  isPending(object) {
    return this.#requests.get(object.id)?.key === this.#keyOf(object);
  }

  /** Return an object's mask, or null while it has none. */
  get(object) {
    if (object.drawn ?? object.found) return object.drawn ?? object.found;
    return isMarked(object) ? (this.#known.get(this.#keyOf(object))?.[Math.max(object.candidate - 1, 0)] ?? null) : null;
  }

  /** Return the three candidates of an object's mask, highest score first, or null while unknown. */
  candidates(object) {
    const known = object.candidate ? this.#known.get(this.#keyOf(object)) : null;
    return known ? [...known].sort((one, other) => other.score - one.score) : null;
  }

  /** Return the mask to display: the previous one while the current one is pending. */
  displayed(object) {
    const mask = this.get(object);
    if (mask) this.#last.set(object.id, mask);
    else if (!isMarked(object)) this.#last.delete(object.id);
    return mask ?? this.#last.get(object.id) ?? null;
  }

  /**
   * Request an object's mask and abort the object's previous request.
   * @returns {Promise<number>} response time in milliseconds
   * @throws {DOMException} AbortError: the object has changed in the meantime
   */
  async request(object) {
    this.#requests.get(object.id)?.controller.abort();
    const controller = new AbortController();
    const fields = this.fieldsOf(object), key = JSON.stringify(fields);
    const request = { controller, key };
    this.#requests.set(object.id, request);
    try {
      // If encoding failed, this request sends the image again and reports the error.
      await this.image.embedding.catch(() => {});
      controller.signal.throwIfAborted();
      const began = performance.now();
      this.#known.set(key, await this.service.segment(this.image.remote, fields, controller.signal));
      return performance.now() - began;
    } finally {
      if (this.#requests.get(object.id) === request) this.#requests.delete(object.id);
    }
  }

  /** Abort requests for objects that were removed, or have new prompts or options. */
  abortStale(objects) {
    for (const [id, { controller, key }] of this.#requests) {
      const object = objects.find((one) => one.id === id);
      if (!object || this.#keyOf(object) !== key) controller.abort();
    }
  }
}
