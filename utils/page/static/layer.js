// Masks over the image: their colour as pixels of the image, their lines as sharp as the screen.

/** Of an image with more pixels, only every second one of every second row is painted, or fewer. */
const MOST_PIXELS = 4_000_000;

/** One sheet of masks: a canvas of the image's size inside the scene, and one of the screen's size over it. */
export class Layer {
  #items = [];
  #step = 1;
  /** @type {WeakMap<object, {key: string, sheet: OffscreenCanvas, x: number, y: number}>} by mask */
  #sheets = new WeakMap();

  /**
   * @param {HTMLElement} scene holds what moves with the image
   * @param {HTMLElement} view holds what stays
   * @param {string} name of the canvases, as their id and with `-lines`
   * @param {{halo: string | null, width: number, colour: string | null}} line colour null: the mask's
   */
  constructor(scene, view, name, line) {
    this.fill = canvas(scene, name);
    this.lines = canvas(view, `${name}-lines`);
    this.line = line;
  }

  /** Begin with an image, of which nothing is marked. */
  reset(width, height) {
    this.#step = Math.max(1, Math.ceil(Math.sqrt((width * height) / MOST_PIXELS)));
    this.fill.width = Math.ceil(width / this.#step);
    this.fill.height = Math.ceil(height / this.#step);
    this.fill.style.width = `${this.fill.width * this.#step}px`;
    this.fill.style.height = `${this.fill.height * this.#step}px`;
    this.#items = [];
  }

  /**
   * Paint these masks and no others.
   * @param {{mask: import("./rle.js").Mask, colour: string}[]} items
   * @param {{scale: number, x: number, y: number}} place of the image on the screen
   */
  show(items, place) {
    const before = this.#items;
    if (items.length === before.length && items.every(({ mask, colour }, at) => mask === before[at].mask && colour === before[at].colour)) {
      return;
    }
    this.#items = items;
    const context = this.fill.getContext("2d");
    context.clearRect(0, 0, this.fill.width, this.fill.height);
    if (items.length === 1) {
      const painted = items[0].mask.pixels(this.#step, word(items[0].colour));
      if (painted) context.putImageData(painted.pixels, painted.x, painted.y);
    } else {
      for (const item of items) {
        const sheet = this.#sheetOf(item);
        if (sheet) context.drawImage(sheet.sheet, sheet.x, sheet.y);
      }
    }
    this.follow(place);
  }

  /** A mask's pixels as something that can be drawn over others, and again; null for an empty mask. */
  #sheetOf({ mask, colour }) {
    const key = `${this.#step} ${colour}`;
    const known = this.#sheets.get(mask);
    if (known?.key === key) return known;
    const painted = mask.pixels(this.#step, word(colour));
    if (!painted) return null;
    const sheet = new OffscreenCanvas(painted.pixels.width, painted.pixels.height);
    sheet.getContext("2d").putImageData(painted.pixels, 0, 0);
    const made = { key, sheet, x: painted.x, y: painted.y };
    this.#sheets.set(mask, made);
    return made;
  }

  /** Draw the lines where the image is now. */
  follow({ scale, x, y }) {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.lines;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.lines.width !== width || this.lines.height !== height) {
      this.lines.width = width;
      this.lines.height = height;
    }
    const context = this.lines.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    context.lineCap = "round";
    // Lines no finer than the screen.
    const step = Math.max(1, Math.floor(1 / (scale * ratio)));
    for (const { mask, colour } of this.#items) {
      const path = pathOf(mask, step);
      if (this.line.halo) {
        context.strokeStyle = this.line.halo;
        context.lineWidth = (this.line.width + 2) / scale;
        context.stroke(path);
      }
      context.strokeStyle = this.line.colour ?? colour;
      context.lineWidth = this.line.width / scale;
      context.stroke(path);
    }
  }
}

function canvas(parent, id) {
  const element = document.createElement("canvas");
  element.id = id;
  element.setAttribute("aria-hidden", "true");
  parent.append(element);
  return element;
}

/** @type {WeakMap<object, Map<number, Path2D>>} by mask and step */
const PATHS = new WeakMap();

/** The line around a mask, made once for each step. */
function pathOf(mask, step) {
  if (!PATHS.has(mask)) PATHS.set(mask, new Map());
  const paths = PATHS.get(mask);
  if (!paths.has(step)) paths.set(step, mask.outline(step) ?? new Path2D());
  return paths.get(step);
}

/** `#rrggbb` as the word that is R, G, B and A in memory. */
function word(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
