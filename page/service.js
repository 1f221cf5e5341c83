// Client of the service's HTTP API.

import { decode, keep } from "./local.js";
import { Mask } from "./rle.js";
import { checkFile, checkMask, checkSeen, SeenOtherwise } from "./seen.js";
import { versionField } from "./versions.js";

const MAX_RETRIES = 5;
const MAX_RETRY_WAIT_S = 30;
const KEY_ITEM = "mobile-sam-key";

/** Time by `performance.now` until which a rate limit refuses requests. */
export let limitedUntil = 0;

/** An error response with its RFC 9457 problem document. */
class Problem extends Error {
  /**
   * @param {number} status
   * @param {{type?: string, title?: string, detail?: string}} document
   * @param {string | null} requestId id of the request in the service's log
   */
  constructor(status, document, requestId) {
    super(document.detail || document.title || `status ${status}`);
    this.status = status;
    this.slug = (document.type ?? "").replace("urn:mobile-sam:", "");
    this.title = document.title || "The request failed";
    this.requestId = requestId;
    /** Seconds after which to try again; 0: never. */
    this.retryAfter = 0;
  }
}

/** No response, or an unusable one. */
class Unreachable extends Error {}

/** Return whether an error means that the service is away for a while: no response, or a proxy or the service says so. */
export function isAway(error) {
  return error instanceof Unreachable || [502, 503].includes(error.status);
}

/** An image known to the service: sent once, then referred to by its id. */
export class RemoteImage {
  /**
   * @param {() => Blob | Promise<Blob>} load returns the file: PNG, JPEG or WebP
   * @param {import("./seen.js").Drawn | null} drawn what the page draws of it; null: nothing
   * @param {string | null} knownId id of the file, if it is known before the service has encoded it
   */
  constructor(load, drawn = null, knownId = null) {
    this.load = load;
    this.drawn = drawn;
    this.id = null;
    this.knownId = knownId;
    /** @type {Promise<string | null>} */
    this.hash = null;
  }

  /** Return the file's SHA-256, which will be its id; null on a page over plain http, where browsers compute none. */
  sha256() {
    return (this.hash ??= sha256Of(this.load()));
  }

  /** @returns {Promise<string>} the file as a `data:` URL */
  async dataUrl() {
    const file = await this.load();
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(/** @type {string} */ (reader.result));
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(file);
    });
  }
}

export class Service {
  /**
   * @param {Pick<import("./connection.js").Connection, "answered" | "refuse" | "finish">} connection is told how requests end
   * @param {(text: string, seconds: number) => void} onWait called with the reason, and the seconds until the next attempt
   */
  constructor(connection, onWait) {
    this.connection = connection;
    this.onWait = onWait;
  }

  /** The API key, stored until the tab is closed. */
  get key() {
    return sessionStorage.getItem(KEY_ITEM) ?? "";
  }

  set key(key) {
    if (key) sessionStorage.setItem(KEY_ITEM, key);
    else sessionStorage.removeItem(KEY_ITEM);
  }

  /** Return the response of `/info`. */
  async info() {
    return this.#read("info", undefined, (response) => response.json());
  }

  /** Return whether the service accepts the API key: it is asked for an image that it cannot have. */
  async acceptsKey() {
    return this.#send("embed", { image_id: "0".repeat(64) }, undefined, async () => true).catch(({ status }) => status !== 401);
  }

  /** Load a sample image. */
  async sample(file) {
    return this.#read(new URL(`samples/${file}`, import.meta.url), undefined, (response) => response.blob());
  }

