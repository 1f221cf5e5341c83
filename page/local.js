// Masks decoded in this browser by a worker: where that is quicker than a request, for previews, and while the service is away.

import { Mask } from "./rle.js";
import { ask } from "./workers.js";

/** Number of the latest measurements of a way, of which the middle one counts; longest time of a good preview. */
const MEASUREMENTS = 3;
export const MAX_PREVIEW_MS = 400;

/** Latest times in ms from a request to its masks, by where they are made. */
const times = { here: [], server: [] };
/**
 * SHA-256 of the weights of embeddings that the worker has, by key; empty while one is loaded; null: the browser may not decode.
 * @type {Map<string, string> | null}
 */
let kept = null, worker = null;
/** @type {Promise<any>} the latest run of the decoder, which takes one request after another */
let latest = Promise.resolve();

/** @type {any} */
const { connection } = navigator;
const measureAgain = () => (times.server = []);
window.addEventListener("online", measureAgain);
connection?.addEventListener("change", measureAgain);

/** Set whether the service lets browsers decode. One that is told to save data does not, and none can without ONNX Runtime Web. */
export function allow(isOn) {
  const hasRuntime = document.querySelector("meta[name=onnxruntime]") !== null;
  kept = isOn && hasRuntime && !connection?.saveData ? kept ?? new Map() : null;
}

/** Return the key of what a request needs: an embedding, and its decoder. */
const keyOf = (id, fields) => JSON.stringify([id, fields.model_version, fields.region]);

/**
 * Fetch the embedding of an image and its decoder for requests with such fields, unless those that are here are of the same
 * weights: the SHA-256 is of those by which the service has just answered. `headers`: with the API key.
 * @param {Pick<import("./service.js").RemoteImage, "id" | "drawn">} image
 */
export async function keep({ id, drawn }, fields, weights, headers) {
  const key = keyOf(id, fields);
  if (!kept || [weights, ""].includes(kept.get(key))) return;
  kept.set(key, "");
  worker ??= new Worker(new URL("localworker.js", import.meta.url), { type: "module" });
  try {
    const loaded = await ask(worker, { key, missing: { ...fields, id, drawn, headers, service: document.baseURI } });
    kept?.set(key, loaded.weights);
    for (const dropped of loaded.dropped) kept?.delete(dropped);
  } catch {
    kept?.delete(key); // the service goes on decoding
  }
}

/**
 * Return masks by the quicker way, and by both until it is known. If one fails, the other one is left.
 * @param {(retries?: number) => Promise<Mask[]>} request asks the service; retries: while it is busy
 * @param {boolean} isHover whether no request is sent if the masks can be made here in good time
 */
export async function decode(id, fields, request, signal, isHover) {
  const key = keyOf(id, fields);
  if (!kept?.get(key)) return request();
  const decoded = async () => {
    const run = latest.then(() => signal?.throwIfAborted()).then(() => ask(worker, { key, fields }));
    latest = run.catch((error) => error.name === "AbortError" || allow(false)); // out of memory, for example
    return (await run).map((mask) => new Mask(mask.rle, mask));
  };
  const timed = (way, masks, began = performance.now()) => masks.then((made) => {
    times[way] = [...times[way], performance.now() - began].slice(-MEASUREMENTS);
    return made;
  });
  const here = () => timed("here", decoded()), server = () => timed("server", request(0));
  const [ms, serverMs] = [times.here, times.server].map((list) => (list.length < MEASUREMENTS ? NaN : list.toSorted((a, b) => a - b)[1]));
  if (ms < serverMs || (isHover && !(ms > MAX_PREVIEW_MS && ms > serverMs))) return here().catch(() => request());
  return (ms >= serverMs ? server().catch(here) : Promise.any([here(), server()])).catch(() => request());
}
