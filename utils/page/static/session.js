// An image at hand: what is marked on it, and its way to the service and back.

import { Masks } from "./masks.js";
import { isMarked, Objects } from "./objects.js";
import { RemoteImage } from "./service.js";

export class Session {
  #service;
  #everything = null;
  #closed = new AbortController();

  /**
   * @param {import("./service.js").Service} service
   * @param {string} name of the file
   * @param {{file: Blob, width: number, height: number}} image as the service takes it
   */
  constructor(service, name, { file, width, height }) {
    this.#service = service;
    Object.assign(this, { name, width, height });
    this.url = URL.createObjectURL(file);
    this.remote = new RemoteImage(file);
    this.objects = new Objects();
    this.masks = new Masks(service, this);
    /** @type {Promise<object>} what the service says of the image, once it is encoded */
    this.embedded = null;
    /** Whether something was marked that has not been saved. */
    this.unsaved = false;
  }

  /** Marked objects that would be lost. */
  get lost() {
    return this.unsaved ? this.objects.list.filter(isMarked).length : 0;
  }

  /** Have the image encoded ahead of the first click. */
  embed() {
    this.embedded = this.#service.embed(this.remote, this.#closed.signal);
    return this.embedded;
  }

  /**
   * Find all objects, and add them to the others.
   * @param {number} perSide clicks on each side of the grid
   * @param {(done: number, total: number) => void} onProgress
   * @returns {Promise<import("./rle.js").Mask[]>} the largest first
   * @throws {DOMException} AbortError: it was stopped, or is going on already
   */
  async everything(perSide, onProgress) {
    if (this.#everything) throw new DOMException("It is going on already", "AbortError");
    const stop = (this.#everything = new AbortController());
    try {
      await Promise.race([this.embedded, aborted(stop.signal)]);
      const found = await this.#service.everything(this.remote, { points_per_side: perSide }, onProgress, stop.signal);
      return found.sort((one, other) => other.area - one.area);
    } finally {
      this.#everything = null;
    }
  }

  stopEverything() {
    this.#everything?.abort();
  }

  /** Leave the image: nothing more comes of it. */
  close() {
    this.#closed.abort();
    this.masks.keep([]);
    this.stopEverything();
    URL.revokeObjectURL(this.url);
  }
}

/** Rejects when a signal says so, and else never ends. */
function aborted(signal) {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}
