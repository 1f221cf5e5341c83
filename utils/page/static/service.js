// The service's HTTP API, as this page needs it.

import { Mask } from "./rle.js";

const RETRIES = 5;
const LONGEST_WAIT = 30;
const KEY = "mobile-sam-key";

/** A refusal: what the service says of it, as an RFC 9457 problem document. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {{type?: string, title?: string, detail?: string}} document
   * @param {string | null} requestId by which the service's log knows the request
   */
  constructor(status, document, requestId) {
    super(document.detail || document.title || `status ${status}`);
    this.status = status;
    this.slug = (document.type ?? "").replace("urn:mobile-sam:", "");
    this.title = document.title || "The service refused";
    this.requestId = requestId;
  }
}

/** No answer at all. */
class Unreachable extends Error {}

/** An image at the service: sent once, then named by its id. */
export class RemoteImage {
  /** @param {Blob} file PNG, JPEG or WebP */
  constructor(file) {
    this.file = file;
    this.id = null;
  }

  /** @returns {Promise<string>} the file as the API takes it */
  dataUrl() {
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = () => reject(reader.error);
      reader.readAsDataURL(this.file);
    });
  }
}

export class Service {
  /** @param {(seconds: number) => void} onWait is told when the service is busy and will be asked again */
  constructor(onWait) {
    this.onWait = onWait;
  }

  /** The API key, kept for this tab. */
  get key() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  set key(key) {
    sessionStorage.setItem(KEY, key);
  }

  /** Version, weights, limits, and whether a key is needed. */
  async info() {
    return this.#read("info", undefined, (response) => response.json());
  }

  /** A file of the page's own. */
  async sample(file) {
    return this.#read(`ui/samples/${file}`, undefined, (response) => response.blob());
  }

  /** Have an image encoded ahead of the first click; the id, size and weights. */
  async embed(image, signal) {
    const said = await this.#post("embed", image, {}, signal, (response) => response.json());
    image.id = said.image_id;
    return said;
  }

  /**
   * The mask of an object's prompts, or its three candidates.
   * @param {RemoteImage} image
   * @param {object} fields of the request
   * @param {AbortSignal} signal
   * @returns {Promise<Mask[]>}
   */
  async segment(image, fields, signal) {
    const wanted = { ...fields, mask_format: "rle", segmented_image: "none" };
    return this.#post("mobile_sam", image, wanted, signal, async (response) => {
      const parts = await response.formData();
      const [masks, result] = await Promise.all([textOf(parts.get("mask")), textOf(parts.get("result"))]);
      const facts = JSON.parse(result), found = JSON.parse(masks);
      image.id = facts.image_id;
      return (Array.isArray(found) ? found : [found]).map((rle, index) => new Mask(rle, facts.masks[index]));
    });
  }

  /**
   * All objects of an image.
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
      return result.masks.map(maskOfRecord);
    });
  }

  /** A request on an image, by its id where that is known, and with the file again where it is forgotten. */
  async #post(path, image, fields, signal, read) {
    if (image.id) {
      try {
        return await this.#send(path, { image_id: image.id, ...fields }, signal, read);
      } catch (error) {
        if (error.slug !== "image-not-cached") throw error;
      }
    }
    return this.#send(path, { input_image: await image.dataUrl(), ...fields }, signal, read);
  }

  /** The answer to a request; one that is told to come again does. */
  async #send(path, body, signal, read) {
    const options = { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } };
    if (this.key) options.headers.Authorization = `Bearer ${this.key}`;
    for (let left = RETRIES; ; left--) {
      try {
        return await this.#read(path, options, read);
      } catch (error) {
        if (!error.retryAfter || !left) throw error;
        const seconds = Math.min(error.retryAfter, LONGEST_WAIT);
        this.onWait(seconds);
        await pause(1000 * seconds, signal);
      }
    }
  }

  /** What `read` makes of the answer. */
  async #read(path, options, read) {
    const response = await this.#fetch(path, options);
    try {
      return await read(response);
    } catch (error) {
      if (error.name === "AbortError" || error instanceof Problem) throw error;
      throw new Unreachable("The answer broke off, or what answers here is not this service.");
    }
  }

  async #fetch(path, options) {
    let response;
    try {
      response = await fetch(path, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Unreachable("The service does not answer. Is it running?");
    }
    if (response.ok) return response;
    const document = await response.json().catch(() => ({ detail: `status ${response.status}, without a reason` }));
    const problem = new Problem(response.status, document, response.headers.get("X-Request-ID"));
    if ([429, 503].includes(response.status)) problem.retryAfter = Number(response.headers.get("Retry-After")) || 0;
    throw problem;
  }
}

/** A record of Segment Anything's automatic masks. */
function maskOfRecord(record) {
  const [x, y, width, height] = record.bbox;
  const facts = { score: record.predicted_iou, area: record.area, box: [x, y, x + width, y + height] };
  const mask = new Mask(record.segmentation, facts);
  const [clickX, clickY] = record.point_coords[0];
  mask.point = { x: Math.floor(clickX), y: Math.floor(clickY), label: 1 };
  return mask;
}

/** A part of a multipart answer, which is a file or not by what its header says. */
async function textOf(part) {
  return typeof part === "string" ? part : part.text();
}

async function* lines(stream) {
  const decoder = new TextDecoder();
  let rest = "";
  const reader = stream.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    rest += decoder.decode(read.value, { stream: true });
    const whole = rest.split("\n");
    rest = whole.pop();
    yield* whole;
  }
  if (rest) yield rest;
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
