// The view of a session: masks and marks on the image, rows in the panel.

import { showCandidates } from "./candidates.js";
import { element, radio } from "./dom.js";
import { listed, showFound, stacked } from "./found.js";
import { isEmpty, isPrompted, isWholeBox } from "./objects.js";
import { ObjectList } from "./panel.js";
import { closeQuestion } from "./question.js";
import { Stage } from "./stage.js";

/** @typedef {Omit<ConstructorParameters<typeof ObjectList>[0], "highlight">} Actions actions of the rows of the panel */

export class Screen {
  /** @type {import("./session.js").Session} */
  #session = null;
  /** Id of the object or row under the pointer. */
  #highlighted = null;
  #removeMark;
  /** @type {(session: import("./session.js").Session) => void} called after the panel was updated */
  onShow = () => {};

  /** @param {(classId: number) => import("./project.js").Category} categoryOf */
  constructor(categoryOf) {
    this.categoryOf = categoryOf;
    this.stage = new Stage(() => {
      element("zoom-fit").textContent = `${Math.round(100 * this.stage.transform.scale)} %`;
      this.stage.view.dispatchEvent(new Event("zoom"));
    });
  }

  /** @param {Actions & {removeMark: (index: number | null) => void}} actions */
  connect(actions) {
    this.#removeMark = actions.removeMark;
    this.list = new ObjectList({ ...actions, highlight: (id) => this.highlight(id) });
  }

  /** Show the welcome in place of a session. */
  close() {
    this.#session = null;
    element("welcome").hidden = false;
    element("tools").hidden = element("panel").hidden = this.stage.view.hidden = true;
  }

  /** Switch to a new session. */
  async use(session) {
    this.#session = session;
    this.#highlighted = null;
    element("welcome").hidden = true;
    element("tools").hidden = element("panel").hidden = false;
    this.stage.view.setAttribute("aria-busy", "false");
    this.stage.view.setAttribute("aria-label", `${session.name}, ${session.width} by ${session.height} pixels`);
    const loaded = this.stage.show(session.url, session.width, session.height);
    this.show();
    this.stage.view.focus({ preventScroll: true, focusVisible: false });
    await loaded;
  }

  /** Return the colour that the view has for an object: of its class, or its own one, which proposals always have. */
  colourOf(object) {
    return element("by-class").checked && !object.proposal ? this.categoryOf(object.classId).color : object.colour;
  }

  /** Bring an object to the front together with the active one; null resets this. */
  highlight(id) {
    // The pointer also leaves a row when the image is closed.
    if (id === this.#highlighted || !this.#session) return;
    this.#highlighted = id;
    this.paint();
  }

  /** Update everything. */
  show() {
    closeQuestion();
    this.paint();
    const { points, box, part } = this.#session.objects.active;
    this.stage.showMarks(points, box, this.#removeMark);
    this.stage.showPart(part);
    this.showPanel();
  }

  /** Paint all masks; unchanged layers are skipped. */
  paint() {
    if (!this.#session) return; // it was closed during a stroke
    const activeId = this.#session.objects.active.id;
    this.stage.paint(this.stage.others, this.#items((id) => id !== activeId));
    this.stage.paint(this.stage.active, this.#items((id) => id === activeId || id === this.#highlighted));
  }

  /** Update the panel and the state of all controls. */
  showPanel() {
    const { masks, objects, image } = this.#session;
    const active = objects.active;
    const maskOf = (object) => masks.get(object);
    this.list.show(listed(objects), active.id, maskOf, this);
    this.list.reveal(active.id);
    showFound(objects);
    element("tighten").hidden = !objects.list.some(isWholeBox);
    this.stage.view.style.setProperty("--colour", this.colourOf(active));
    radio("candidate", active.candidate).checked = true;
    element("clip-row").hidden = !active.box;
    element("clip").checked = active.clip;
    showCandidates(this.#session, this.stage.picture, this.colourOf(active));
    const hasPrompts = isPrompted(active) && !active.found;
    const enabled = {
      "undo": objects.canUndo,
      "redo": objects.canRedo,
      "clear": !isEmpty(active),
      "candidates": hasPrompts,
      "save-mask": maskOf(active) !== null && !active.proposal,
      "save-cutout": maskOf(active) !== null && !active.proposal,
      "save-coco": objects.accepted.some((object) => maskOf(object)?.area),
      "copy-python": hasPrompts && !image.original,
      "copy-curl": hasPrompts && !image.original,
    };
    for (const [id, isEnabled] of Object.entries(enabled)) element(id).toggleAttribute("disabled", !isEnabled);
    this.onShow(this.#session);
  }

  #items(isWanted) {
    const { masks, objects } = this.#session;
    return stacked(objects)
      .filter((object) => isWanted(object.id) && !object.hidden)
      .map((object) => ({ mask: masks.displayed(object), colour: this.colourOf(object), dashed: object.proposal === true }))
      .filter(({ mask }) => mask);
  }
}
