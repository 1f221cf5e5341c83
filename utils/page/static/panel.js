// The list of objects in the side panel.

import { element } from "./dom.js";

export class ObjectList {
  /** @type {Map<number, Record<string, any>>} */
  #rows = new Map();
  /** Id of the row that was revealed last; null once rows have moved. */
  #revealed = null;

  /**
   * @param {object} actions called with an object's id
   * @param {(id: number) => void} actions.select
   * @param {(id: number, name: string) => void} actions.rename
   * @param {(id: number) => void} actions.hide
   * @param {(id: number) => void} actions.remove
   * @param {(id: number | null) => void} actions.highlight
   */
  constructor(actions) {
    this.list = element("objects");
    this.actions = actions;
  }

  /**
   * Show these objects; existing rows are reused, so they keep the keyboard focus.
   * @param {import("./objects.js").ImageObject[]} objects
   * @param {number} activeId
   * @param {(object: import("./objects.js").ImageObject) => import("./rle.js").Mask | null} maskOf
   * @param {(classId: number) => import("./project.js").Category} categoryOf
   */
  show(objects, activeId, maskOf, categoryOf) {
    const ids = new Set(objects.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (ids.has(id)) continue;
      row.item.remove();
      this.#rows.delete(id);
      this.#revealed = null;
    }
    objects.forEach((object, index) => {
      const row = this.#rows.get(object.id) ?? this.#addRow(object);
      if (this.list.children[index] !== row.item) {
        this.list.insertBefore(row.item, this.list.children[index] ?? null);
        this.#revealed = null;
      }
      const isActive = object.id === activeId, mask = maskOf(object), category = categoryOf(object.classId);
      const shown = [object, isActive, mask, category];
      if (row.shown?.every((value, at) => value === shown[at])) return;
      row.shown = shown;
      this.#updateRow(row, object, isActive, mask);
      row.category.textContent = category.name;
      row.category.style.setProperty("--colour", category.color);
    });
  }

  /** Scroll the list, but not the page, to an object's row, unless that was done. */
  reveal(id) {
    const item = this.#rows.get(id)?.item;
    if (!item || id === this.#revealed) return;
    this.#revealed = id;
    const list = this.list.getBoundingClientRect(), row = item.getBoundingClientRect();
    this.list.scrollTop += Math.min(0, row.top - list.top) + Math.max(0, row.bottom - list.bottom);
  }

  /** @returns {Record<string, any>} */
  #addRow({ id }) {
    const item = document.createElement("li");
    const pick = button("pick", () => this.actions.select(id));
    const name = document.createElement("input");
    name.className = "name";
    name.maxLength = 80;
    name.spellcheck = false;
    name.addEventListener("focus", () => this.actions.select(id));
    name.addEventListener("change", () => this.actions.rename(id, name.value.trim() || name.defaultValue));
    name.addEventListener("keydown", (event) => {
      if (event.key === "Escape") name.value = name.defaultValue;
      if (["Enter", "Escape"].includes(event.key)) name.blur();
    });
    const score = document.createElement("span");
    score.className = "score";
    score.title = "The model's own estimate of the mask's quality, which can be slightly above 1";
    const category = document.createElement("span");
    category.className = "category";
    const hide = button("icon small", () => this.actions.hide(id), "i-eye");
    const remove = button("icon small", () => this.actions.remove(id), "i-bin");
    item.append(pick, name, category, score, hide, remove);
    item.addEventListener("click", (event) => event.target === item && this.actions.select(id));
    item.addEventListener("pointerenter", () => this.actions.highlight(id));
    item.addEventListener("pointerleave", () => this.actions.highlight(null));
    const row = { item, pick, name, category, score, hide, remove };
    this.#rows.set(id, row);
    return row;
  }

  #updateRow(row, object, active, mask) {
    const { item, pick, name, score, hide, remove } = row;
    item.classList.toggle("active", active);
    item.classList.toggle("hidden-object", object.hidden);
    item.style.setProperty("--colour", object.colour);
    pick.setAttribute("aria-pressed", String(active));
    pick.setAttribute("aria-label", `Select ${object.name}`);
    if (document.activeElement !== name) name.value = object.name;
    name.defaultValue = object.name;
    name.setAttribute("aria-label", `Name of ${object.name}`);
    score.textContent = mask?.scoreText ?? "";
    hide.setAttribute("aria-pressed", String(object.hidden));
    hide.setAttribute("aria-label", `Hide ${object.name}`);
    hide.title = object.hidden ? "Show" : "Hide";
    remove.setAttribute("aria-label", `Delete ${object.name}`);
    remove.title = "Delete";
  }
}

function button(className, action, icon) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = className;
  if (icon) button.innerHTML = `<svg aria-hidden="true"><use href="#${icon}"/></svg>`;
  button.addEventListener("click", action);
  return button;
}
