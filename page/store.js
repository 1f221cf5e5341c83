// The project in the browser's own database: images, the work on each, and what belongs to all of them.

/**
 * @typedef {object} StoredImage
 * @property {number} id
 * @property {string} name file name, with its folder if a folder was opened
 * @property {number} width of the displayed image in pixels
 * @property {number} height
 * @property {Blob} file PNG, JPEG or WebP, as the service gets it
 * @property {number} [orientation] by which the file is turned for display; missing in older projects: by the rule
 * @property {Blob} thumbnail
 * @property {import("./copies.js").Original | null} [original] where `file` is a copy
 * @property {Record<number, number>} counts number of objects with a mask, by class
 * @property {boolean} [reviewed] whether a person has marked it: exported also without objects
 */

const DATABASE = "mobile-sam", VERSION = 1;
const IMAGES = "images", WORK = "work", PROJECT = "project";
/** Key of the only record in PROJECT. */
const ONLY = "only";
/** Key in PROJECT of what is removed at once. */
const TEST = "test";

/** Return the result of a database request. */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Wait until what was written is stored: that can fail after each request has succeeded, for example on a full disk. */
function completed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new DOMException("aborted", "AbortError"));
  });
}

export class Store {
  /** Work by image, without a database: it ends with the page. */
  #work = new Map();
  #lastId = 0;

  /** @param {IDBDatabase | null} database null: nothing outlives the page */
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
    const store = new Store(database);
    await store.#checkFiles();
    return store;
  }

  /**
   * Store a file and remove it again: WebKit's private windows have a database that takes none.
   * @throws {Error} the browser stores no files
   */
  async #checkFiles() {
    if (await this.#read(IMAGES, (images) => images.count())) return; // it has stored some
    await this.#write([PROJECT], (projects) => [projects.put(new Blob(["test"]), TEST), projects.delete(TEST)]).catch(() => {
      throw new Error("the browser stores no files, as in a private window");
    });
  }

  /** @returns {Promise<StoredImage[]>} all images in the order in which they were added */
  async images() {
    return this.#read(IMAGES, (store) => store.getAll());
  }

  /** Return what belongs to no single image as it was saved last, or undefined. */
  async project() {
    return this.#read(PROJECT, (store) => store.get(ONLY));
  }

  /** Return the work on an image as `save` got it, or undefined. */
  async work(id) {
    return this.database ? this.#read(WORK, (store) => store.get(id)) : this.#work.get(id);
  }

  /**
   * Add an image.
   * @param {Omit<StoredImage, "id">} image
   * @returns {Promise<number>} its id
   */
  async add(image) {
    if (!this.database) return ++this.#lastId;
    const request = await this.#write([IMAGES], (images) => images.add(image));
    return Number(request.result);
  }

  /** Store an image in place of the one with its id, and remove the work on that. */
  async replace(image) {
    this.#work.delete(image.id);
    await this.#write([IMAGES, WORK], (images, works) => [images.put(image), works.delete(image.id)]);
  }

  /**
   * Save the work on an image, and what belongs to no single image, in one transaction. The image itself is not written
   * again: that would copy its file.
   * @param {number} id of the image
   * @param {object} work structured-cloneable
   * @param {object} project likewise
   */
  async save(id, work, project) {
    if (!this.database) this.#work.set(id, work);
    await this.#write([WORK, PROJECT], (works, projects) => [works.put(work, id), projects.put(project, ONLY)]);
  }

  /** Save what belongs to no single image. */
  async saveProject(project) {
    await this.#write([PROJECT], (projects) => projects.put(project, ONLY));
  }

  /** Remove an image and the work on it. */
  async remove(id) {
    this.#work.delete(id);
    await this.#write([IMAGES, WORK], (images, works) => [images.delete(id), works.delete(id)]);
  }

  /** Remove everything. */
  async clear() {
    this.#work.clear();
    await this.#write([IMAGES, WORK, PROJECT], (...stores) => stores.map((store) => store.clear()));
  }

  #read(name, get) {
    return done(get(this.database.transaction(name, "readonly").objectStore(name)));
  }

  /**
   * Write in one transaction, and wait until it is stored.
   * @param {string[]} names of the stores
   * @param {(...stores: IDBObjectStore[]) => any} change
   */
  async #write(names, change) {
    if (!this.database) return null;
    const transaction = this.database.transaction(names, "readwrite");
    const result = change(...names.map((name) => transaction.objectStore(name)));
    await completed(transaction);
    return result;
  }
}
