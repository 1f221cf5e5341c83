// The project: images, classes, and the saving of every change.

import { colourOf } from "./colours.js";
import { FormatError, MAX_CATEGORY_ID, MAX_CLASSES, colourOr, isWhole } from "./formats/project.js";
import { isEmpty } from "./objects.js";
import { Store } from "./store.js";

/** Time without changes after which the work is saved. */
const SAVE_DELAY_MS = 300;
const FIRST_CLASS = { id: 1, name: "object", color: colourOf(1) };
const LOCK = "mobile-sam-project", LOCK_TIMEOUT_MS = 5000;

/**
 * @typedef {import("./store.js").StoredImage} StoredImage
 * @typedef {import("./session.js").Session} Session
 * @typedef {{id: number, name: string, color: string}} Category color: `#rrggbb`
 * @typedef {"saved" | "saving" | "failed" | "memory"} SaveState memory: this browser gives no storage
 */

export class Project {
  /** @type {StoredImage[]} */
  images = [];
  /** @type {Category[]} at least one */
  classes = [FIRST_CLASS];
  /** Id of the class of new objects. */
  classId = FIRST_CLASS.id;
  /** Highest id of a removed class: no new class gets it. */
  removedClassId = 0;
  /** @type {number | null} id of the image that was opened last */
  imageId = null;
  /** Whether a click beside the selected object begins the next one; at first not on touch screens, which have no Shift. */
  oneClick = hasKeys();
  /** @type {SaveState} */
  state = "saved";
  #store = new Store(null);
  /** @type {Set<Session>} sessions with unsaved changes */
  #changed = new Set();
  #timer = 0;
  /** Writes that are not done. */
  #writes = 0;
  /** @type {(image: StoredImage) => void} called after the numbers of objects on an image have changed */
  onCounts = () => {};

  /** @param {(state: SaveState, reason: string) => void} onState called when the state changes */
  constructor(onState) {
    this.onState = onState;
  }

  /** Return whether closing the page would lose anything. */
  get atRisk() {
    return this.state === "memory" ? this.finished.length > 0 : this.state !== "saved";
  }

