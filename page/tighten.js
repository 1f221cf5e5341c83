// "Tighten boxes": objects that were imported as boxes get the model's masks.

import { session } from "./current.js";
import { edit, mend } from "./edits.js";
import { counted, hint, showBusy } from "./notices.js";
import { isWholeBox } from "./objects.js";
import { handleError } from "./requests.js";
import { versionField } from "./versions.js";

/** A mask fits if the IoU of its box and the given one is at least this, as for `mobile-sam masks --to boxes`. */
const MIN_IOU = 0.3;
/** Requests at a time. */
const CONCURRENCY = 4;

/** Whether it runs already. */
let isRunning = false;

/** Replace the whole boxes on the open image by the model's masks, in one step. Those without a mask that fits stay. */
export async function tighten() {
  if (!session || isRunning) return;
  mend.settle();
  const current = session, { masks, objects } = current, boxes = objects.list.filter(isWholeBox);
  if (!boxes.length) return;
  const waiting = boxes.map(asked);
  let done = 0;
  isRunning = true;
  try {
    const work = async () => {
      while (waiting.length && current === session) {
        showBusy(`Tightening box ${++done} of ${boxes.length}`);
        await masks.learn(waiting.shift());
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, work));
    if (current !== session) return;
    // Meanwhile, boxes may have been changed or removed.
    const asBefore = objects.list.filter((object) => boxes.includes(object)).map((object) => ({ object, next: asked(object) }));
    const fitting = asBefore.filter(({ object, next }) => fits(masks.get(next), object.drawn));
    if (fitting.length) edit(() => objects.replaceAll(new Map(fitting.map(({ object, next }) => [object.id, next]))));
    const kept = asBefore.length - fitting.length;
    hint(`${counted(fitting.length, "object")} tightened${kept ? `; ${counted(kept, "object")} left as before: the model's mask does not fit the box` : ""}`);
  } catch (error) {
    waiting.length = 0;
    if (current === session) handleError(error, () => current === session && tighten());
  } finally {
    isRunning = false;
    if (current === session) showBusy("");
  }
}

/** Return an object as the model is asked for it: by its box. */
function asked(object) {
  return { ...object, drawn: null, part: null, candidate: 0, version: versionField().model_version };
}

/**
 * Return whether a mask may be that of the object in a box.
 * @param {import("./rle.js").Mask | null} mask
 * @param {import("./rle.js").Mask} whole the box
 */
function fits(mask, whole) {
  if (!mask?.area) return false;
  const [x0, y0, x1, y1] = mask.box, [left, top, right, bottom] = whole.box, { width, height } = mask;
  const isWholeImage = String(mask.box) === String([0, 0, width, height]);
  if (isWholeImage && whole.area < width * height) return false;
  const common = Math.max(0, Math.min(x1, right) - Math.max(x0, left)) * Math.max(0, Math.min(y1, bottom) - Math.max(y0, top));
  return common / ((x1 - x0) * (y1 - y0) + whole.area - common) >= MIN_IOU;
}
