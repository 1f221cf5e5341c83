// The list of objects beside the image.

import { element } from "./dom.js";

export class ObjectList {
  #rows = new Map();

  /** @param {{select: Function, rename: Function, hide: Function, remove: Function, point: Function}} acts on an object's id */
  constructor(acts) {
    this.list = element("objects");
    this.acts = acts;
  }

  /**
   * Show these objects; rows that stay keep the keyboard's focus.
   * @param {import("./objects.js").Thing[]} objects
   * @param {number} activeId
   * @param {(object: import("./objects.js").Thing) => import("./rle.js").Mask | null} maskOf
   */
  show(objects, activeId, maskOf) {
    const wanted = new Set(objects.map(({ id }) => id));
    for (const [id, row] of this.#rows) {
      if (wanted.has(id)) continue;
      row.item.remove();
      this.#rows.delete(id);
    }
    objects.forEach((object, index) => {
      const row = this.#rows.get(object.id) ?? this.#row(object);
      if (this.list.children[index] !== row.item) this.list.insertBefore(row.item, this.list.children[index] ?? null);
      this.#fill(row, object, object.id === activeId, maskOf(object));
    });
  }

  /** Bring an object's row into sight, by the list alone: the page stays where the finger is. */
  reveal(id) {
    const item = this.#rows.get(id)?.item;
    if (!item) return;
    const list = this.list.getBoundingClientRect(), row = item.getBoundingClientRect();
    this.list.scrollTop += Math.min(0, row.top - list.top) + Math.max(0, row.bottom - list.bottom);
  }

  #row({ id }) {
    const item = document.createElement("li");
    const pick = button("pick", () => this.acts.select(id));
    const name = document.createElement("input");
    name.className = "name";
    name.maxLength = 80;
    name.spellcheck = false;
    name.addEventListener("focus", () => this.acts.select(id));
    name.addEventListener("change", () => this.acts.rename(id, name.value.trim() || name.defaultValue));
    name.addEventListener("keydown", (event) => {
      if (event.key === "Escape") name.value = name.defaultValue;
      if (["Enter", "Escape"].includes(event.key)) name.blur();
    });
    const score = document.createElement("span");
    score.className = "score";
    score.title = "The model's own estimate of how good the mask is";
    const hide = button("icon small", () => this.acts.hide(id), "i-eye");
    const remove = button("icon small", () => this.acts.remove(id), "i-bin");
    item.append(pick, name, score, hide, remove);
    item.addEventListener("click", (event) => event.target === item && this.acts.select(id));
    item.addEventListener("pointerenter", () => this.acts.point(id));
    item.addEventListener("pointerleave", () => this.acts.point(null));
    const row = { item, pick, name, score, hide, remove };
    this.#rows.set(id, row);
    return row;
  }

  #fill({ item, pick, name, score, hide, remove }, object, active, mask) {
    item.classList.toggle("active", active);
    item.classList.toggle("hidden-object", object.hidden);
    item.style.setProperty("--colour", object.colour);
    pick.setAttribute("aria-pressed", String(active));
    pick.setAttribute("aria-label", `Select ${object.name}`);
    if (document.activeElement !== name) name.value = object.name;
    name.defaultValue = object.name;
    name.setAttribute("aria-label", `Name of ${object.name}`);
    score.textContent = mask ? mask.score.toFixed(2) : "";
    hide.setAttribute("aria-pressed", String(object.hidden));
    hide.setAttribute("aria-label", `Hide ${object.name}`);
    hide.title = object.hidden ? "Show" : "Hide";
    remove.setAttribute("aria-label", `Delete ${object.name}`);
    remove.title = "Delete";
  }
}

function button(kind, act, icon) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = kind;
  if (icon) made.innerHTML = `<svg aria-hidden="true"><use href="#${icon}"/></svg>`;
  made.addEventListener("click", act);
  return made;
}
