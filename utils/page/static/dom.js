// DOM access.

/**
 * @typedef {object} Elements elements with more than the properties of every HTMLElement, by id
 * @property {HTMLFieldSetElement} candidates
 * @property {HTMLInputElement} annotations
 * @property {HTMLInputElement} clip
 * @property {HTMLInputElement} detail
 * @property {HTMLButtonElement} everything
 * @property {HTMLDialogElement} export
 * @property {HTMLSelectElement} export-format
 * @property {HTMLInputElement} export-images
 * @property {HTMLInputElement} file
 * @property {HTMLInputElement} folder
 * @property {HTMLInputElement} found-score
 * @property {HTMLInputElement} found-size
 * @property {HTMLSelectElement} found-sort
 * @property {HTMLSelectElement} grid
 * @property {HTMLDialogElement} help
 * @property {HTMLInputElement} hover
 * @property {HTMLInputElement} key
 * @property {HTMLFormElement} key-form
 * @property {HTMLInputElement} opacity
 * @property {HTMLImageElement} picture
 * @property {HTMLInputElement} radius
 * @property {HTMLInputElement} smooth
 * @property {HTMLInputElement} threshold
 */

/**
 * @template {string} Id
 * @param {Id} id
 * @returns {Id extends keyof Elements ? Elements[Id] : HTMLElement}
 */
export const element = (id) => /** @type {any} */ (document.getElementById(id));

/** Return the radio button with a name and a value, by default the checked one. */
export function radio(name, value) {
  const state = value === undefined ? ":checked" : `[value="${value}"]`;
  return /** @type {HTMLInputElement} */ (document.querySelector(`input[name="${name}"]${state}`));
}
