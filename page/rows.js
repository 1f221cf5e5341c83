// Rows of a list, and names that can be changed in them.

import { create } from "./dom.js";

/** A list with a row for each item. Rows are reused, so they keep the keyboard focus. */
export class Rows {
  /** @type {Map<number, any>} */
  #rows = new Map();

  /**
   * @param {HTMLElement} list
   * @param {(item: any) => Record<string, any>} make returns the elements of a row, with `item`, its `li`
   */
  constructor(list, make) {
    this.list = list;
    this.make = make;
  }

  /**
   * Show these items, each with an `id`.
   * @param {any[]} items
   * @param {(row: any, item: any, index: number) => void} update
   * @returns {boolean} whether any row was removed or moved
   */
  show(items, update) {
    const ids = new Set(items.map(({ id }) => id));
    let isChanged = false;
    for (const [id, row] of this.#rows) {
      if (ids.has(id)) continue;
      row.item.remove();
      this.#rows.delete(id);
      isChanged = true;
    }
    items.forEach((item, index) => {
      const row = this.#rows.get(item.id) ?? this.make(item), before = this.list.children[index];
      this.#rows.set(item.id, row);
      if (before !== row.item) {
        this.list.insertBefore(row.item, before ?? null);
        isChanged = true;
      }
      update(row, item, index);
    });
    return isChanged;
  }

  get(id) {
    return this.#rows.get(id);
  }
}

/** A longer name may be cut off on the screen; it is then shown as a title, too. */
const MAX_SHOWN_LENGTH = 20;

/** Return a field for a name: Enter takes it over, Escape brings the last one back. */
export function nameField(rename) {
  const field = create("input", { className: "name", maxLength: 80, spellcheck: false });
  field.addEventListener("change", () => {
    rename(field.value.trim() || field.defaultValue);
    field.value = field.defaultValue; // the new name, or the last one if the new one was refused
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") field.value = field.defaultValue;
    if (["Enter", "Escape"].includes(event.key)) field.blur();
  });
  return field;
}

/** Show a name in its field, unless it is being changed. */
export function showName(field, name, ariaLabel) {
  if (document.activeElement !== field) field.value = name;
  Object.assign(field, { defaultValue: name, ariaLabel, title: name.length > MAX_SHOWN_LENGTH ? name : "" });
}
