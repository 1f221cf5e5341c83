// A session as it is shown: masks and marks on the image, rows in the panel.

import { element } from "./notices.js";
import { isMarked } from "./objects.js";
import { ObjectList } from "./panel.js";
import { Stage } from "./stage.js";

export class Screen {
  /** @type {import("./session.js").Session} */
  #session = null;
  /** The object whose row the pointer is on, which is shown in front. */
  #pointed = null;
  #removeMark;

  /** @param {Record<string, Function>} acts on rows: select, rename, hide, remove; and removeMark */
  constructor(acts) {
    this.stage = new Stage(() => {
      element("zoom-fit").textContent = `${Math.round(100 * this.stage.place.scale)} %`;
    });
    this.#removeMark = acts.removeMark;
    const point = (id) => {
      this.#pointed = id;
      this.paint();
    };
    this.list = new ObjectList({ ...acts, point });
  }

  /** Show a session from now on. */
  async use(session) {
    this.#session = session;
    this.#pointed = null;
    element("welcome").hidden = true;
    element("tools").hidden = element("panel").hidden = false;
    await this.stage.show(session.url, session.width, session.height);
    this.stage.view.setAttribute("aria-label", `${session.name}, ${session.width} by ${session.height} pixels`);
    this.show();
  }

  /** Show all of it. */
  show() {
    this.paint();
    const { points, box } = this.#session.objects.active;
    this.stage.showMarks(points, box, this.#removeMark);
    this.showPanel();
  }

  /** Paint all masks. */
  paint() {
    const front = this.#front();
    this.stage.paint(this.stage.others, this.#items((id) => id !== front));
    this.paintFront();
  }

  /** Paint the mask in front, alone. */
  paintFront() {
    const front = this.#front();
    this.stage.paint(this.stage.active, this.#items((id) => id === front));
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
      "clear": active.points.length > 0 || isMarked(active),
      "candidates": clicked,
      "save-mask": maskOf(active) !== null,
      "save-cutout": maskOf(active) !== null,
      "save-coco": objects.list.some((object) => maskOf(object)?.area),
      "copy-python": clicked,
    };
    for (const [id, is] of Object.entries(possible)) element(id).disabled = !is;
  }

  #front() {
    return this.#pointed ?? this.#session.objects.active.id;
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
