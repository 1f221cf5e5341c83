// The handles of the box on the image: corners and edges resize it, its lines move it.

import { createButton } from "./dom.js";
import { arrowStep } from "./keys.js";

/** The handles: cursor, and the sides that each moves, as indices of x0, y0, x1, y1. The corners lie above the edges. */
const HANDLES = {
  "Move the box": ["move", 0, 1, 2, 3],
  "Left edge of the box": ["w-resize", 0],
  "Top edge of the box": ["n-resize", 1],
  "Right edge of the box": ["e-resize", 2],
  "Bottom edge of the box": ["s-resize", 3],
  "Top left corner of the box": ["nw-resize", 0, 1],
  "Top right corner of the box": ["ne-resize", 2, 1],
  "Bottom right corner of the box": ["se-resize", 2, 3],
  "Bottom left corner of the box": ["sw-resize", 0, 3],
};

/**
 * Add handles to the box, for pointers and keys.
 * @param {import("./stage.js").Stage} stage
 * @param {(box: number[], time: number) => void} change called with the changed box
 */
export function listenToBox(stage, change) {
  const sidesOf = new Map(Object.entries(HANDLES).map(([ariaLabel, [cursor, ...sides]]) => [createHandle(ariaLabel, cursor, sides), sides]));
  stage.box.append(...sidesOf.keys());
  /** The change that has begun: the box before it, and as it is shown. */
  let begun = null;
  /** Where the pointer has taken hold of a handle, in image pixels; null: there is no drag. */
  let from = null;

  const show = (sides, start, delta) => {
    begun ??= { before: stage.shownBox, shown: stage.shownBox };
    if (stage.shownBox !== begun.shown) return; // another object, or Undo
    begun.shown = withSides(start ?? begun.shown, sides, delta, [stage.width - 1, stage.height - 1]);
    stage.drawBox(begun.shown);
  };
  const end = (event, isKept) => {
    const ended = begun;
    begun = from = null;
    if (!ended || stage.shownBox !== ended.shown) return;
    if (isKept && String(ended.shown) !== String(ended.before)) change(ended.shown, event.timeStamp);
    else stage.drawBox(ended.before);
  };
  const keep = (event) => end(event, true);

  const listeners = {
    pointerdown(event) {
      if (event.button) return;
      event.preventDefault();
      event.target.focus({ preventScroll: true });
      event.target.setPointerCapture(event.pointerId);
      from = stage.pointAt(event);
    },
    pointermove(event) {
      if (!from) return;
      const { x, y } = stage.pointAt(event);
      show(sidesOf.get(event.target), begun?.before, [Math.round(x - from.x), Math.round(y - from.y)]);
    },
    pointerup: keep,
    pointercancel: (event) => end(event, false),
    keydown(event) {
      const step = arrowStep(event);
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (step && !from) show(sidesOf.get(event.target), null, step);
      else if (event.key === "Escape" && begun) end(event, false);
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
    // Keys that are held change the box once.
    keyup: (event) => from || keep(event),
    focusout: (event) => from || keep(event),
  };
  for (const [type, listener] of Object.entries(listeners)) stage.box.addEventListener(type, listener);
}

function createHandle(ariaLabel, cursor, sides) {
  const isEdge = sides.length === 1; // keys resize with the corners
  const handle = createButton(sides.length === 4 ? "frame" : isEdge ? "edge" : "", null, { ariaLabel, tabIndex: isEdge ? -1 : 0 });
  const position = (start, end) => (sides.includes(start) ? "0" : sides.includes(end) ? "100%" : "50%");
  Object.assign(handle.style, { left: position(0, 2), top: position(1, 3), cursor });
  return handle;
}

/** Return a box with some sides moved, or all of them, within the image: x0, y0, x1, y1, at least two pixels wide and high. */
function withSides(box, sides, delta, limits) {
  return box.map((at, side) => {
    if (!sides.includes(side)) return at;
    const axis = side % 2, [start, end, limit] = [box[axis], box[axis + 2], limits[axis]];
    const resized = side < 2 ? [0, end - 1] : [start + 1, limit];
    const [least, most] = sides.length === 4 ? [at - start, at + limit - end] : resized;
    return Math.min(Math.max(at + delta[axis], least), most);
  });
}
