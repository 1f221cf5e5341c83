// The lines of YOLO labels. A line has a class number and a box or a polygon, and perhaps a score.
// In other data sets, keypoints or a track id follow, and nothing but the numbers tells. Such lines
// are refused: as polygons they would be wrong.

import { numberOf } from "./numbers.js";

/**
 * @typedef {{count: number, size: number}} Keypoints of each pose; size: numbers of each, x, y, and
 *   with 3 a visibility
 * @typedef {object} Label
 * @property {number} category class number
 * @property {number[] | null} box x0, y0, x1, y1 in parts of the image
 * @property {number[] | null} polygon x0, y0, x1, y1, ... in parts of the image, of a label without
 *   a box
 * @property {number | null} score
 * @property {string[]} notes what was changed
 * @typedef {{category: number, values: number[], hasPoint: boolean}} Line hasPoint: whether the
 *   last number has one
 */

export const MAX_CLASS_NUMBER = 65_535;
/** Largest number of a box, which may exceed the image. */
const MAX_BOX_PART = 2;
/** How far the points of a polygon may lie outside of the image, in parts of it. */
const MAX_OUTSIDE = 0.5;
/** How far a box of a pose or track may lie outside, which was rounded or cut to the image. */
const MAX_ROUNDING = 0.01;
/** Most points of lines that may be poses: the largest known data sets have 133 keypoints. */
const MAX_KEYPOINTS = 210;
const BOX_ONLY = "a label is only a box: its mask is the whole box";
const NO_LABEL = "expected a class number and coordinates in parts of the image, from 0 to 1";
const POSE = "it is a pose, with keypoints after its box: only boxes and polygons are read";
const TRACK = "it ends with the id of a track, which is not read: save the labels without it";
const ANGLE = "its fifth number is not a score from 0 to 1: boxes with an angle are not read";

/** A line that is no label; the message says why. */
class LineError extends Error {}

/**
 * Read the lines of a label file. Empty lines are skipped.
 * @param {string} text
 * @param {Keypoints | null} keypoints of the data set; null: not known to have poses
 * @returns {{labels: Label[], problems: {line: number, reason: string}[]}} problems: lines that are
 *   no labels
 */
export function readLines(text, keypoints) {
  /** @type {{line: number, parsed: Line}[]} */
  const lines = [];
  const labels = [], problems = [];
  const attempt = (line, action) => {
    try {
      action();
    } catch (error) {
      if (!(error instanceof LineError)) throw error;
      problems.push({ line, reason: error.message });
    }
  };
  text.split(/\r\n|\r|\n/).forEach((content, index) => {
    if (content.trim()) {
      attempt(index + 1, () => lines.push({ line: index + 1, parsed: parseLine(content) }));
    }
  });
  const evidence = evidenceOf(lines.map(({ parsed }) => parsed), keypoints);
  for (const { line, parsed } of lines) attempt(line, () => labels.push(labelOf(parsed, evidence)));
  return { labels, problems };
}

/** @returns {Line} */
function parseLine(content) {
  const words = content.trim().split(/\s+/);
  const [category, ...values] = words.map(numberOf);
  const isClass = Number.isInteger(category) && category >= 0 && category <= MAX_CLASS_NUMBER;
  if (!isClass || values.length < 4 || values.includes(null)) throw new LineError(NO_LABEL);
  return { category, values, hasPoint: /[.e]/i.test(words.at(-1)) };
}

/**
 * What the lines of one file tell about each other: a line that can only be a pose shows what
 * others of its length are.
 * @typedef {object} Evidence
 * @property {Keypoints | null} keypoints
 * @property {Map<number, number>} poseLengths by the numbers after the class, of lines that can
 *   only be poses: how many
 *   of them are box and keypoints
 * @property {Set<string>} withIds kinds of lines that can only end with a track id
 */

