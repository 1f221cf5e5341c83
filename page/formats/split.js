// The split of a data set into images for training and images for validation, and of a project into parts.

import { crc32 } from "./bytes.js";
import { FormatError, imagePaths } from "./project.js";

/** @typedef {{share: number, seed: number}} Split share: of the images, from 0 to 1, that are for validation; 0: no split */

/**
 * Set the `subset` of each image to train or val.
 *
 * The images are ordered by a hash of the seed and their name, and the first ones are for validation: the share, to the
 * nearest whole image, but at least one image on each side. Equal seeds give equal splits in every format, and each image
 * that is added or removed moves at most one other.
 * @param {import("./project.js").AnnotatedImage[]} images
 * @param {Split} split
 * @throws {FormatError} there are too few images
 */
export function splitImages(images, { share, seed }) {
  if (!share) return;
  if (images.length < 2) throw new FormatError("A split for validation needs at least two images: set its share to 0 %.");
  const count = Math.min(Math.max(Math.round(share * images.length), 1), images.length - 1);
  ranked(images, seed).forEach((image, index) => (image.subset = index < count ? "val" : "train"));
}

/**
 * Return the images of each part of a project that several people share. The shared images are in all parts, and every other
 * image is in one. Equal seeds give equal parts.
 * @template {{name: string}} T
 * @param {T[]} images
 * @param {{count: number, shared: number, seed: number}} parts
 * @returns {T[][]} in the order of `images`
 * @throws {FormatError} a part would have no image of its own; it needs none if all images are shared
 */
export function partsOf(images, { count, shared, seed }) {
  const own = images.length - shared;
  if (own < 0) throw new FormatError(`The project has ${images.length} images: ${shared} cannot be in every part.`);
  if (own > 0 && own < count) {
    throw new FormatError(`There are ${own} images to divide, too few for ${count} parts: each needs one of its own.`);
  }
  const ranks = new Map(ranked(images, seed).map((image, index) => [image, index - shared]));
  const isIn = (image, part) => ranks.get(image) < 0 || ranks.get(image) % count === part;
  return Array.from({ length: count }, (_, part) => images.filter((image) => isIn(image, part)));
}

/**
 * Return images in the order of a hash of the seed and their names.
 * @template {{name: string}} T
 * @param {T[]} images
 * @param {number} seed
 */
function ranked(images, seed) {
  const ranks = images.map((image) => ({ image, rank: hash(`${seed}/${image.name}`) }));
  return ranks.sort((one, other) => one.rank - other.rank).map(({ image }) => image);
}

/** Return a whole number below 2 ** 32 that looks random: the CRC, mixed as MurmurHash3 does at its end. */
function hash(text) {
  let value = crc32(new TextEncoder().encode(text));
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/**
 * Return the folder of an image's subset, for formats that have one.
 * @param {import("./project.js").AnnotatedImage} image
 */
export function subsetFolder({ subset }) {
  return subset ? `${subset}/` : "";
}

/** Return the files that list the images of each subset, as in Pascal VOC's folder `ImageSets`; none without a split. */
export function imageSets(project, task) {
  const sets = Map.groupBy(imagePaths(project), ({ image }) => image.subset);
  return [...sets].filter(([subset]) => subset).map(([subset, listed]) => (
    { path: `ImageSets/${task}/${subset}.txt`, content: listed.map(({ path }) => `${path}\n`).join("") }
  ));
}
