// DOM access.

/**
 * @param {string} id
 * @returns {HTMLElement & Record<string, any>} with the properties of its kind
 */
export const element = (id) => document.getElementById(id);

/** Return the radio button with a name and a value, by default the checked one. */
export function radio(name, value) {
  const state = value === undefined ? ":checked" : `[value="${value}"]`;
  return /** @type {HTMLInputElement} */ (document.querySelector(`input[name="${name}"]${state}`));
}

/**
 * Return a new element.
 * @param {string} tag
 * @param {Record<string, any>} properties
 * @param {...(Node | string)} children
 * @returns {any}
 */
export function create(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/**
 * Return a new button.
 * @param {string} className
 * @param {((event: MouseEvent) => void) | null} onclick
 * @param {Record<string, any>} properties further ones
 */
export function createButton(className, onclick, properties = {}) {
  return create("button", { type: "button", className, onclick, ...properties });
}

/** Return the properties of a button that shows one of the page's icons. */
export function icon(name) {
  return { innerHTML: `<svg aria-hidden="true"><use href="#i-${name}"/></svg>` };
}

/** Set the position of an element in image pixels, for its style sheet. */
export function setPosition({ style }, { x, y }) {
  style.setProperty("--x", String(x));
  style.setProperty("--y", String(y));
}

/**
 * Return a canvas.
 * @param {number} width
 * @param {number} height
 * @param {(context: OffscreenCanvasRenderingContext2D) => void} draw
 */
export function canvasOf(width, height, draw) {
  const canvas = new OffscreenCanvas(width, height);
  draw(canvas.getContext("2d"));
  return canvas;
}
