// Mending masks by hand: the tools beside clicks, and where their results go.

import { Brush } from "./brush.js";
import { element, radio } from "./dom.js";
import { hint, showResult } from "./notices.js";
import { isEmpty, isMarked } from "./objects.js";
import { PolygonEditor } from "./polygon.js";
import { isAsking } from "./question.js";
import { vertexAt } from "./vertices.js";

const HINTS = {
  brush: ["Paint what belongs to the object", "(with Shift: erase)"],
  eraser: ["Erase what does not belong to the object", "(with Shift: paint)"],
  polygon: ["Drag the points, or a round handle to add one; double click a point to delete it"],
};

export class Mend {
  /** @type {import("./session.js").Session | null} */
  #session = null;

  /**
   * @param {import("./screen.js").Screen} screen
   * @param {{edit: (change: (objects: import("./objects.js").Objects) => void) => void, leaveClicks: () => void}} actions
   *   edit: change the objects; leaveClicks: another tool than clicks was chosen
   */
  constructor(screen, actions) {
    this.screen = screen;
    this.stage = screen.stage;
    this.actions = actions;
    this.brush = new Brush(screen.stage);
    this.editor = new PolygonEditor(screen.stage, {
      change: () => this.#showHistory(),
      apply: () => this.choose("click"),
      close: () => (this.settle(), hint(...HINTS.polygon)),
    });
    screen.onShow = (session) => this.#update(session);
    element("tool").addEventListener("change", () => this.choose(this.tool));
    element("polygon-apply").addEventListener("click", () => this.choose("click"));
    element("polygon-cancel").addEventListener("click", () => this.escape());
    // Exports and other objects come after the edits.
    for (const type of ["pointerdown", "focusin"]) element("panel").addEventListener(type, () => this.settle(), true);
    // The tab may be closed next.
    document.addEventListener("visibilitychange", () => this.settle());
    const showShift = (event) => this.#showTool(event.shiftKey);
    for (const type of ["keydown", "keyup"]) document.addEventListener(type, showShift);
    this.choose("click");
  }

  /** @returns {"click" | "brush" | "eraser" | "polygon"} */
  get tool() {
    return /** @type {any} */ (radio("tool").value);
  }

  /** Switch to a tool; edits of the polygon are applied. */
  choose(tool) {
    this.settle();
    this.editor.close();
    radio("tool", tool).checked = true;
    this.#showTool(false);
    element("click-options").hidden = tool !== "click";
    element("brush-options").hidden = !["brush", "eraser"].includes(tool);
    element("polygon-options").hidden = tool !== "polygon";
    if (!this.#session) return;
    hint(...(HINTS[tool] ?? [""]));
    if (tool !== "click") this.actions.leaveClicks();
    this.screen.showPanel();
  }

  /** Switch to the brush, or from the brush to the eraser. */
  chooseBrush() {
    this.choose(this.tool === "brush" ? "eraser" : "brush");
  }

  #showTool(shift) {
    const { tool, stage: { view } } = this;
    view.dataset.tool = tool;
    view.classList.toggle("erasing", (tool === "eraser") !== shift);
  }

  /** Update the polygon after the screen: another object, another mask. */
  #update(session) {
    this.#session = session;
    this.brush.showRadius();
    if (this.tool !== "polygon") return;
    const { editor } = this, { active } = session.objects;
    const mask = session.masks.get(active), draft = `${session.image.id} ${active.id}`;
    if (mask?.area) {
      if (mask !== editor.mask && !editor.open(mask)) {
        this.choose("click");
        hint("This outline has too many points: use the brush, or Smooth");
      }
    } else if (!mask && isMarked(active)) {
      editor.close(); // until the mask is there
    } else if (draft !== editor.draft) {
      editor.begin(draft);
    }
    this.#showHistory();
  }

  /** Update undo and redo: the polygon's history comes before the objects'. */
  #showHistory() {
    const { objects } = this.#session;
    element("undo").toggleAttribute("disabled", !this.editor.isEdited && !objects.canUndo);
    element("redo").toggleAttribute("disabled", !this.editor.canRedo && !objects.canRedo);
  }

  /** Store edits of the polygon, and a draft if it is one: less than three points stay a draft. */
  settle() {
    const { editor } = this;
    if (!editor.isEdited) return;
    const mask = editor.result();
    if (editor.draft && !mask.area) return;
    editor.keep(mask);
    this.#store(mask);
  }

  /** Give the active object a mask, unless it has it. */
  #store(mask) {
    const { masks, objects: { active } } = this.#session;
    const before = masks.get(active);
    if (before ? mask.counts === before.counts : !mask.area) return;
    this.actions.edit((objects) => objects.draw(mask));
    showResult(active.name, mask);
  }

  /** Store a stroke on the object on which it began; another one may be selected since, such as what "Segment everything" has found. */
  #storeStroke(mask, object) {
    const { objects } = this.#session, { list } = objects;
    const target = list.find(({ id }) => id === object.id) ?? (isEmpty(object) ? list.find(isEmpty) : null);
    if (!target) {
      hint("The stroke was dropped: its object is gone");
      return;
    }
    objects.select(target.id);
    this.screen.show();
    this.#store(mask);
  }

  /** Cancel a question, a draft, or edits of the polygon, and go back to clicks; return false if there is nothing to leave. */
  escape() {
    const isLeaving = isAsking() || this.tool !== "click";
    if (!isAsking() && this.editor.discard()) return true;
    this.editor.close();
    if (isAsking()) this.screen.show();
    else if (isLeaving) this.choose("click");
    return isLeaving;
  }

  /** Begin a stroke at the pointer; null if there is nothing to draw on. @returns {import("./gestures.js").Stroke | null} */
  beginStroke(event) {
    if (this.editor.draft) return this.editor.beginShape(event);
    return this.#begin(this.stage.pointAt(event), (this.tool === "eraser") !== (event.shiftKey || event.button === 2));
  }

  /** Handle Enter on a pixel. */
  press(x, y, shift) {
    const pixel = { x: x + 0.5, y: y + 0.5 };
    if (this.editor.draft) this.editor.add([vertexAt(pixel)]);
    else if (this.tool === "polygon") this.choose("click");
    else this.#begin(pixel, (this.tool === "eraser") !== shift)?.end();
  }

  #begin(start, erases) {
    const session = this.#session, { masks, objects, objects: { active } } = session;
    if (!masks.get(active) && masks.isPending(active)) {
      hint("Wait for the object's mask");
      return null;
    }
    if (active.hidden) {
      objects.setDisplay(active.id, { hidden: false });
      this.screen.show();
    }
    this.screen.highlight(null);
    const mask = masks.displayed(active);
    if (!mask && erases) return null;
    return this.brush.begin(mask, { colour: this.screen.colourOf(active), erases, start }, (drawn) => {
      if (drawn && session === this.#session) this.#storeStroke(drawn, active);
      this.screen.paint();
    });
  }
}