/** @returns {Evidence} */
function evidenceOf(lines, keypoints) {
  const values = lines.map((line) => line.values);
  const poseLengths = new Map();
  for (const numbers of values) {
    const poseLength = certainPoseLength(numbers);
    if (poseLength) poseLengths.set(numbers.length, poseLength);
  }
  return {
    keypoints,
    poseLengths,
    withIds: new Set(values.filter((numbers) => isCertainId(numbers.at(-1))).map(kindOfLength)),
  };
}

/**
 * Return the kind of a line by its length: a box with one number more, or with two, or a polygon
 * with or without one.
 */
function kindOfLength({ length }) {
  if (length <= 6) return `box and ${length - 4}`;
  return length % 2 ? "polygon and 1" : "polygon";
}

/**
 * @param {Line} line
 * @param {Evidence} evidence of all lines
 * @returns {Label}
 */
function labelOf({ category, values, hasPoint }, evidence) {
  if (isPose(values, evidence)) throw new LineError(POSE);
  if (endsWithTrackId(values, hasPoint, evidence)) throw new LineError(TRACK);
  return values.length > 5 ? polygonLabel(category, values) : boxLabel(category, values);
}

function boxLabel(category, values) {
  const [x, y, width, height] = values, score = values[4] ?? null;
  if (![x, y, width, height].every((value) => Math.abs(value) <= MAX_BOX_PART)) {
    throw new LineError(NO_LABEL);
  }
  if (score !== null && !isScore(score)) throw new LineError(ANGLE);
  const notes = [BOX_ONLY];
  if (width < 0 || height < 0) {
    notes.push("a box has a negative width or height: its corners were sorted");
  }
  const [halfWidth, halfHeight] = [Math.abs(width) / 2, Math.abs(height) / 2];
  const box = [x - halfWidth, y - halfHeight, x + halfWidth, y + halfHeight];
  return { category, box, polygon: null, score, notes };
}

function polygonLabel(category, values) {
  // As ultralytics and supervision read it: an odd number at the end is a score.
  const hasScore = values.length % 2 === 1;
  const polygon = hasScore ? values.slice(0, -1) : values, score = hasScore ? values.at(-1) : null;
  if (!polygon.every(isPart) || (hasScore && !isScore(score))) throw new LineError(NO_LABEL);
  return { category, box: null, polygon, score, notes: [] };
}

function isScore(value) {
  return value >= 0 && value <= 1;
}

function isPart(value) {
  return value >= -MAX_OUTSIDE && value <= 1 + MAX_OUTSIDE;
}

/** Return whether a value is a whole number that no score and no coordinate is. */
function isCertainId(value) {
  return Number.isInteger(value) && value > 1;
}

/** Return whether numbers begin with a box within the image. */
function startsWithBox([x, y, width, height]) {
  const isInside = (centre, size) =>
    size > 0 && centre - size / 2 >= -MAX_ROUNDING && centre + size / 2 <= 1 + MAX_ROUNDING;
  return isInside(x, width) && isInside(y, height);
}

/**
 * Return whether the last number is a track id, and not a coordinate or a score.
 *
 * An id of 0 or 1 may be both. Of six numbers, it is an id if they begin with a box within the
 * image: there are hardly any triangles whose first two points look like one. Otherwise other lines
 * of the file must tell. Programs write ids without a decimal point.
 */
function endsWithTrackId(values, hasPoint, { withIds }) {
  const last = values.at(-1);
  // The number before the id is a score or a coordinate: if it is not, all are pixels.
  if (values.length === 4 || !isPart(values.at(-2))) return false;
  if (isCertainId(last)) return true;
  if (hasPoint || (last !== 0 && last !== 1)) return false;
  return withIds.has(kindOfLength(values)) ||
    (values.length === 6 && startsWithBox(values) && isScore(values[4]));
}

/**
 * Return whether numbers are a box and keypoints, perhaps with a score and a track id, and not a
 * polygon.
 */
function isPose(values, { keypoints, poseLengths }) {
  if (keypoints) {
    const after = values.length - 4 - keypoints.count * keypoints.size;
    return after >= 0 && after <= 2;
  }
  if (!startsWithBox(values)) return false;
  const length = poseLengths.get(values.length);
  if (length && hasVisibilities(values.slice(0, length))) return true;
  return isVisiblePose(values) || isCrossedPose(values);
}

