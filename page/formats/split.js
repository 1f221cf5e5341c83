// The split of a data set into images for training and images for validation.

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
  const ranked = images.map((image) => ({ image, rank: hash(`${seed}/${image.name}`) })).sort((one, other) => one.rank - other.rank);
  const count = Math.min(Math.max(Math.round(share * images.length), 1), images.length - 1);
  ranked.forEach(({ image }, index) => (image.subset = index < count ? "val" : "train"));
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
