// How far two versions of the objects on an image agree.

import { overlap } from "./regions.js";

/**
 * @typedef {object} Labelled an object of one version
 * @property {import("./rle.js").Mask} mask
 * @property {string} category name of its class
 * @property {string} name
 * @property {string} [by] name of the annotator
 * @property {string[]} [review] why the mask may be wrong
 * @property {number} [id] of the object in its project
 *
 * @typedef {object} Comparison an object of both versions, or of one
 * @property {Labelled | null} mine null: only there
 * @property {Labelled | null} theirs null: only here
 * @property {number} iou 0 for an object of one version
 * @property {Choice} choice
 *
 * @typedef {"mine" | "theirs" | "both"} Choice which objects the merged image has
 */

/** Masks that overlap less are those of two objects. */
const MIN_PAIR_IOU = 0.5;
/** A pair of one class needs no decision from here on. */
const MIN_SAME_IOU = 0.9;

/**
 * Pair the objects of two versions, the most similar masks first; of equal ones, those of one class.
 * @param {Labelled[]} mine
 * @param {Labelled[]} theirs masks of the same size
 * @returns {Comparison[]} in the order of `mine`, then what is only in `theirs`; the choices lose no object
 */
export function compared(mine, theirs) {
  const candidates = [];
  for (const one of mine) {
    for (const other of theirs) {
      const iou = overlap(one.mask, other.mask);
      if (iou >= MIN_PAIR_IOU) candidates.push({ one, other, iou, isOneClass: one.category === other.category });
    }
  }
  candidates.sort((a, b) => b.iou - a.iou || Number(b.isOneClass) - Number(a.isOneClass));
  /** @type {Map<Labelled, {partner: Labelled, iou: number}>} */
  const pairs = new Map();
  for (const { one, other, iou } of candidates) {
    if (pairs.has(one) || pairs.has(other)) continue;
    pairs.set(one, { partner: other, iou });
    pairs.set(other, { partner: one, iou });
  }
  /** @type {Comparison[]} */
  const here = mine.map((one) => {
    const pair = pairs.get(one);
    return { mine: one, theirs: pair?.partner ?? null, iou: pair?.iou ?? 0, choice: "mine" };
  });
  const others = theirs.filter((other) => !pairs.has(other));
  /** @type {Comparison[]} */
  const there = others.map((other) => ({ mine: null, theirs: other, iou: 0, choice: "theirs" }));
  return [...here, ...there];
}

function isOneClass({ mine, theirs }) {
  return mine?.category === theirs?.category;
}

/** Return whether a person has to decide about an object. @param {Comparison} comparison */
export function isDifference(comparison) {
  return !isOneClass(comparison) || comparison.iou < MIN_SAME_IOU;
}

/** Return what differs, in words; nothing if the versions agree. @param {Comparison} comparison */
export function differenceOf(comparison) {
  const { mine, theirs, iou } = comparison;
  if (!theirs) return "only here";
  if (!mine) return "only there";
  const parts = [];
  if (!isOneClass(comparison)) parts.push("other class");
  if (iou < MIN_SAME_IOU) parts.push("other outline");
  return parts.join(", ");
}

/**
 * Return the agreement over objects: the mean of their IoU, which counts 0 for an object without a partner, or with one of
 * another class.
 * @param {Comparison[]} comparisons
 * @returns {number | null} null: there are no objects
 */
export function agreementOf(comparisons) {
  if (!comparisons.length) return null;
  const counted = comparisons.filter(isOneClass);
  return counted.reduce((sum, { iou }) => sum + iou, 0) / comparisons.length;
}

/** Return the mean IoU of pairs, whatever their classes, with the number of pairs. @param {Comparison[]} comparisons */
export function pairsOf(comparisons) {
  const pairs = comparisons.filter(({ mine, theirs }) => mine && theirs);
  const sum = pairs.reduce((total, { iou }) => total + iou, 0);
  return { count: pairs.length, meanIou: pairs.length ? sum / pairs.length : null };
}

/** Return an object in words. @param {Labelled} object */
export function wordsOf({ name, by }) {
  return by ? `${name} by ${by}` : name;
}

/**
 * Return a table with a row for each object, as CSV. The column of a version that lacks the object is empty.
 * @param {{name: string, comparisons: Comparison[]}[]} images
 */
export function agreementTable(images) {
  const rows = [["image", "class", "iou", "mine", "theirs"]];
  for (const { name, comparisons } of images) {
    for (const { mine, theirs, iou } of comparisons) {
      const classes = [mine?.category, theirs?.category].filter((category) => category !== undefined);
      const sides = [mine, theirs].map((side) => (side ? wordsOf(side) : ""));
      rows.push([name, [...new Set(classes)].join(" / "), iou.toFixed(4), ...sides]);
    }
  }
  return rows.map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}

/** Return a field of CSV. Spreadsheets would take some names for formulas: an apostrophe makes them text. */
function quoted(text) {
  if (/^[=+@-]/.test(text)) return quoted(`'${text}`);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
