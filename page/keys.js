// Keyboard control: the crosshair on the image, and shortcuts.

import { boxOf } from "./stage.js";

const STEP_PIXELS = 1, LARGE_STEP_PIXELS = 20;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Return the step of an arrow key, right and down in image pixels; null for another key. */
export function arrowStep({ key, shiftKey }) {
  return ARROWS[key]?.map((side) => side * (shiftKey ? LARGE_STEP_PIXELS : STEP_PIXELS)) ?? null;
}

/** Return whether keys belong to a dialog or menu, or to a field with text. */
export function isElsewhere() {
  return document.querySelector("dialog[open], :popover-open") !== null
    || document.activeElement.matches("input:not([type=checkbox], [type=radio], [type=range], [type=color]), select, textarea");
}

/**
 * @param {import("./stage.js").Stage} stage
 * @param {Record<string, (event: KeyboardEvent) => void>} shortcuts actions by key; `Ctrl+z` also stands for Cmd+Z
 * @param {Pick<import("./gestures.js").Handlers, "click" | "box">} handlers
 */
export function listenToKeys(stage, shortcuts, handlers) {
  /** Handle a key of the crosshair; return whether it was one. */
  const handleCrosshairKey = (event) => {
    if (document.activeElement !== stage.view || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { x, y } = stage.cursor ?? { x: Math.floor(stage.width / 2), y: Math.floor(stage.height / 2) };
    const step = arrowStep(event);
    if (step) {
      stage.moveCursor(stage.clamp(x + step[0], y + step[1]));
      if (stage.corner) stage.drawBox(boxOf(stage.corner, stage.cursor));
    } else if (event.key === "Enter") {
      stage.moveCursor({ x, y });
      handlers.click(x, y, { label: event.shiftKey ? 0 : null, shift: false, pick: false, time: event.timeStamp });
    } else if (event.key.toLowerCase() === "b") {
      stage.moveCursor({ x, y });
      if (stage.corner) handlers.box(boxOf(stage.corner, stage.cursor), event.timeStamp);
      stage.corner = stage.corner ? null : stage.cursor;
    } else if (event.key === "Escape" && stage.corner) {
      stage.corner = null;
      handlers.box(null, event.timeStamp);
    } else {
      return false;
    }
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (isElsewhere() || event.altKey || (stage.view.hidden && event.key !== "?")) return;
    if (!stage.view.hidden && handleCrosshairKey(event)) {
      event.preventDefault();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const shortcut = shortcuts[event.ctrlKey || event.metaKey ? `Ctrl+${event.shiftKey ? "Shift+" : ""}${key}` : key];
    if (!shortcut) return;
    event.preventDefault();
    shortcut(event);
  });
}
