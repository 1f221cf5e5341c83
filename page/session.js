// The open image: its objects, masks and requests.

/** @typedef {import("./store.js").StoredImage} StoredImage */

import { Masks } from "./masks.js";
import { isMarked, Objects } from "./objects.js";
import { chosenOptions, optionsOf, smoothing } from "./options.js";
import { aborted, RemoteImage } from "./service.js";
import { versionField } from "./versions.js";

export class Session {
  #service;
  #everything = null;
  #closed = new AbortController();
  /** @type {Set<string>} parts of the image for which the service has answered */
  encodedParts = new Set();

  /**
   * @param {import("./service.js").Service} service
   * @param {StoredImage} image
   * @param {import("./view.js").View} view what to draw of it
   * @param {number} classId class of new objects
   */
  constructor(service, image, view, classId) {
    this.#service = service;
    this.image = image;
    this.name = image.name;
    this.width = image.width;
    this.height = image.height;
    this.view = view;
    this.url = URL.createObjectURL(view.picture);
    const { name, width, height } = image, { orientation, range } = view;
    this.remote = new RemoteImage(() => this.image.file, { name, width, height, orientation, range });
    /** Options of the masks: those in the controls, until what is stored says otherwise. */
    this.options = chosenOptions();
    this.objects = new Objects(classId);
    this.masks = new Masks(service, this);
    /** @type {Promise<object>} the response of `/embed` */
    this.embedding = null;
  }

  /** Return the size, and what was done to open the image. */
  get about() {
    const size = `${this.width} × ${this.height}`, { original } = this.image;
    if (!original) return `${size} pixels`;
    const { width, height } = original;
    if (width === this.width && height === this.height) return `${size} pixels, opened as a JPEG copy`;
    return `${width} × ${height} pixels, opened as a copy of ${size}, exported at full size`;
  }

  /** Forget that the image is encoded: another version of the model may need it anew. */
  forget() {
    const { load, drawn, id, knownId } = this.remote;
    this.remote = new RemoteImage(load, drawn, id ?? knownId);
    this.encodedParts.clear();
  }

  /** Return objects, undo history and masks as plain data. */
  save() {
    return {
      objects: this.objects.save(),
      masks: this.masks.save(this.objects.list),
      /** Masks as displayed, by object id: what is exported. */
      shown: this.annotated.map(({ object, mask }) => [object.id, mask.record]),
      /** Ids of objects whose marks have changed since the mask that is displayed. */
      outdated: this.objects.accepted.filter((object) => isMarked(object) && !this.masks.get(object)).map(({ id }) => id),
      imageId: this.remote.id,
      options: this.options,
    };
  }

  /** Take over what `save` returned. */
  restore({ objects, masks, shown, imageId, options }) {
    this.options = options ?? optionsOf(masks) ?? this.options;
    this.objects.restore(objects);
    this.masks.restore(masks, shown);
    this.remote.id = imageId;
  }

  /** Return the objects that are counted and exported: those with a mask, with the mask that is displayed. */
  get annotated() {
    const found = this.objects.accepted.map((object) => ({ object, mask: this.masks.displayed(object) }));
    return found.filter(({ mask }) => mask?.area);
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
      const fields = { points_per_side: perSide, ...smoothing(this, this.options), ...versionField() };
      const found = await this.#service.everything(this.remote, fields, onProgress, stop.signal);
      stop.signal.throwIfAborted(); // the result may have arrived with the last progress
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
