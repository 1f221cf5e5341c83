// A session as it is shown: masks and marks on the image, rows in the panel.

import { element } from "./dom.js";
import { isEmpty, isMarked } from "./objects.js";
import { ObjectList } from "./panel.js";
import { Stage } from "./stage.js";

export class Screen {
  /** @type {import("./session.js").Session} */
  #session = null;
  /** The object that the pointer is on, or on whose row it is. */
  #pointed = null;
  #removeMark;

  /** @param {Record<string, Function>} acts on rows: select, rename, hide, remove; and removeMark */
  constructor(acts) {
    this.stage = new Stage(() => {
      element("zoom-fit").textContent = `${Math.round(100 * this.stage.place.scale)} %`;
    });
    this.#removeMark = acts.removeMark;
    this.list = new ObjectList({ ...acts, point: (id) => this.point(id) });
  }

  /** Show a session from now on. */
  async use(session) {
    this.#session = session;
    this.#pointed = null;
    element("welcome").hidden = true;
    element("tools").hidden = element("panel").hidden = false;
    this.stage.view.setAttribute("aria-busy", "false");
    this.stage.view.setAttribute("aria-label", `${session.name}, ${session.width} by ${session.height} pixels`);
    const shown = this.stage.show(session.url, session.width, session.height);
    this.show();
    this.stage.view.focus({ preventScroll: true, focusVisible: false });
    await shown;
  }

  /** Show an object in front, beside the active one; null: none. */
  point(id) {
    if (id === this.#pointed) return;
    this.#pointed = id;
    this.paint();
  }

  /** Show all of it. */
  show() {
    this.paint();
    const { points, box } = this.#session.objects.active;
    this.stage.showMarks(points, box, this.#removeMark);
    this.showPanel();
  }

  /** Paint all masks; what has not changed costs nothing. */
  paint() {
    const activeId = this.#session.objects.active.id;
    this.stage.paint(this.stage.others, this.#items((id) => id !== activeId));
    this.stage.paint(this.stage.active, this.#items((id) => id === activeId || id === this.#pointed));
  }

  /** Show what the panel and the tools say. */
  showPanel() {
    const { masks, objects } = this.#session;
    const active = objects.active;
    const maskOf = (object) => masks.of(object);
    this.list.show(objects.list, active.id, maskOf);
    this.list.reveal(active.id);
    this.stage.view.style.setProperty("--colour", active.colour);
    document.querySelector(`input[name="candidate"][value="${active.candidate}"]`).checked = true;
    const clicked = isMarked(active) && !active.found;
    const possible = {
      "undo": objects.canUndo,
      "redo": objects.canRedo,
      "clear": !isEmpty(active),
      "candidates": clicked,
      "save-mask": maskOf(active) !== null,
      "save-cutout": maskOf(active) !== null,
      "save-coco": objects.list.some((object) => maskOf(object)?.area),
      "copy-python": clicked,
    };
    for (const [id, is] of Object.entries(possible)) element(id).disabled = !is;
  }

  #items(wanted) {
    const { masks, objects } = this.#session;
    return objects.list
      .filter((object) => wanted(object.id) && !object.hidden)
      .map((object) => ({ mask: masks.toShow(object), colour: object.colour }))
      .filter(({ mask }) => mask)
      // Of two on the same spot the smaller one is seen.
      .sort((one, other) => other.mask.area - one.mask.area);
  }
}
