// The list of objects in the side panel.

import { create, createButton, element, icon } from "./dom.js";
import { isEmpty } from "./objects.js";
import { nameField, Rows, showName } from "./rows.js";

const SCORE_TITLE = "The model's own estimate of the mask's quality";

export class ObjectList {
  #rows;
  /** Id of the row that was revealed last; null once rows have moved. */
  #revealed = null;

  /**
   * @param {object} actions called with an object's id
   * @param {(id: number) => void} actions.select
   * @param {(id: number, name: string) => void} actions.rename
   * @param {(id: number) => void} actions.hide
   * @param {(id: number) => void} actions.confirm a mask that was to be reviewed is right
   * @param {(id: number) => void} actions.remove
   * @param {(id: number | null) => void} actions.highlight
   */
  constructor(actions) {
    this.list = element("objects");
    this.actions = actions;
    this.#rows = new Rows(this.list, ({ id }) => this.#row(id));
  }

  /**
   * Show these objects.
   * @param {import("./objects.js").ImageObject[]} objects
   * @param {number} activeId
   * @param {(object: import("./objects.js").ImageObject) => import("./rle.js").Mask | null} maskOf
   * @param {Pick<import("./screen.js").Screen, "categoryOf" | "colourOf">} screen
   */
  show(objects, activeId, maskOf, screen) {
    const isChanged = this.#rows.show(objects, (row, object) => {
      const isActive = object.id === activeId, mask = maskOf(object), category = screen.categoryOf(object.classId), colour = screen.colourOf(object);
      const shown = [object, isActive, mask, category, colour];
      if (row.shown?.every((value, at) => value === shown[at])) return;
      row.shown = shown;
      this.#update(row, object, isActive, mask);
      const label = object.proposal ? "proposal" : category.name;
      Object.assign(row.category, { textContent: label, title: label });
      row.item.style.setProperty("--colour", colour);
    });
    if (isChanged) this.#revealed = null;
  }

  /** Scroll the list, but not the page, to an object's row, unless that was done. */
  reveal(id) {
    const item = this.#rows.get(id)?.item;
    if (!item || id === this.#revealed) return;
    this.#revealed = id;
    const list = this.list.getBoundingClientRect(), row = item.getBoundingClientRect();
    this.list.scrollTop += Math.min(0, row.top - list.top) + Math.max(0, row.bottom - list.bottom);
  }

  #row(id) {
    const { actions } = this;
    const pick = createButton("pick", () => actions.select(id));
    const name = nameField((name) => actions.rename(id, name));
    name.addEventListener("focus", () => actions.select(id));
    // The first press selects the object and leaves the keys to the image; the next one changes the name.
    name.addEventListener("mousedown", (event) => {
      if (item.classList.contains("active") || document.activeElement === name) return;
      event.preventDefault();
      actions.select(id);
    });
    const score = create("span", { className: "score", title: SCORE_TITLE });
    const category = create("span", { className: "category" });
    const review = createButton("review", () => actions.confirm(id), { textContent: "Review" });
    const hide = createButton("icon small", () => actions.hide(id), icon("eye"));
    const remove = createButton("icon small", () => actions.remove(id), { title: "Delete", ...icon("bin") });
    const item = create("li", {
      onclick: ({ target }) => target.closest("button, input") || actions.select(id),
      onpointerenter: () => actions.highlight(id),
      onpointerleave: () => actions.highlight(null),
    }, pick, name, create("span", { className: "facts" }, category, score, review), hide, remove);
    return { item, pick, name, category, score, review, hide, remove };
  }

  #update({ item, pick, name, score, review, hide, remove }, object, isActive, mask) {
    item.title = object.by ? `By ${object.by}` : "";
    item.classList.toggle("active", isActive);
    item.classList.toggle("empty", isEmpty(object));
    item.classList.toggle("hidden-object", object.hidden);
    item.classList.toggle("proposal", object.proposal === true);
    Object.assign(pick, { ariaPressed: String(isActive), ariaLabel: `Select ${object.name}` });
    showName(name, object.name, `Name of ${object.name}`);
    score.textContent = mask?.scoreText ?? "";
    review.hidden = !object.review;
    if (object.review) Object.assign(review, { ariaLabel: `Review ${object.name}`, title: `Following is in doubt: ${object.review.join(", ")}. Correct the mask, or press if it is right` });
    const { hidden } = object;
    Object.assign(hide, { ariaPressed: String(hidden), ariaLabel: `Hide ${object.name}`, title: hidden ? "Show" : "Hide on the screen: still counted and exported" });
    remove.ariaLabel = `Delete ${object.name}`;
  }
}
