// Requests about the open image, and what follows when one fails.

import { isUncertain } from "./candidates.js";
import { connection, project, screen, service, session } from "./current.js";
import { element } from "./dom.js";
import { askForKey, hideError, nextPaint, say, showBusy, showConnection, showError, showLatency, showResult, showWeights } from "./notices.js";
import { allow } from "./local.js";
import { isEmpty, isMarked } from "./objects.js";
import { SeenOtherwise } from "./seen.js";
import { isAway } from "./service.js";
import { hintAtPrompts, showVersions } from "./versions.js";

/** Delay before the busy indicator appears. */
const BUSY_DELAY_MS = 400;
/** Shortest time of the encoder that the page announces. */
const SLOW_ENCODE_S = 2;
const NOTHING_CHANGED = "The click changed nothing here: draw or erase (R), or remove the click";

connection.onBack = hideError;
connection.onState = (state, seconds) => showConnection(state, seconds, waiting());

/** Return the number of objects on the open image whose masks are still to be made. */
function waiting() {
  return session?.objects.list.filter((object) => isMarked(object) && !session.masks.get(object)).length ?? 0;
}

/** The response of `/info`. */
export let info = null;

/** @type {(error: SeenOtherwise) => void} */
let redraw = showError;

/** Set what follows when the service sees another picture than the page draws. */
export function whenSeenOtherwise(action) {
  redraw = action;
}

/** Ask the service what it has, and for a key if it needs one. */
export async function start() {
  try {
    info = await service.info();
    allow(info.local_decoding);
    showVersions(info);
    if (!info.loaded.length) connection.lose(start); // the service starts
    if (info.key_needed && !service.key) handleError({ status: 401 }, null);
  } catch (error) {
    handleError(error, start);
  }
}

/** Encode the image ahead of the first click. */
export async function embed() {
  const current = session;
  element("about").textContent = "";
  showBusy(info?.encode_s >= SLOW_ENCODE_S ? `Encoding the image, about ${Math.round(info.encode_s)} s` : "Encoding the image");
  const request = current.embed(), isLatest = () => current === session && current.embedding === request;
  try {
    const embedding = await request;
    if (!isLatest()) return;
    const time = embedding.encode_s ? `encoded in ${Number(embedding.encode_s.toPrecision(2))} s` : "ready at once";
    element("about").textContent = `${current.about}, ${time} with ${embedding.engine.encoder}`;
    showWeights(embedding.weights);
    if (isEmpty(current.objects.active) && element("hint").hidden) hintAtPrompts();
  } catch (error) {
    if (isLatest()) handleError(error, retryAll);
  } finally {
    if (isLatest()) showBusy("");
  }
}

function retryAll() {
  embed();
  segmentAll();
}

/**
 * Request and paint an object's mask, unless it is already known or requested.
 * @param {import("./objects.js").ImageObject} object
 * @param {number} [clickTime] time stamp of the click, to measure the latency
 */
export async function segment(object, clickTime) {
  const current = session;
  const { masks, objects } = current;
  if (!isMarked(object) || masks.get(object) || masks.isPending(object)) return;
  const busyTimer = setTimeout(() => current === session && element("busy").hidden && showBusy("Segmenting"), BUSY_DELAY_MS);
  screen.stage.view.setAttribute("aria-busy", "true");
  try {
    const answered = await masks.request(object);
    if (current !== session) return;
    screen.paint();
    project.changed(current); // at once: another image may be opened now
    const painted = await nextPaint(); // the panel can wait for the mask
    if (clickTime !== undefined) showLatency(painted - clickTime, answered);
    if (current !== session) return;
    screen.showPanel();
    const { id, candidate } = objects.active;
    if (id !== object.id || candidate !== object.candidate) return;
    const mask = masks.get(object);
    if (mask.record.counts === object.drawn?.record.counts) say(NOTHING_CHANGED);
    else showResult(object.name, mask);
    if (!candidate && isUncertain(object, masks)) compare();
  } catch (error) {
    if (current === session) handleError(error, segmentAll);
  } finally {
    clearTimeout(busyTimer);
    if (current === session && !masks.pending) {
      screen.stage.view.setAttribute("aria-busy", "false");
      showBusy("");
    }
  }
}

/** Request the candidates of the active object's mask, which must be there: an object has one request at a time. */
export function compare() {
  const { masks, objects: { active } } = session;
  if (masks.isPending(active)) say("Wait for the object's mask");
  else segment({ ...active, candidate: 1 });
}

/** Request all missing masks. */
export function segmentAll() {
  for (const object of session.objects.list) segment(object);
}

/**
 * Show an error.
 * @param {any} error
 * @param {(() => void) | null} [retry] repeats what failed
 */
export function handleError(error, retry = null) {
  if (error.name === "AbortError") return;
  if (error instanceof SeenOtherwise) {
    redraw(error);
    return;
  }
  if (isAway(error)) {
    if (!connection.away || element("alert").hidden) showError(error, () => connection.check(), { note: "This page reconnects by itself." });
    connection.lose(retry);
    return;
  }
  const tryAgain = retry && (() => {
    hideError();
    retry();
  });
  const unknown = /^model_version: .* got (\d+)$/.exec(error.message);
  if (unknown) {
    // The version was unloaded after the page was opened.
    start().then(() => (info?.model_versions.includes(Number(unknown[1])) === false ? retry?.() : showError(error, tryAgain)));
    return;
  }
  if (error.status !== 401) {
    showError(error, tryAgain);
    return;
  }
  askForKey(async (key) => {
    service.key = key;
    if (!(await service.acceptsKey())) {
      service.key = "";
      return false;
    }
    hideError();
    if (session) retryAll();
    return true;
  });
}