/** Return whether numbers are a box and keypoints in it, each with a visibility. */
function isVisiblePose(values) {
  return [0, 1, 2].some((after) => {
    const pose = values.slice(0, values.length - after), keypoints = keypointsOf(pose, 3);
    // One keypoint and a score are as many numbers as the corners of a square.
    const isEnough = !after || keypoints.length > 1;
    return isEnough && hasVisibilities(pose) && keypointsFit(keypoints, values);
  });
}

/**
 * Return whether numbers are a box and keypoints in it, which as a polygon would cross itself
 * often.
 *
 * Polygons hardly do, but keypoints of the left and the right side take turns. It tells poses
 * without visibilities.
 */
function isCrossedPose(values) {
  const polygon = values.slice(0, values.length - (values.length % 2));
  if (polygon.length / 2 > MAX_KEYPOINTS) return false;
  return [2, 3].some((size) =>
    [0, 1, 2].some((after) => {
      const length = values.length - after, count = (length - 4) / size;
      if (!Number.isInteger(count) || count < 2) return false;
      const isFitting = keypointsFit(keypointsOf(values.slice(0, length), size), values);
      return isFitting && crossingsOf(polygon) >= count / 3;
    })
  );
}

/** Return how often the sides of a polygon cross each other. */
function crossingsOf(polygon) {
  const count = polygon.length / 2;
  const point = (index) => [polygon[2 * (index % count)], polygon[2 * (index % count) + 1]];
  let crossings = 0;
  for (let i = 0; i < count; i++) {
    for (let j = i + 2; j < count; j++) {
      const isNext = i === 0 && j === count - 1;
      if (!isNext && cross(point(i), point(i + 1), point(j), point(j + 1))) crossings++;
    }
  }
  return crossings;
}

/** Return whether two lines cross, and do not only touch. */
function cross(a, b, c, d) {
  const side = ([ax, ay], [bx, by], [x, y]) =>
    Math.sign((bx - ax) * (y - ay) - (by - ay) * (x - ax));
  return side(a, b, c) * side(a, b, d) < 0 && side(c, d, a) * side(c, d, b) < 0;
}

/**
 * Return how many numbers can only be a box and keypoints: a visibility of 2 is no coordinate of a
 * polygon.
 */
function certainPoseLength(values) {
  if (!startsWithBox(values)) return 0;
  const lengths = [values.length, values.length - 1, values.length - 2];
  return lengths.find((length) => {
    const pose = values.slice(0, length), after = values.slice(length);
    const isFollowed = !after.length || isScore(after[0]);
    return isFollowed && hasVisibilities(pose) &&
      keypointsOf(pose, 3).some(([, , visibility]) => visibility === 2);
  }) ?? 0;
}

/** Return whether triples after a box each end with a visibility: 0, 1 or 2. */
function hasVisibilities(values) {
  if (values.length < 7 || (values.length - 4) % 3) return false;
  return keypointsOf(values, 3).every(([, , visibility]) => [0, 1, 2].includes(visibility));
}

/**
 * Return whether all keypoints lie in a box, but for those that are not labelled, which are 0, 0.
 */
function keypointsFit(keypoints, [x, y, width, height]) {
  return keypoints.every(([px, py, visibility]) => {
    const isUnlabelled = px === 0 && py === 0 && !visibility;
    const isInBox = Math.abs(px - x) <= width / 2 + MAX_ROUNDING &&
      Math.abs(py - y) <= height / 2 + MAX_ROUNDING;
    return isUnlabelled || isInBox;
  });
}

/** Return the keypoints after a box: x, y, and with 3 numbers a visibility. */
function keypointsOf(values, size) {
  const keypoints = [];
  for (let at = 4; at + size <= values.length; at += size) {
    keypoints.push(values.slice(at, at + size));
  }
  return keypoints;
}