  /** Encode an image ahead of the first click. */
  async embed(image, signal) {
    const embedding = await this.#post("embed", image, versionField(), signal, (response) => response.json());
    await checkAnswer(embedding, image);
    image.id = embedding.image_id;
    keep(image, versionField(), embedding.weights.sha256, this.#keyHeader);
    return embedding;
  }

  /** Have an image encoded while no caller waits: return the job with its id. */
  async embedAhead(image) {
    const [file, id] = await Promise.all([image.dataUrl(), image.sha256()]);
    return this.#send("embed", { images: [file], ...versionField() }, undefined, (response) => response.json(), MAX_RETRIES, id);
  }

  /** Return the state of a job, which the method `DELETE` cancels, also while the page closes. */
  async job({ job, images }, method = "GET") {
    const headers = { ...imageHeader(images[0].image_id), ...this.#keyHeader };
    return this.#read(`embed/${job}`, { method, headers, keepalive: true }, (response) => response.json());
  }

  /**
   * Segment one object, here or on the service: return its mask, or its three candidates.
   * @param {RemoteImage} image
   * @param {Record<string, any>} fields of the request
   * @param {AbortSignal} [signal]
   * @param {"press" | "hover"} [ahead] ahead of a click, without retries: they would arrive too late
   * @returns {Promise<Mask[]>}
   */
  async segment(image, fields, signal, ahead) {
    const request = (retries = ahead ? 0 : MAX_RETRIES) => this.#post("mobile_sam", image, fields, signal, async (response) => {
      const answer = await response.json(), { image_id, masks, weights } = answer;
      await checkAnswer(answer, image);
      image.id = image_id;
      keep(image, fields, weights.sha256, this.#keyHeader);
      return masks.map((mask) => checkedMask(new Mask(mask.rle, mask), image));
    }, retries);
    return decode(image.id, fields, request, signal, ahead === "hover");
  }

  /**
   * Segment everything on an image.
   * @param {RemoteImage} image
   * @param {object} fields of the request
   * @param {(done: number, total: number) => void} onProgress
   * @param {AbortSignal} signal
   * @returns {Promise<Mask[]>}
   */
  async everything(image, fields, onProgress, signal) {
    return this.#post("everything", image, { ...fields, progress: true }, signal, async (response) => {
      let result = null;
      for await (const line of lines(response.body)) {
        const step = JSON.parse(line);
        if (step.problem) throw new Problem(step.problem.status, step.problem, response.headers.get("X-Request-ID"));
        onProgress(step.done, step.total);
        result = step.result ?? result;
      }
      await checkAnswer(result, image);
      return result.masks.map((record) => checkedMask(maskFromRecord(record), image));
    });
  }

  /** Send a request about an image by its id, or with the file if the service does not have it. */
  async #post(path, image, fields, signal, read, retries = MAX_RETRIES) {
    const image_id = image.id ?? image.knownId;
    if (image_id) {
      try {
        return await this.#send(path, { image_id, ...fields }, signal, read, retries);
      } catch (error) {
        if (error.slug !== "image-not-cached") throw error;
      }
    }
    const [input_image, id] = await Promise.all([image.dataUrl(), image.sha256()]);
    return this.#send(path, { input_image, ...fields }, signal, read, retries, id);
  }

  /** Send a request about an image; retry as `Retry-After` says, unless a rate limit refuses requests for long. */
  async #send(path, body, signal, read, retries = MAX_RETRIES, id = body.image_id) {
    const headers = { "Content-Type": "application/json", Accept: "application/json", ...imageHeader(id), ...this.#keyHeader };
    const options = { method: "POST", body: JSON.stringify(body), signal, headers };
    try {
      return await this.#repeat(path, options, read, retries);
    } finally {
      this.connection.finish(options);
    }
  }

  async #repeat(path, options, read, retries) {
    for (let left = retries; ; left--) {
      try {
        return await this.#read(path, options, read);
      } catch (error) {
        if (!error.retryAfter || !left || (error.status === 429 && error.retryAfter > MAX_RETRY_WAIT_S)) throw error;
        const seconds = Math.min(error.retryAfter, MAX_RETRY_WAIT_S);
        this.connection.refuse(options);
        this.onWait(waitReason(error), seconds);
        await Promise.race([new Promise((resolve) => setTimeout(resolve, 1000 * seconds)), aborted(options.signal)]);
      }
    }
  }

  get #keyHeader() {
    return this.key ? { Authorization: `Bearer ${this.key}` } : {};
  }

  /** Fetch a response and parse it with `read`. */
  async #read(path, options, read) {
    const response = await fetch(path, options).catch(unreachable("The service does not respond. Is it running?"));
    if (response.ok) {
      this.connection.answered(options);
      return read(response).catch(unreachable("The response was cut off or did not come from this service."));
    }
    const document = await response.json().catch(() => ({ detail: `status ${response.status} without an explanation` }));
    const problem = new Problem(response.status, document, response.headers.get("X-Request-ID"));
    if ([429, 503].includes(response.status)) problem.retryAfter = Number(response.headers.get("Retry-After")) || 0;
    if (problem.slug === "too-many-requests") {
      const [allowed = ""] = / \([^)]*\)/.exec(problem.message) ?? [];
      problem.message = `The rate limit of this ${this.key ? "key" : "address"} is reached${allowed}. It allows requests again ${whenIn(problem.retryAfter)}.`;
      limitedUntil = performance.now() + 1000 * problem.retryAfter;
    }
    throw problem;
  }
}

/** Return why a request has to wait, as a sentence. @param {Problem} error */
function waitReason({ status, slug, message }) {
  if (status === 429) return message;
  return slug === "stopping" ? "The service is stopping." : "The service is busy.";
}

/** Compare what an answer says about an image with what the page sent and draws. */
async function checkAnswer(answer, image) {
  checkFile(answer.image_id, image.id ?? image.knownId ?? (await image.hash), image.drawn);
  checkSeen(answer, image.drawn);
}

function checkedMask(mask, { drawn }) {
  checkMask(mask, drawn);
  return mask;
}

/** Return the header by which load balancers find the replica that has an image. */
function imageHeader(id) {
  return id ? { "X-Image-Id": id } : {};
}

/** Return the SHA-256 of a file in hexadecimal, or null. */
async function sha256Of(file) {
  if (!crypto.subtle) return null;
  const digest = await crypto.subtle.digest("SHA-256", await (await file).arrayBuffer());
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a number of seconds from now in words. */
function whenIn(seconds) {
  if (!seconds) return "later";
  if (seconds < 100) return `in ${seconds} s`;
  return seconds < 6000 ? `in ${Math.ceil(seconds / 60)} min` : `in ${Math.ceil(seconds / 3600)} h`;
}

/** Return a function that throws an error as one of an unreachable service, unless the request was aborted or answered. */
function unreachable(message) {
  return (error) => {
    throw error.name === "AbortError" || error instanceof Problem || error instanceof SeenOtherwise ? error : new Unreachable(message);
  };
}

/** Convert a record of Segment Anything's automatic mask generator. */
function maskFromRecord(record) {
  const [x, y, width, height] = record.bbox;
  const [clickX, clickY] = record.point_coords[0].map(Math.floor);
  return new Mask(record.segmentation, {
    score: record.predicted_iou,
    area: record.area,
    box: [x, y, x + width, y + height],
    point: { x: clickX, y: clickY, label: 1 },
  });
}

async function* lines(stream) {
  let rest = "";
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const complete = (rest + read.value).split("\n");
    rest = complete.pop();
    yield* complete;
  }
  if (rest) yield rest;
}

/** Return a promise that rejects when the signal is aborted. */
export function aborted(signal) {
  return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
}
