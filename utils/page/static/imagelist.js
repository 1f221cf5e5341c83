// The list of the project's images.

import { element } from "./dom.js";
import { total } from "./project.js";

/** @typedef {import("./store.js").StoredImage} StoredImage */

const THUMBNAIL_PIXELS = 160;

/**
 * Return a small copy of an image.
 * @param {{file: Blob, width: number, height: number}} image
 * @returns {Promise<Blob>}
 */
export async function thumbnailOf({ file, width, height }) {
  const scale = Math.min(1, THUMBNAIL_PIXELS / Math.max(width, height));
  const size = { resizeWidth: Math.max(1, Math.round(width * scale)), resizeHeight: Math.max(1, Math.round(height * scale)) };
  const bitmap = await createImageBitmap(file, { ...size, resizeQuality: "medium" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.8 });
}

export class ImageList {
  /** @type {Map<number, {item: HTMLLIElement, open: HTMLButtonElement, count: HTMLElement}>} */
  #rows = new Map();

  /** @param {{open: (image: StoredImage) => void, remove: (image: StoredImage) => void}} actions */
  constructor(actions) {
    this.actions = actions;
    this.list = element("image-list");
  }

  /**
   * Show the images; rows are reused.
   * @param {StoredImage[]} images
   * @param {number | null} openId
   */
  show(images, openId) {
    element("images").hidden = !images.length;
    const ids = new Set(images.map(({ id }) => id));
    for (const [id, { item }] of this.#rows) {
      if (ids.has(id)) continue;
      URL.revokeObjectURL(item.querySelector("img").src);
      item.remove();
      this.#rows.delete(id);
    }
    for (const image of images) {
      const row = this.#rows.get(image.id) ?? this.#addRow(image);
      row.open.toggleAttribute("aria-current", image.id === openId);
      this.showCount(image);
    }
    const at = images.findIndex(({ id }) => id === openId);
    element("image-position").textContent = at < 0 ? "" : `${at + 1} of ${images.length}`;
    element("previous-image").toggleAttribute("disabled", at <= 0);
    element("next-image").toggleAttribute("disabled", at < 0 || at === images.length - 1);
    this.#rows.get(openId)?.item.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** Show the number of objects of an image. */
  showCount({ id, name, counts }) {
    const { open, count: badge } = this.#rows.get(id), count = total(counts);
    badge.textContent = count ? String(count) : "";
    open.setAttribute("aria-label", `Open ${name}, ${count} ${count === 1 ? "object" : "objects"}`);
  }

  #addRow(image) {
    const item = document.createElement("li");
    const open = document.createElement("button");
    open.type = "button";
    open.title = image.name;
    const picture = new Image();
    picture.alt = "";
    picture.loading = "lazy";
    picture.src = URL.createObjectURL(image.thumbnail);
    const name = document.createElement("span");
    name.className = "file-name";
    name.textContent = image.name.split("/").at(-1);
    const count = document.createElement("b");
    count.className = "count";
    open.append(picture, name, count);
    open.addEventListener("click", () => this.actions.open(image));
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "icon small remove";
    remove.title = "Remove from the project";
    remove.setAttribute("aria-label", `Remove ${image.name} from the project`);
    remove.innerHTML = '<svg aria-hidden="true"><use href="#i-clear"/></svg>';
    remove.addEventListener("click", () => this.actions.remove(image));
    item.append(open, remove);
    this.list.append(item);
    const row = { item, open, count };
    this.#rows.set(image.id, row);
    return row;
  }
}
