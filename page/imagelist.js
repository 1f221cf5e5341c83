// The list of the project's images.

import { canvasOf, create, createButton, element, icon } from "./dom.js";
import { counted } from "./notices.js";
import { total } from "./project.js";
import { Rows } from "./rows.js";

/** @typedef {import("./store.js").StoredImage} StoredImage */

const THUMBNAIL_PIXELS = 160;

/**
 * Return a small copy of the picture of an image.
 * @param {Blob} picture
 * @param {{width: number, height: number}} size of it
 * @returns {Promise<Blob>}
 */
export async function thumbnailOf(picture, { width, height }) {
  const scale = Math.min(1, THUMBNAIL_PIXELS / Math.max(width, height));
  const size = { resizeWidth: Math.max(1, Math.round(width * scale)), resizeHeight: Math.max(1, Math.round(height * scale)) };
  const bitmap = await createImageBitmap(picture, { ...size, resizeQuality: "medium" });
  const canvas = canvasOf(bitmap.width, bitmap.height, (context) => context.drawImage(bitmap, 0, 0));
  bitmap.close();
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.8 });
}

/** Offer classes in the filter of the list; a class that is gone is no longer the filter. */
export function showFilterClasses(classes) {
  const filter = element("image-filter"), { value } = filter;
  element("image-classes").replaceChildren(...classes.map(({ id, name }) => new Option(name, String(id))));
  filter.value = value;
  if (filter.value === value) return;
  filter.value = "all";
  filter.dispatchEvent(new Event("input"));
}

/** What the filter of the list shows, besides images with an object of a class. */
const FILTERS = {
  all: () => true,
  unlabelled: ({ counts }) => !total(counts),
  reviewed: ({ reviewed }) => reviewed,
  unreviewed: ({ reviewed }) => !reviewed,
};

export class ImageList {
  #rows;
  /** @type {StoredImage[]} */
  #images = [];
  /** @type {number | null} */
  #openId = null;
  /** @type {StoredImage[]} the images that the filter and the search show, and the open one */
  listed = [];

  /** @param {{open: (image: StoredImage) => void, remove: (image: StoredImage) => void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.#rows = new Rows(element("image-list"), (image) => this.#row(image));
    new ResizeObserver(() => this.#reveal()).observe(element("image-list"));
    for (const id of ["image-search", "image-filter"]) element(id).addEventListener("input", () => this.show(this.#images, this.#openId));
  }

  /**
   * @param {StoredImage[]} images
   * @param {number | null} openId
   */
  show(images, openId) {
    [this.#images, this.#openId] = [images, openId];
    element("images").hidden = !images.length;
    element("image-search-row").hidden = images.length < 2;
    const text = element("image-search").value.trim().toLowerCase(), filter = element("image-filter").value;
    const isShown = FILTERS[filter] ?? (({ counts }) => counts[filter]);
    // The open image stays: it may just have got its first object.
    const listed = images.filter((image) => image.id === openId || (image.name.toLowerCase().includes(text) && isShown(image)));
    this.listed = listed;
    this.#rows.show(listed, (row, image) => {
      row.open.toggleAttribute("aria-current", image.id === openId);
      this.showState(image);
    });
    const at = listed.findIndex(({ id }) => id === openId), hidden = images.length - listed.length;
    element("image-position").textContent = at < 0 ? "" : `${at + 1} of ${listed.length}`;
    element("images-hidden").textContent = hidden ? `${counted(hidden, "image")} hidden` : "";
    element("previous-image").toggleAttribute("disabled", at <= 0);
    element("next-image").toggleAttribute("disabled", at < 0 || at === listed.length - 1);
    element("reviewed").toggleAttribute("disabled", at < 0);
    this.#reveal();
  }

  /** Scroll to the open image. */
  #reveal() {
    this.#rows.get(this.#openId)?.open.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Return the image after another one in the list, if there is one. @param {StoredImage} image */
  after(image) {
    return this.listed[this.listed.indexOf(image) + 1];
  }

  /** Show the number of objects of an image, and whether it was reviewed. @param {StoredImage} image */
  showState({ id, counts, reviewed }) {
    const { item, badge, words } = this.#rows.get(id), count = total(counts);
    item.classList.toggle("reviewed", reviewed === true);
    badge.textContent = count ? String(count) : "";
    words.textContent = `, ${counted(count, "object")}${reviewed ? ", reviewed" : ""}`;
    if (id === this.#openId) element("reviewed").ariaPressed = String(reviewed === true);
  }

  /** Show the thumbnail of an image that is drawn anew. @param {StoredImage} image */
  showThumbnail({ id, thumbnail }) {
    this.#rows.get(id).picture.src = URL.createObjectURL(thumbnail);
  }

  #row(image) {
    const { name, thumbnail } = image;
    const picture = create("img", { alt: "", loading: "lazy", src: URL.createObjectURL(thumbnail) });
    picture.onload = () => URL.revokeObjectURL(picture.src);
    const file = create("span", { className: "file-name", textContent: name.split("/").at(-1) });
    const badge = create("b", { className: "count", ariaHidden: "true" }), words = create("span", { className: "hidden" });
    const mark = create("span", { className: "mark", ...icon("check") });
    const open = create("button", { type: "button", title: name, onclick: () => this.actions.open(image) }, picture, mark, file, badge, words);
    const texts = { title: "Remove from the project", ariaLabel: `Remove ${name} from the project` };
    const remove = createButton("icon small remove", () => this.actions.remove(image), { ...texts, ...icon("clear") });
    return { item: create("li", {}, open, remove), open, picture, badge, words };
  }
}
