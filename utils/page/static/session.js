// The open image: its objects, masks and requests.

import { Masks } from "./masks.js";
import { isMarked, Objects } from "./objects.js";
import { smoothing } from "./options.js";
import { RemoteImage } from "./service.js";

export class Session {
  #service;
  #everything = null;
  #closed = new AbortController();

  /**
   * @param {import("./service.js").Service} service
   * @param {string} name of the file
   * @param {{file: Blob, width: number, height: number, original?: import("./copies.js").Original}} image from prepareImage
   */
  constructor(service, name, { file, width, height, original = null }) {
    this.#service = service;
    this.name = name;
    this.width = width;
    this.height = height;
    this.original = original;
    this.url = URL.createObjectURL(file);
    this.remote = new RemoteImage(file);
    this.objects = new Objects();
    this.masks = new Masks(service, this);
    /** @type {Promise<object>} the response of `/embed` */
    this.embedding = null;
    /** Whether there are changes since the last save. */
    this.unsaved = false;
  }

  /** Return the size, and what was done to open the image. */
  get about() {
    const size = `${this.width} × ${this.height}`;
    if (!this.original) return `${size} pixels`;
    const { width, height } = this.original;
    if (width === this.width && height === this.height) return `${size} pixels, opened as a JPEG copy`;
    return `${width} × ${height} pixels, opened as a copy of ${size}, exported at full size`;
  }

  /** Number of marked objects, 0 if they are saved. */
  get unsavedCount() {
    return this.unsaved ? this.objects.list.filter(isMarked).length : 0;
  }

  /** Encode the image ahead of the first click. */
  embed() {
    this.embedding = this.#service.embed(this.remote, this.#closed.signal);
    return this.embedding;
  }

  /**
   * Segment everything on the image.
   * @param {number} perSide grid points per side
   * @param {(done: number, total: number) => void} onProgress
   * @returns {Promise<import("./rle.js").Mask[]>} largest first
   * @throws {DOMException} AbortError: stopped, or already running
   */
  async everything(perSide, onProgress) {
    if (this.#everything) throw new DOMException("already running", "AbortError");
    const stop = (this.#everything = new AbortController());
    try {
      await Promise.race([this.embedding, aborted(stop.signal)]);
      const fields = { points_per_side: perSide, ...smoothing(this) };
      const found = await this.#service.everything(this.remote, fields, onProgress, stop.signal);
      return found.sort((one, other) => other.area - one.area);
    } finally {
      this.#everything = null;
    }
  }

  stopEverything() {
    this.#everything?.abort();
  }

  /** Abort all requests and release the image. */
  close() {
    this.#closed.abort();
    this.masks.abortStale([]);
    this.stopEverything();
    URL.revokeObjectURL(this.url);
  }
}

/** Return a promise that rejects when the signal is aborted. */
function aborted(signal) {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}
