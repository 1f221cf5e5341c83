// The list of classes in the panel.

import { element } from "./dom.js";

/** Classes with a number key. */
const MAX_KEYS = 9;

/**
 * @typedef {import("./project.js").Category} Category
 * @typedef {object} ClassActions
 * @property {(id: number) => void} choose
 * @property {(id: number, name: string) => void} rename
 * @property {(id: number) => void} remove
 * @property {(name: string) => void} add
 */

export class ClassList {
  /** @type {Map<number, Record<string, any>>} */
  #rows = new Map();

  /** @param {ClassActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.list = element("class-list");
    element("add-class").addEventListener("click", () => {
      actions.add(this.#newName());
      const fields = this.list.querySelectorAll("input");
      fields[fields.length - 1].select();
    });
  }

  /**
   * Show the classes; rows are reused.
   * @param {Category[]} classes
   * @param {number} currentId
   * @param {(id: number) => number} countOf number of objects of a class
   */
  show(classes, currentId, countOf) {
    const ids = new Set(classes.map(({ id }) => id));
    for (const [id, { item }] of this.#rows) {
      if (ids.has(id)) continue;
      item.remove();
      this.#rows.delete(id);
    }
    classes.forEach((category, index) => {
      const row = this.#rows.get(category.id) ?? this.#addRow(category.id);
      const count = countOf(category.id);
      row.item.style.setProperty("--colour", category.color);
      row.item.classList.toggle("active", category.id === currentId);
      row.pick.setAttribute("aria-pressed", String(category.id === currentId));
      row.pick.setAttribute("aria-label", `Use the class ${category.name}`);
      row.pick.textContent = index < MAX_KEYS ? String(index + 1) : "";
      if (document.activeElement !== row.name) row.name.value = category.name;
      row.name.defaultValue = category.name;
      row.name.setAttribute("aria-label", `Name of the class ${category.name}`);
      row.count.textContent = String(count);
      row.count.title = `${count} ${count === 1 ? "object" : "objects"} in all images`;
      row.remove.disabled = classes.length === 1;
      row.remove.setAttribute("aria-label", `Delete the class ${category.name}`);
    });
  }

  #newName() {
    const names = new Set([...this.list.querySelectorAll("input")].map(({ value }) => value));
    for (let number = names.size + 1; ; number++) {
      if (!names.has(`class ${number}`)) return `class ${number}`;
    }
  }

  #addRow(id) {
    const item = document.createElement("li");
    const pick = document.createElement("button");
    pick.type = "button";
    pick.className = "pick class-key";
    pick.addEventListener("click", () => this.actions.choose(id));
    const name = document.createElement("input");
    name.className = "name";
    name.maxLength = 80;
    name.spellcheck = false;
    name.addEventListener("change", () => this.actions.rename(id, name.value.trim() || name.defaultValue));
    name.addEventListener("keydown", (event) => {
      if (event.key === "Escape") name.value = name.defaultValue;
      if (["Enter", "Escape"].includes(event.key)) name.blur();
    });
    const count = document.createElement("span");
    count.className = "score";
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "icon small";
    remove.title = "Delete";
    remove.innerHTML = '<svg aria-hidden="true"><use href="#i-bin"/></svg>';
    remove.addEventListener("click", () => this.actions.remove(id));
    item.append(pick, name, count, remove);
    this.list.append(item);
    const row = { item, pick, name, count, remove };
    this.#rows.set(id, row);
    return row;
  }
}
