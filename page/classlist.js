// The list of classes in the panel.

import { create, createButton, element, icon } from "./dom.js";
import { counted } from "./notices.js";
import { nameField, Rows, showName } from "./rows.js";

/** Classes with a number key. */
const MAX_KEYS = 9;

/**
 * @typedef {import("./project.js").Category} Category
 * @typedef {object} ClassActions
 * @property {(id: number) => void} choose
 * @property {(id: number, name: string) => void} rename
 * @property {(id: number, color: string) => void} recolour
 * @property {(id: number, index: number) => void} move to another place in the list
 * @property {(id: number) => void} remove
 * @property {(name: string) => void} add
 */

export class ClassList {
  #rows;
  /** @type {Category[]} */
  #classes = [];
  /** @type {number | null} id of the class whose key is held by the pointer */
  #held = null;

  /** @param {ClassActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.list = element("class-list");
    this.#rows = new Rows(this.list, ({ id }) => this.#row(id));
    element("add-class").addEventListener("click", () => {
      this.search.value = "";
      actions.add(this.#newName());
      [...this.list.querySelectorAll("input")].at(-1).select();
    });
    this.list.addEventListener("pointerdown", ({ target }) => (this.#held = this.#idOf(target)));
    this.list.addEventListener("pointermove", (event) => this.#drag(event));
    this.list.addEventListener("keydown", (event) => this.#handleListKey(event));
    this.search = element("class-search");
    this.search.addEventListener("input", () => this.#filter());
    this.search.addEventListener("keydown", (event) => this.#handleSearchKey(event));
  }

  /**
   * @param {Category[]} classes
   * @param {number} currentId
   * @param {(id: number) => number} countOf number of objects of a class
   */
  show(classes, currentId, countOf) {
    this.#classes = classes;
    this.search.hidden = classes.length <= MAX_KEYS;
    this.#rows.show(classes, ({ item, pick, colour, name, count, remove }, category, index) => {
      const number = countOf(category.id), isCurrent = category.id === currentId;
      item.classList.toggle("active", isCurrent);
      const key = index < MAX_KEYS ? String(index + 1) : "";
      Object.assign(pick, { textContent: key, ariaPressed: String(isCurrent), ariaLabel: `Use the class ${category.name} ${key}` });
      Object.assign(colour, { value: category.color, ariaLabel: `Colour of the class ${category.name}` });
      showName(name, category.name, `Name of the class ${category.name}`);
      Object.assign(count, { textContent: String(number), title: `${counted(number, "object")} in all images` });
      Object.assign(remove, { disabled: classes.length === 1, ariaLabel: `Delete the class ${category.name}` });
    });
    this.#filter();
  }

  /** Return the id of the class that has this key; null for another element. */
  #idOf(key) {
    return this.#classes.find(({ id }) => this.#rows.get(id)?.pick === key)?.id ?? null;
  }

  /** Move the class that is held to the place of the row under the pointer. */
  #drag({ buttons, pointerId, clientY }) {
    if (!buttons || this.#held === null) return;
    const rows = [...this.list.children];
    const index = rows.findIndex((row) => clientY >= row.getBoundingClientRect().top && clientY < row.getBoundingClientRect().bottom);
    if (index < 0 || rows[index] === this.#rows.get(this.#held).item) return;
    this.list.setPointerCapture(pointerId); // the key loses it as its row moves
    this.actions.move(this.#held, index);
  }

  /** Alt and an arrow move the class whose key has the focus. */
  #handleListKey(event) {
    const id = this.#idOf(event.target), step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (id === null || !step || !event.altKey) return;
    event.preventDefault();
    this.actions.move(id, this.#classes.findIndex((category) => category.id === id) + step);
    this.#rows.get(id).pick.focus();
  }

  /** Return the classes whose names have the text that is searched for. */
  get #matches() {
    const text = this.search.hidden ? "" : this.search.value.trim().toLowerCase();
    return this.#classes.filter(({ name }) => name.toLowerCase().includes(text));
  }

  #filter() {
    const ids = new Set(this.#matches.map(({ id }) => id));
    for (const { id } of this.#classes) this.#rows.get(id)?.item.toggleAttribute("hidden", !ids.has(id));
  }

  /** Enter uses the first class that was found; Escape shows all classes again. */
  #handleSearchKey({ key }) {
    const [first] = this.#matches;
    if (key === "Enter" && first) this.actions.choose(first.id);
    if (key !== "Escape" && (key !== "Enter" || !first)) return;
    this.search.value = "";
    this.#filter();
    element("view").focus({ preventScroll: true });
  }

  #newName() {
    const names = new Set(this.#classes.map((category) => category.name));
    for (let number = names.size + 1; ; number++) {
      if (!names.has(`class ${number}`)) return `class ${number}`;
    }
  }

  #row(id) {
    const pick = createButton("pick class-key", () => this.actions.choose(id), { title: "Use; drag, or Alt and arrows, to move" });
    const colour = create("input", { type: "color", className: "swatch", title: "Colour" });
    colour.addEventListener("change", () => this.actions.recolour(id, colour.value));
    const name = nameField((name) => this.actions.rename(id, name));
    const count = create("span", { className: "score" });
    const remove = createButton("icon small", () => this.actions.remove(id), { title: "Delete", ...icon("bin") });
    return { item: create("li", {}, pick, colour, name, count, remove), pick, colour, name, count, remove };
  }
}
