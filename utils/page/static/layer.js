// Masks over the image: their colour as pixels of the image, their lines as sharp as the screen.

const MOST_PIXELS = 4_000_000;
/** Of every so many pixels of an image with more, one is painted. */
export function paintStep(width, height) {
  return Math.max(1, Math.ceil(Math.sqrt((width * height) / MOST_PIXELS)));
}

/** One sheet of masks: a canvas of the image's size inside the scene, and one of the screen's size over it. */
export class Layer {
  #items = [];
  #step = 1;

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
    this.#step = paintStep(width, height);
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
    for (const { mask, colour } of items) {
      const painted = mask.pixels(this.#step, word(colour));
      if (!painted) continue;
      if (items.length === 1) context.putImageData(painted.pixels, painted.x, painted.y);
      else drawOver(context, painted);
    }
    this.follow(place);
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
    for (const { mask, colour } of this.#items) {
      mask.path ??= mask.outline() ?? new Path2D();
      if (this.line.halo) {
        context.strokeStyle = this.line.halo;
        context.lineWidth = (this.line.width + 2) / scale;
        context.stroke(mask.path);
      }
      context.strokeStyle = this.line.colour ?? colour;
      context.lineWidth = this.line.width / scale;
      context.stroke(mask.path);
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

/** Put pixels over others, which putImageData would replace. */
function drawOver(context, { pixels, x, y }) {
  const sheet = new OffscreenCanvas(pixels.width, pixels.height);
  sheet.getContext("2d").putImageData(pixels, 0, 0);
  context.drawImage(sheet, x, y);
}

/** `#rrggbb` as the word that is R, G, B and A in memory. */
function word(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
