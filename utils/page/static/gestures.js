// What a person does on the image with mouse, pen or fingers.

import { boxOf } from "./stage.js";

/** Screen pixels that a press may wander and still be a click. */
const WANDER = { mouse: 5, pen: 6, touch: 12 };
const WHEEL_SPEED = 0.0015;
const MIDDLE_BUTTON = 1, RIGHT_BUTTON = 2;

/**
 * @typedef {object} Handlers
 * @property {(x: number, y: number, how: {label: 0 | null, fresh: boolean, pick: boolean, time: number}) => void} click
 *   label null: what clicks mean at the moment; fresh: on a new object; pick: select what is there
 * @property {(box: [number, number, number, number] | null, time: number) => void} box null, or without
 *   an area: none after all
 * @property {(at: {x: number, y: number} | null) => void} hover
 */

/** @param {import("./stage.js").Stage} stage @param {Handlers} handlers */
export function listen(stage, handlers) {
  const pointers = new Map();
  let gesture = null;
  let space = false;

  const dragged = (event) => boxOf(stage.pixel(gesture.from, true), stage.pixel(event, true));

  const acts = {
    pointerdown(event) {
      if (event.target.closest("button") || event.button > RIGHT_BUTTON) return;
      stage.view.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      stage.point(null);
      if (pointers.size > 1) {
        if (gesture?.kind === "box") handlers.box(null, event.timeStamp);
        gesture = { kind: "pinch" };
      } else if (event.button === MIDDLE_BUTTON || space) {
        event.preventDefault();
        gesture = { kind: "pan" };
      } else {
        gesture = { kind: "press", from: event };
      }
    },

    pointermove(event) {
      const last = pointers.get(event.pointerId);
      if (!last) {
        if (event.pointerType !== "touch" && !event.target.closest("button")) handlers.hover(stage.pixel(event));
        return;
      }
      if (gesture?.kind === "pinch") pinch(stage, [...pointers.values()], last, event);
      if (gesture?.kind === "pan") stage.pan(event.clientX - last.clientX, event.clientY - last.clientY);
      if (gesture?.kind === "press" && gesture.from.button === 0) {
        const { clientX, clientY } = gesture.from;
        const far = Math.hypot(event.clientX - clientX, event.clientY - clientY);
        if (far > WANDER[event.pointerType]) gesture.kind = "box";
      }
      if (gesture?.kind === "box") stage.drawBox(dragged(event));
      pointers.set(event.pointerId, event);
    },

    pointerup(event) {
      if (!pointers.delete(event.pointerId)) return;
      if (gesture?.kind === "box") {
        handlers.box(dragged(event), event.timeStamp);
      } else if (gesture?.kind === "press") {
        const pixel = stage.pixel(gesture.from);
        const label = gesture.from.button === RIGHT_BUTTON ? 0 : null;
        const how = { label, fresh: event.shiftKey, pick: event.ctrlKey || event.metaKey, time: event.timeStamp };
        if (pixel) handlers.click(pixel.x, pixel.y, how);
      }
      // Of two fingers the one that stays does nothing more.
      if (!pointers.size || gesture?.kind !== "pinch") gesture = null;
    },

    pointercancel(event) {
      pointers.delete(event.pointerId);
      if (gesture?.kind === "box") handlers.box(null, event.timeStamp);
      gesture = null;
    },

    pointerleave: () => handlers.hover(null),
    contextmenu: (event) => event.preventDefault(),
  };
  for (const [type, act] of Object.entries(acts)) stage.view.addEventListener(type, act);
  // Without this a tap is followed by a mouse's click, on the marker that the tap has made.
  const noMouse = (event) => event.target.closest("button") || event.preventDefault();
  stage.view.addEventListener("touchend", noMouse, { passive: false });

  const wheel = (event) => {
    event.preventDefault();
    stage.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 16 : 1) * WHEEL_SPEED), stage.inView(event));
  };
  stage.view.addEventListener("wheel", wheel, { passive: false });

  const holdSpace = (down) => {
    space = down;
    stage.view.classList.toggle("moving", down);
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && gesture?.kind === "box") {
      gesture = null;
      handlers.box(null, event.timeStamp);
      event.stopImmediatePropagation();
    }
    // A control that was come to by keys keeps its Space; one that was clicked on before does not.
    if (event.code !== "Space" || stage.view.hidden || event.target.matches("input, select, :not(#view):focus-visible")) return;
    event.preventDefault();
    holdSpace(true);
  });
  document.addEventListener("keyup", (event) => {
    if (event.code !== "Space" || !space) return;
    event.preventDefault();
    holdSpace(false);
  });
  window.addEventListener("blur", () => holdSpace(false));
}

/** Two fingers: what was between them stays between them. */
function pinch(stage, fingers, last, event) {
  const other = fingers.find((finger) => finger.pointerId !== event.pointerId);
  if (!other) return;
  const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
  stage.pan((event.clientX - last.clientX) / 2, (event.clientY - last.clientY) / 2);
  const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
  if (apart(last) > 0) stage.zoom(apart(event) / apart(last), stage.inView(middle));
}