  /** Read what is stored. */
  async load() {
    try {
      await lock();
      this.#store = await Store.open();
      this.images = await this.#store.images();
      const { counts = {}, reviewed = [], ...saved } = (await this.#store.project()) ?? {};
      // Projects of earlier versions go on as they began.
      if (this.images.length) this.oneClick = false;
      Object.assign(this, saved);
      for (const image of this.images) Object.assign(image, { counts: counts[image.id] ?? image.counts, reviewed: reviewed.includes(image.id) });
      this.onState(this.state, "");
    } catch (error) {
      this.#store = new Store(null);
      this.#setState("memory", error.message);
    }
  }

  /**
   * Add an image. A name that is taken gets a number: files of annotations are named after their images.
   * @param {{name: string, width: number, height: number, orientation: number, file: Blob, thumbnail: Blob,
   *   original?: import("./copies.js").Original | null, reviewed?: boolean}} image
   * @returns {Promise<StoredImage>}
   * @throws {Error} the storage is full
   */
  async add(image) {
    const added = { ...image, name: this.#unusedName(image.name), counts: {} };
    try {
      const stored = { ...added, id: await this.#store.add(added) };
      this.images.push(stored);
      return stored;
    } catch (error) {
      throw new Error(`it does not fit into this browser's storage (${error.name}). Export and remove images first.`);
    }
  }

  #unusedName(name) {
    const taken = new Set(this.images.map((image) => image.name.toLowerCase()));
    const [, stem, extension] = /^(.*?)(\.[^./]*)?$/s.exec(name);
    let unused = name;
    for (let number = 2; taken.has(unused.toLowerCase()); number++) unused = `${stem}-${number}${extension ?? ""}`;
    return unused;
  }

  /** Return the work on an image as `Session.save` returned it, or undefined. */
  async work(id) {
    const unsaved = this.#unsaved(id);
    return unsaved ? unsaved.save() : this.#store.work(id);
  }

  /** Return the session of an image with changes that are not saved. */
  #unsaved(id) {
    return [...this.#changed].find((session) => session.image.id === id);
  }

  /** Save the work on an image that is not open. */
  async saveWork(image, work) {
    const classes = new Map(work.objects.now.list.map(({ id, classId }) => [id, classId]));
    image.counts = countsOf(work.shown.map(([id]) => classes.get(id)));
    await this.#write(() => this.#store.save(image.id, work, this.#record));
  }

  /** Change how an image is drawn, and remove the objects on it: they were made on another picture. */
  async redraw(image, fields) {
    this.#drop(image.id);
    Object.assign(image, fields, { counts: {} });
    await this.#write(() => this.#store.replace(image));
  }

  async remove(id) {
    this.#drop(id);
    this.images = this.images.filter((image) => image.id !== id);
    await this.#write(() => this.#store.remove(id));
  }

  /** Forget unsaved work on an image. */
  #drop(id) {
    for (const session of this.#changed) if (session.image.id === id) this.#changed.delete(session);
  }

  /** Remove all images and classes. */
  async clear() {
    this.#changed.clear();
    await this.#write(() => this.#store.clear());
    Object.assign(this, { images: [], classes: [FIRST_CLASS], classId: FIRST_CLASS.id, removedClassId: 0, imageId: null, oneClick: hasKeys() });
  }

  /** Save the work on the open image soon. */
  changed(session) {
    // An earlier session of the image, which could not be saved, is part of this one.
    for (const other of this.#changed) if (other.image.id === session.image.id) this.#changed.delete(other);
    this.#changed.add(session);
    session.image.counts = countsOf(session.annotated.map(({ object }) => object.classId));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.flush(), SAVE_DELAY_MS);
    if (this.state !== "memory") this.#setState("saving");
    this.onCounts(session.image);
  }

  /** Save all unsaved work now. */
  async flush() {
    clearTimeout(this.#timer);
    const sessions = [...this.#changed];
    this.#changed.clear();
    for (const session of sessions) {
      await this.#write(() => this.#store.save(session.image.id, session.save(), this.#record), () => this.#changed.add(session));
    }
  }

  /** Save what belongs to no single image. */
  async saveProject() {
    await this.#write(() => this.#store.saveProject(this.#record));
  }

  /** Return what belongs to no single image, the numbers of objects, and the reviewed images, as plain data. */
  get #record() {
    const { classes, classId, removedClassId, imageId, oneClick, images } = this;
    const counts = Object.fromEntries(images.map(({ id, counts }) => [id, counts]));
    return { classes, classId, removedClassId, imageId, oneClick, counts, reviewed: images.filter(({ reviewed }) => reviewed).map(({ id }) => id) };
  }

  /** Return the images that datasets have: those with objects, and those that were reviewed and have none. */
  get finished() {
    return this.images.filter(({ counts, reviewed }) => reviewed || total(counts));
  }

  /** @param {number} id of a class */
  categoryOf(id) {
    return this.classes.find((category) => category.id === id) ?? this.classes[0];
  }

  /** Change the name or the colour of a class. */
  changeClass(id, fields) {
    this.classes = this.classes.map((category) => (category.id === id ? { ...category, ...fields } : category));
  }

  /** Move a class to another place in the list. */
  moveClass(id, index) {
    const moved = this.categoryOf(id), others = this.classes.filter((category) => category !== moved), at = Math.max(index, 0);
    this.classes = [...others.slice(0, at), moved, ...others.slice(at)];
  }

  /** Return the number of objects of a class in all images. */
  countOf(classId) {
    return this.images.reduce((sum, { counts }) => sum + (counts[classId] ?? 0), 0);
  }

  /**
   * Add a class, unless there is one of this name, and return it.
   * @param {string} name
   * @param {{id?: unknown, color?: unknown}} [wanted] id and colour, if they are valid and the id is free
   * @param {number[]} [reserved] ids for classes that are added next
   */
  addClass(name, wanted = {}, reserved = []) {
    const known = this.classes.find((category) => category.name === name);
    if (known) return known;
    const id = this.#unusedId(wanted.id, reserved);
    const category = { id, name, color: colourOr(wanted.color, id) };
    this.classes = [...this.classes, category];
    return category;
  }

  #unusedId(wanted, reserved) {
    const taken = new Set(this.classes.map(({ id }) => id));
    if (isWhole(wanted, 1, MAX_CATEGORY_ID) && !taken.has(wanted)) return wanted;
    let id = Math.max(this.removedClassId, ...taken, ...reserved) + 1;
    if (id > MAX_CATEGORY_ID) for (id = 1; taken.has(id);) id++;
    return id;
  }

  /**
   * Add classes, unless there are some of these names. They keep their ids where these are free. The class that a new
   * project begins with makes room for them, if nothing has it.
   * @param {{id: number, name: string, color?: string}[]} classes
   * @returns {Promise<Map<number, number>>} their ids in the project by the given ids
   * @throws {FormatError} the project would have too many
   */
  async addClasses(classes) {
    const makesRoom = classes.length && !(await this.#isPlaceholderUsed());
    const kept = this.classes.filter(({ id, name }) => !makesRoom || id !== FIRST_CLASS.id || name !== FIRST_CLASS.name);
    const { size } = new Set([...kept, ...classes].map(({ name }) => name));
    if (size > MAX_CLASSES) throw new FormatError(`the project would have ${size} classes, but at most ${MAX_CLASSES} are possible`);
    this.classes = kept;
    const reserved = classes.map(({ id }) => id).filter((id) => isWhole(id, 1, MAX_CATEGORY_ID));
    const ids = new Map(classes.map(({ id, name, color }) => [id, this.addClass(name, { id, color }, reserved).id]));
    this.classId = this.categoryOf(this.classId).id;
    return ids;
  }

  /** Return whether any object has the class that a new project begins with, also one that undo or redo would bring back. */
  async #isPlaceholderUsed() {
    for (const image of this.images) {
      const work = await this.work(image.id);
      const lists = work ? statesOf(work).map(({ list }) => list) : [];
      if (lists.flat().some((object) => object.classId === FIRST_CLASS.id && !isEmpty(object))) return true;
    }
    return false;
  }

  /**
   * Remove a class, but not the last one; its objects in images that are not open get the first other class.
   * @param {number} id
   * @param {Session | null} open the open session; the caller changes its objects
   * @returns {Promise<number>} id of the other class
   */
  async removeClass(id, open) {
    const other = this.classes.find((category) => category.id !== id);
    if (!other) return id;
    for (const image of this.images) {
      if (image.id === open?.image.id) continue;
      const unsaved = this.#unsaved(image.id);
      if (unsaved) {
        unsaved.objects.replaceClass(id, other.id);
        this.changed(unsaved);
        continue;
      }
      const work = await this.#store.work(image.id);
      const states = work ? statesOf(work) : [];
      const changed = states.flatMap(({ list }) => list).filter((object) => object.classId === id);
      for (const object of changed) object.classId = other.id;
      if (changed.length) await this.saveWork(image, work);
    }
    this.classes = this.classes.filter((category) => category.id !== id);
    this.removedClassId = Math.max(this.removedClassId, id);
    if (this.classId === id) this.classId = other.id;
    return other.id;
  }

  async #write(write, onFailure = () => {}) {
    this.#writes++;
    if (this.state === "saved") this.#setState("saving");
    let problem = "";
    try {
      await write();
    } catch (error) {
      onFailure();
      problem = error.message;
    }
    this.#writes--;
    if (problem) this.#setState("failed", problem);
    else if (!this.#writes && !this.#changed.size && this.state !== "memory") this.#setState("saved");
  }

  #setState(state, reason = "") {
    if (state === this.state && !reason) return;
    this.state = state;
    this.onState(state, reason);
  }
}

/** Return whether there is likely a keyboard. */
function hasKeys() {
  return globalThis.matchMedia?.("(hover: hover)").matches ?? true; // outside of a browser, in tests
}

/**
 * Keep other tabs from opening the project until this one is closed: the last one to save would undo the other's work.
 * @throws {Error} another tab has it open
 */
async function lock() {
  if (!navigator.locks) return; // without TLS, other than on this machine
  while (!(await isLocked())) {
    const { held } = await navigator.locks.query();
    // The time may also have passed while this page stood still.
    if (held.some(({ name }) => name === LOCK)) throw new Error("the project is open in another tab");
  }
}

/** Take the lock for as long as this page is open; return whether it was free in time. */
function isLocked() {
  return new Promise((resolve) => {
    const hold = () => (resolve(true), new Promise(() => {}));
    // After a reload, the lock of the page before is free a moment later, on a busy machine seconds.
    navigator.locks.request(LOCK, { signal: AbortSignal.timeout(LOCK_TIMEOUT_MS) }, hold).catch(() => resolve(false));
  });
}

/** Return all states of the objects in the work on an image. */
function statesOf({ objects: { past, now, future } }) {
  return [...past, now, ...future];
}

/** Return how often each class occurs. */
function countsOf(classIds) {
  const counts = {};
  for (const id of classIds) counts[id] = (counts[id] ?? 0) + 1;
  return counts;
}

/** Return the number of objects of all classes. */
export function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}
