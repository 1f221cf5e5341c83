// Pointer gestures on the image: click, box, pan, pinch, wheel zoom.

import { boxOf } from "./stage.js";

/** Movement up to which a press is still a click, in CSS pixels. */
export const MAX_CLICK_MOVE_PIXELS = { mouse: 5, pen: 6, touch: 12 };
const WHEEL_SPEED = 0.0015;
const MIDDLE_BUTTON = 1, RIGHT_BUTTON = 2;

/**
 * @typedef {object} Handlers
 * @property {(x: number, y: number, options: ClickOptions) => void} press a press that may become a click
 * @property {(x: number, y: number, options: ClickOptions) => void} click
 * @property {(box: number[] | null, time: number) => void} box null or without area: cancelled
 * @property {(pixel: {x: number, y: number} | null) => void} hover
 * @property {import("./mend.js").Mend} mend decides what a press is, and draws strokes
 *
 * @typedef {{label: number | null, shift: boolean, pick: boolean, time: number}} ClickOptions
 *   label null: the current label; shift: whether the key is held; pick: select the object at this pixel
 *
 * @typedef {object} Stroke
 * @property {(event: PointerEvent) => void} move
 * @property {() => void} end
 * @property {() => void} cancel
 */

/** @param {import("./stage.js").Stage} stage @param {Handlers} handlers */
export function listenToPointers(stage, handlers) {
  const pointers = new Map();
  let gesture = null;
  /** Address of the picture on which the gesture began. */
  let source = "";
  let spaceHeld = false;

  /** Report a press or a click, where the press began. */
  const report = (handler, from, event) => {
    const pixel = stage.pixelAt(from);
    const label = from.button === RIGHT_BUTTON ? 0 : null;
    const options = { label, shift: event.shiftKey, pick: event.ctrlKey || event.metaKey, time: event.timeStamp };
    if (pixel) handler(pixel.x, pixel.y, options);
  };

  const draggedBox = (event) => boxOf(stage.pixelAt(gesture.from, true), stage.pixelAt(event, true));

  const cancel = (event) => {
    const cancelled = gesture, stale = isStale();
    gesture = null;
    if (cancelled?.kind === "box" && !stale) handlers.box(null, event.timeStamp);
    if (cancelled?.kind === "stroke") cancelled.stroke?.cancel();
  };

  /** Return whether the image on which the gesture began is no longer open. */
  const isStale = () => gesture !== null && (stage.view.hidden || source !== stage.picture.src);

  const listeners = {
    pointerdown(event) {
      if (event.target.closest("button") || event.button > RIGHT_BUTTON) return;
      stage.view.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      stage.moveCursor(null);
      if (pointers.size > 1) {
        cancel(event);
        gesture = { kind: "pinch" };
      } else if (event.button === MIDDLE_BUTTON || spaceHeld || (handlers.mend.tool === "polygon" && !handlers.mend.editor.draft)) {
        event.preventDefault();
        gesture = { kind: "pan" };
      } else if (handlers.mend.tool !== "click") {
        gesture = { kind: "stroke", stroke: handlers.mend.beginStroke(event) };
      } else {
        gesture = { kind: "press", from: event };
        report(handlers.press, event, event);
      }
      source = stage.picture.src;
    },

    pointermove(event) {
      const last = pointers.get(event.pointerId);
      if (!last) {
        if (event.pointerType !== "touch" && !event.target.closest("button")) handlers.hover(stage.pixelAt(event));
        return;
      }
      if (isStale()) cancel(event);
      if (gesture?.kind === "pinch") pinch(stage, [...pointers.values()], last, event);
      if (gesture?.kind === "pan") stage.pan(event.clientX - last.clientX, event.clientY - last.clientY);
      if (gesture?.kind === "press" && gesture.from.button === 0) {
        const { clientX, clientY } = gesture.from;
        const distance = Math.hypot(event.clientX - clientX, event.clientY - clientY);
        if (distance > MAX_CLICK_MOVE_PIXELS[event.pointerType]) gesture.kind = "box";
      }
      if (gesture?.kind === "box") stage.drawBox(draggedBox(event));
      if (gesture?.kind === "stroke") gesture.stroke?.move(event);
      pointers.set(event.pointerId, event);
    },

    pointerup(event) {
      if (!pointers.delete(event.pointerId)) return;
      if (isStale()) cancel(event);
      if (gesture?.kind === "box") {
        handlers.box(draggedBox(event), event.timeStamp);
      } else if (gesture?.kind === "stroke") {
        gesture.stroke?.end();
      } else if (gesture?.kind === "press") {
        report(handlers.click, gesture.from, event);
      }
      // After a pinch, the remaining finger is ignored until it is lifted.
      if (!pointers.size || gesture?.kind !== "pinch") gesture = null;
    },

    pointercancel(event) {
      pointers.delete(event.pointerId);
      cancel(event);
    },

    pointerleave: () => handlers.hover(null),
    contextmenu: (event) => event.preventDefault(),
  };
  for (const [type, listener] of Object.entries(listeners)) stage.view.addEventListener(type, listener);
  // Otherwise the emulated mouse click after a tap hits the marker that the tap has created.
  const preventMouseClick = (event) => event.target.closest("button") || event.preventDefault();
  stage.view.addEventListener("touchend", preventMouseClick, { passive: false });

  const onWheel = (event) => {
    event.preventDefault();
    stage.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 16 : 1) * WHEEL_SPEED), stage.toView(event));
  };
  stage.view.addEventListener("wheel", onWheel, { passive: false });

  const setSpaceHeld = (held) => {
    spaceHeld = held;
    stage.view.classList.toggle("moving", held);
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && ["box", "stroke"].includes(gesture?.kind)) {
      cancel(event);
      event.stopImmediatePropagation();
    }
    // Space belongs to a control focused by keyboard, but not to one focused by a click.
    if (event.code !== "Space" || stage.view.hidden || document.activeElement.matches("input:not([type=radio], [type=range]), select, :not(#view, [type=radio], [type=range]):focus-visible")) return;
    event.preventDefault();
    setSpaceHeld(true);
  });
  document.addEventListener("keyup", (event) => {
    if (event.code !== "Space" || !spaceHeld) return;
    event.preventDefault();
    setSpaceHeld(false);
  });
  window.addEventListener("blur", () => setSpaceHeld(false));
}

/** Pan and zoom about the midpoint of two fingers. */
function pinch(stage, fingers, last, event) {
  const other = fingers.find((finger) => finger.pointerId !== event.pointerId);
  if (!other) return;
  const distance = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
  stage.pan((event.clientX - last.clientX) / 2, (event.clientY - last.clientY) / 2);
  const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
  if (distance(last) > 0) stage.zoom(distance(event) / distance(last), stage.toView(middle));
}
