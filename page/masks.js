// The masks of an image's objects, requested once per set of prompts and options.

import { cached } from "./cached.js";
import { maskInput, withClicks } from "./drawn.js";
import { isMarked, isPrompted, laterClicks, promptsOf } from "./objects.js";
import { maskOptions } from "./options.js";
import { clipped, cut } from "./regions.js";
import { Mask } from "./rle.js";
import { modelOf, versionField } from "./versions.js";

/** Return the same clipped mask each time, so that it is painted once. */
const clippedTo = cached(clipped);

/** Return an object with the marks that are sent: beside a mask edited by hand, only later clicks, but all with a negative one. */
function asking(object) {
  if (!object.drawn) return object;
  const later = laterClicks(object), isPositive = later.every(({ label }) => label === 1);
  return { ...object, candidate: 0, ...(isPositive && { points: later, box: null }) };
}

export class Masks {
  /** Masks by the fields of their request. */
  #known = new Map();
  /** The mask displayed last, by object id. */
  #last = new Map();
  /** The request in flight, by object id. */
  #requests = new Map();
  /** @type {Set<Promise<any>>} all requests that are not done */
  #running = new Set();
  /** @type {{key: string, masks: Promise<Mask[]>} | null} the latest preview, answered or in flight; null: it failed */
  #previewed = null;

  /**
   * @param {import("./service.js").Service} service
   * @param {import("./session.js").Session} image
   */
  constructor(service, image) {
    this.service = service;
    this.image = image;
  }

  /** Return the fields of the request for an object's mask. */
  fieldsOf(object) {
    const { part } = object, size = part ? { width: part[2] - part[0], height: part[3] - part[1] } : this.image;
    return { ...promptsOf(object), ...maskOptions(size, this.image.options), ...(part && { region: part }) };
  }

  #keyOf(object) {
    return JSON.stringify({ drawn: object.drawn?.counts, version: object.version, ...this.fieldsOf(asking(object)) });
  }

  /**
   * Ask for the masks of an object's prompts.
   * @param {Pick<import("./objects.js").ImageObject, "points" | "box" | "candidate" | "part" | "drawn" | "settled" | "version">} object
   * @param {AbortSignal} [signal]
   * @param {"press" | "hover"} [ahead] ahead of a click
   */
  async ask(object, signal, ahead) {
    const { drawn, part, version } = object, asked = asking(object);
    const sent = drawn && part ? clipped(drawn, [part[0], part[1], part[2] - 1, part[3] - 1]) : drawn;
    const isSquashed = modelOf(version).descriptor.resize === "squash";
    const input = drawn && { mask_input: maskInput(part ? cut(drawn, part) : drawn, isSquashed) };
    const fields = { ...this.fieldsOf(asked), ...input, ...versionField(version) };
    if (sent?.area && !isPrompted(asked)) fields.box = sent.box;
    const answers = await this.service.segment(this.image.remote, fields, signal, ahead);
    if (part) this.image.encodedParts.add(String(part));
    return drawn ? answers.map((answer) => Object.assign(withClicks(drawn, sent, answer, laterClicks(object)), { isHere: answer.isHere })) : answers;
  }

  /** Ask for an object's mask as it would be with other fields, and keep it; the object's own request goes on. */
  async learn(object) {
    const key = this.#keyOf(object);
    if (this.#known.has(key)) return;
    if (!this.image.remote.id) await this.image.embedding.catch(() => {});
    this.#known.set(key, await this.ask(object));
  }

  /** As `ask`, ahead of a click that takes over the masks. */
  preview(object, ahead) {
    const key = this.#keyOf(object);
    if (this.#previewed?.key === key) return this.#previewed.masks;
    const preview = (this.#previewed = { key, masks: this.ask(object, undefined, ahead) });
    preview.masks.catch(() => {
      if (this.#previewed === preview) this.#previewed = null;
    });
    return preview.masks;
  }

  /** Return the known masks of these objects as plain data. */
  save(objects) {
    const keys = new Set(objects.map((object) => this.#keyOf(object)));
    return [...keys].filter((key) => this.#known.has(key)).map((key) => [key, this.#known.get(key).map((mask) => mask.record)]);
  }

  /** Take over what `save` returned. */
  restore(entries, shown) {
    for (const [key, records] of entries) this.#known.set(key, records.map(Mask.fromRecord));
    for (const [id, record] of shown) this.#last.set(id, Mask.fromRecord(record));
  }

  /** Return whether a request is in flight. */
  get pending() {
    return this.#requests.size > 0;
  }

  /** Return the last visible object at a pixel, or null. */
  objectAt(x, y, objects) {
    return objects.findLast((object) => !object.hidden && this.get(object)?.has(x, y)) ?? null;
  }

  /** Return whether a request for the object's current mask is in flight. */
  isPending(object) {
    return this.#requests.get(object.id)?.key === this.#keyOf(object);
  }

  /** Return an object's mask, or null while it has none. */
  get(object) {
    const { found, drawn } = object;
    if (found ?? (drawn && !laterClicks(object).length)) return found ?? drawn;
    const mask = isMarked(object) ? this.#known.get(this.#keyOf(object))?.[Math.max(asking(object).candidate - 1, 0)] : null;
    if (!mask) return null;
    return object.clip && object.box && !drawn ? clippedTo(mask, object.box) : mask;
  }

  /** Return the three candidates of an object's mask in the order of the API, or null while unknown. */
  candidates(object) {
    const candidates = [1, 2, 3].map((candidate) => this.get({ ...object, candidate }));
    return object.drawn || object.found || candidates.includes(null) ? null : candidates;
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
   * @returns {Promise<{milliseconds: number, isHere: boolean}>} response time, and whether the mask was made in this browser
   * @throws {DOMException} AbortError: the object has changed in the meantime
   */
  request(object) {
    const run = this.#run(object).finally(() => this.#running.delete(run));
    this.#running.add(run);
    return run;
  }

  /** Wait until no mask is on its way. */
  async settled() {
    while (this.#running.size) await Promise.allSettled([...this.#running]);
  }

  async #run(object) {
    this.#requests.get(object.id)?.controller.abort();
    const controller = new AbortController();
    const key = this.#keyOf(object);
    const request = { controller, key };
    this.#requests.set(object.id, request);
    try {
      // If encoding failed, this request sends the image again and reports the error.
      if (!this.image.remote.id) await this.image.embedding.catch(() => {});
      controller.signal.throwIfAborted();
      const began = performance.now();
      const previewed = this.#previewed?.key === key ? await this.#previewed.masks.catch(() => null) : null;
      controller.signal.throwIfAborted();
      this.#known.set(key, previewed ?? (await this.ask(object, controller.signal)));
      controller.signal.throwIfAborted(); // masks made here arrive all the same
      return { milliseconds: performance.now() - began, isHere: this.#known.get(key)[0].isHere };
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
