// The project in the browser's own database: images, the work on each, and what belongs to all of them.

/**
 * @typedef {object} StoredImage
 * @property {number} id
 * @property {string} name file name, with its folder if a folder was opened
 * @property {number} width of the displayed image in pixels
 * @property {number} height
 * @property {Blob} file PNG, JPEG or WebP, as the service gets it
 * @property {Blob} thumbnail
 * @property {import("./copies.js").Original | null} [original] where `file` is a copy
 * @property {Record<number, number>} counts number of objects with a mask, by class
 */

const DATABASE = "mobile-sam", VERSION = 1;
const IMAGES = "images", WORK = "work", PROJECT = "project";
/** Key of the only record in PROJECT. */
const ONLY = "only";

/** Return the result of a database request. */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Store {
  /** @param {IDBDatabase} database */
  constructor(database) {
    this.database = database;
  }

  /**
   * Open the database, and ask the browser not to delete it when it needs room.
   * @returns {Promise<Store>}
   * @throws {Error} the browser gives no storage, as in some private windows
   */
  static async open() {
    const request = indexedDB.open(DATABASE, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(IMAGES, { keyPath: "id", autoIncrement: true });
      request.result.createObjectStore(WORK);
      request.result.createObjectStore(PROJECT);
    };
    const database = await done(request);
    navigator.storage?.persist?.().catch(() => {});
    return new Store(database);
  }

  /** @returns {Promise<StoredImage[]>} all images in the order in which they were added */
  images() {
    return done(this.#in(IMAGES, "readonly").getAll());
  }

  /**
   * Add an image.
   * @param {Omit<StoredImage, "id">} image
   * @returns {Promise<number>} its id
   */
  async add(image) {
    const store = this.#in(IMAGES, "readwrite"), request = store.add(image);
    await completed(store.transaction);
    return Number(request.result);
  }

  /** Return the work on an image as `save` got it, or undefined. */
  work(id) {
    return done(this.#in(WORK, "readonly").get(id));
  }

  /**
   * Save the work on an image, and what belongs to no single image, in one transaction. The image itself is not written
   * again: that would copy its file.
   * @param {number} id of the image
   * @param {object} work structured-cloneable
   * @param {object} project likewise
   */
  save(id, work, project) {
    const transaction = this.database.transaction([WORK, PROJECT], "readwrite");
    transaction.objectStore(WORK).put(work, id);
    transaction.objectStore(PROJECT).put(project, ONLY);
    return completed(transaction);
  }

  /** Remove an image and the work on it. */
  remove(id) {
    const transaction = this.database.transaction([IMAGES, WORK], "readwrite");
    transaction.objectStore(IMAGES).delete(id);
    transaction.objectStore(WORK).delete(id);
    return completed(transaction);
  }

  /** Return what belongs to no single image as it was saved last, or undefined. */
  project() {
    return done(this.#in(PROJECT, "readonly").get(ONLY));
  }

  /** Save what belongs to no single image. */
  saveProject(project) {
    const store = this.#in(PROJECT, "readwrite");
    store.put(project, ONLY);
    return completed(store.transaction);
  }

  /** Remove everything. */
  clear() {
    const transaction = this.database.transaction([IMAGES, WORK, PROJECT], "readwrite");
    for (const name of [IMAGES, WORK, PROJECT]) transaction.objectStore(name).clear();
    return completed(transaction);
  }

  #in(name, mode) {
    return this.database.transaction(name, mode).objectStore(name);
  }
}

/** A store without a database: what is in it ends with the page. */
export class MemoryStore {
  #images = new Map();
  #work = new Map();
  #project = undefined;

  async images() {
    return [...this.#images.values()];
  }

  async add(image) {
    const id = Math.max(0, ...this.#images.keys()) + 1;
    this.#images.set(id, { ...image, id });
    return id;
  }

  async work(id) {
    return this.#work.get(id);
  }

  async save(id, work, project) {
    this.#work.set(id, work);
    this.#project = project;
  }

  async remove(id) {
    this.#images.delete(id);
    this.#work.delete(id);
  }

  async project() {
    return this.#project;
  }

  async saveProject(project) {
    this.#project = project;
  }

  async clear() {
    this.#images.clear();
    this.#work.clear();
    this.#project = undefined;
  }
}

/** Wait until what was written is stored: that can fail after each request has succeeded, for example on a full disk. */
function completed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new DOMException("aborted", "AbortError"));
  });
}
