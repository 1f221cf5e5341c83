// The page by keyboard.

import { boxOf } from "./stage.js";

const STEP = 1, BIG_STEP = 20;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {import("./stage.js").Stage} stage
 * @param {Record<string, () => void>} shortcuts by key; with Ctrl or Cmd as `Ctrl+z`
 * @param {{click: Function, box: Function}} handlers as in gestures.js
 */
export function listenToKeys(stage, shortcuts, handlers) {
  const cross = (event) => {
    if (document.activeElement !== stage.view || event.ctrlKey || event.metaKey || event.altKey) return false;
    const { x, y } = stage.cursor ?? { x: Math.floor(stage.width / 2), y: Math.floor(stage.height / 2) };
    if (event.key in ARROWS) {
      const step = event.shiftKey ? BIG_STEP : STEP;
      const [right, down] = ARROWS[event.key];
      stage.point(stage.inside(x + right * step, y + down * step));
      if (stage.corner) stage.drawBox(boxOf(stage.corner, stage.cursor));
    } else if (event.key === "Enter") {
      stage.point({ x, y });
      handlers.click(x, y, { label: event.shiftKey ? 0 : null, fresh: false, pick: false, time: event.timeStamp });
    } else if (event.key.toLowerCase() === "b") {
      stage.point({ x, y });
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
    if (document.querySelector("dialog[open]") || event.target.matches("input:not([type=checkbox], [type=radio], [type=range]), select")) return;
    if (event.altKey || (stage.view.hidden && event.key !== "?")) return;
    if (!stage.view.hidden && cross(event)) {
      event.preventDefault();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const shortcut = shortcuts[event.ctrlKey || event.metaKey ? `Ctrl+${event.shiftKey ? "Shift+" : ""}${key}` : key];
    if (!shortcut) return;
    event.preventDefault();
    shortcut();
  });
}
