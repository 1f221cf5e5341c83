// Following objects from image to image: the prompts for the next image, and the judgement of the answer.
// client/mobile_sam_client/_following.py has the same rules; a test holds one to the other.

/** Longest side of small pictures and masks. */
const SIDE = 256;
/** How far the box is moved out on each side, in widths and heights of the box. */
const BOX_MARGIN = 0.05;
/** Largest movement between two images, of the longer side of the object's box, and its bounds in small pixels. */
const SEARCHED_SHARE = 0.6, MIN_SEARCHED_PIXELS = 8, MAX_SEARCHED_PIXELS = 40;
/** Pixels of the object that are compared. */
const MAX_SAMPLES = 500;
/** Larger differences of a colour value count as this: such pixels are hidden. */
const MAX_DIFFERENCE = 96;
/** What a movement costs for each pixel, in differences of a colour value. */
const COST_OF_DISTANCE = 0.05;
/** Levels of each colour in a histogram. */
const LEVELS = 4;
/** Largest change of brightness since the first image that is levelled out. */
const MAX_GAIN = 2.5;

const MIN_SCORE = 0.6;
/** Smallest IoU of the answer with the last mask, moved. */
const MIN_OVERLAP = 0.4;
/** Smallest and largest area, of the last and of the first one. */
const AREA_RATIOS = { least: 0.5, largest: 2 }, FIRST_AREA_RATIOS = { least: 0.15, largest: 6 };
/** Smallest common share of the colours with those of the first image. */
const MIN_COLOURS = 0.5;
/** An object looks different if finding it costs more than both of these above the mean so far. */
const MAX_COST_RATIO = 1.5, MAX_COST_RISE = 6;
/** Reason of an answer that is plausible in itself, and followed on, but needs review. */
export const LOOKS_DIFFERENT = "looks different";

/**
 * @typedef {object} SmallPicture such as an ImageData of the size that `smallSize` returns
 * @property {number} width
 * @property {number} height
 * @property {ArrayLike<number>} data RGBA, row by row
 *
 * @typedef {object} Target what is known of an object: its last good mask, and its first appearance
 * @property {SmallPicture} picture small picture of the last mask
 * @property {Uint8Array} mask small mask, 1 inside, row by row
 * @property {number[]} box x0, y0, x1, y1 around the mask in pixels of the image; x1 and y1 are exclusive
 * @property {number} area number of pixels of the mask in the image
 * @property {number} firstArea
 * @property {number} firstMean mean of the colour values at first
 * @property {number[]} firstColours shares of the colours at first
 * @property {number} steps number of images that it was followed on
 * @property {number} meanCost mean cost of finding it on these
 *
 * @typedef {object} Question prompts for the next image, and what the answer is judged by
 * @property {{pos_coords: number[][], box: number[]}} fields of the request, in pixels of the image
 * @property {Uint8Array} expected small mask, moved to where the object was found
 * @property {number} cost mean difference of its colour values from the last image, and what the movement costs
 */

/**
 * What is known of an object from the images that it was followed on.
 * @typedef {Pick<Target, "firstArea" | "firstMean" | "firstColours" | "steps" | "meanCost">} Track
 */

/** Return whether a value, such as one in a file, is a track. @param {any} value */
export function isTrack(value) {
  const { firstArea, firstMean, firstColours, steps, meanCost } = value ?? {};
  const isComplete = Array.isArray(firstColours) && firstColours.length === LEVELS ** 3;
  return isComplete && [firstArea, firstMean, ...firstColours, steps, meanCost].every(Number.isFinite);
}

/** Return the size of the small picture of an image. @param {{width: number, height: number}} image */
export function smallSize({ width, height }) {
  const longest = Math.max(width, height);
  const scaledSide = (side) => Math.max(1, Math.floor((side * SIDE) / longest + 0.5));
  return { width: scaledSide(width), height: scaledSide(height) };
}

/** Return the small mask of a mask: each pixel is the nearest one's. @param {import("./rle.js").Mask} mask */
export function smallMask(mask) {
  const { width, height } = smallSize(mask), small = new Uint8Array(width * height);
  const full = new Uint8Array(mask.width * mask.height);
  mask.spans().forEach((x, top, bottom) => {
    for (let y = top; y < bottom; y++) full[y * mask.width + x] = 1;
  });
  for (let y = 0; y < height; y++) {
    const row = Math.floor(((y + 0.5) * mask.height) / height) * mask.width;
    for (let x = 0; x < width; x++) small[y * width + x] = full[row + Math.floor(((x + 0.5) * mask.width) / width)];
  }
  return small;
}

/**
 * Return what is known of an object on its first image; null: its mask is empty or too small to be followed.
 * @param {SmallPicture} picture
 * @param {import("./rle.js").Mask} mask
 * @returns {Target | null}
 */
export function firstTarget(picture, mask) {
  const small = smallMask(mask);
  if (!small.includes(1)) return null;
  const { mean, colours } = coloursOf(picture, small, null);
  return { picture, mask: small, box: mask.box, area: mask.area, firstArea: mask.area, firstMean: mean, firstColours: colours, steps: 0, meanCost: 0 };
}

/**
 * Return a target after an answer for which `judge` found no reason, or only that it looks different.
 * @param {Target} target
 * @param {Question} question
 * @param {SmallPicture} picture of the image of the answer
 * @param {import("./rle.js").Mask} mask the answer
 * @returns {Target}
 */
export function nextTarget(target, question, picture, mask) {
  const steps = target.steps + 1, meanCost = target.meanCost + (question.cost - target.meanCost) / steps;
  return { ...target, picture, mask: smallMask(mask), box: mask.box, area: mask.area, steps, meanCost };
}

/**
 * Return the prompts that ask for an object on the next image, which has the size of the last one.
 * @param {Target} target
 * @param {SmallPicture} picture of the next image
 * @param {{width: number, height: number}} image
 * @returns {Question}
 */
export function promptsFor(target, picture, { width, height }) {
  const { dx, dy, cost } = find(target.picture, picture, target.mask);
  const scaleX = width / picture.width, scaleY = height / picture.height;
  const [x0, y0, x1, y1] = target.box;
  const marginX = (x1 - x0) * BOX_MARGIN, marginY = (y1 - y0) * BOX_MARGIN;
  const box = [
    Math.max(0, x0 + dx * scaleX - marginX),
    Math.max(0, y0 + dy * scaleY - marginY),
    Math.min(width, x1 + dx * scaleX + marginX),
    Math.min(height, y1 + dy * scaleY + marginY),
  ];
  const expected = moved(target.mask, picture, dx, dy);
  const [x, y] = innermost(expected, picture);
  return { fields: { pos_coords: [[(x + 0.5) * scaleX, (y + 0.5) * scaleY]], box }, expected, cost };
}

/**
 * Return why an answer needs review; nothing if it is plausible.
 * @param {Target} target
 * @param {Question} question the prompts that were answered
 * @param {SmallPicture} picture of the image of the answer
 * @param {import("./rle.js").Mask} answer
 * @returns {string[]}
 */
export function judge(target, question, picture, answer) {
  const mask = smallMask(answer);
  if (!answer.area || !mask.includes(1)) return ["no mask"];
  const reasons = [];
  if (answer.score < MIN_SCORE) reasons.push("low score");
  if (overlapOf(mask, question.expected) < MIN_OVERLAP) reasons.push("other place");
  const isWithin = (ratio, { least, largest }) => least <= ratio && ratio <= largest;
  const isPlausible = isWithin(answer.area / target.area, AREA_RATIOS) && isWithin(answer.area / target.firstArea, FIRST_AREA_RATIOS);
  if (!isPlausible) reasons.push("other size");
  const { colours } = coloursOf(picture, mask, target.firstMean);
  const common = colours.reduce((sum, share, number) => sum + Math.min(share, target.firstColours[number]), 0);
  if (common < MIN_COLOURS) reasons.push("other colours");
  const isUsual = question.cost <= MAX_COST_RATIO * target.meanCost || question.cost <= target.meanCost + MAX_COST_RISE;
  if (target.steps && !isUsual) reasons.push(LOOKS_DIFFERENT);
  return reasons;
}

/** Return how far the pixels of a mask have moved, and the cost of that place. */
function find(before, after, mask) {
  const { width, height } = before, inside = [];
  let [left, top, right, bottom] = [width, height, 0, 0];
  mask.forEach((value, index) => {
    if (!value) return;
    const x = index % width, y = Math.floor(index / width);
    inside.push(index);
    [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
  });
  const sides = [bottom - top + 1, right - left + 1];
  const radius = Math.min(MAX_SEARCHED_PIXELS, Math.max(MIN_SEARCHED_PIXELS, Math.floor(SEARCHED_SHARE * Math.max(...sides))));
  const step = Math.ceil(inside.length / MAX_SAMPLES), samples = inside.filter((_, number) => number % step === 0);
  const count = 2 * radius + 1, costs = new Float64Array(count * count);
  let best = 0;
  for (let number = 0; number < costs.length; number++) {
    const dx = (number % count) - radius, dy = Math.floor(number / count) - radius;
    let differences = 0;
    for (const index of samples) {
      const x = (index % width) + dx, y = Math.floor(index / width) + dy;
      // Pixels outside of the picture differ from all others.
      if (x < 0 || y < 0 || x >= width || y >= height) {
        differences += 3 * MAX_DIFFERENCE;
        continue;
      }
      const from = 4 * index, to = 4 * (y * width + x);
      for (let channel = 0; channel < 3; channel++) {
        differences += Math.min(Math.abs(after.data[to + channel] - before.data[from + channel]), MAX_DIFFERENCE);
      }
    }
    costs[number] = differences / (3 * samples.length) + COST_OF_DISTANCE * Math.sqrt(dx * dx + dy * dy);
    if (costs[number] < costs[best]) best = number;
  }
  const dx = (best % count) - radius, dy = Math.floor(best / count) - radius, cost = costs[best];
  return moved(mask, before, dx, dy).includes(1) ? { dx, dy, cost } : { dx: 0, dy: 0, cost };
}

/** Return a small mask moved by pixels; what leaves the picture is cut off. */
function moved(mask, { width, height }, dx, dy) {
  const result = new Uint8Array(mask.length);
  for (let y = Math.max(0, dy); y < Math.min(height, height + dy); y++) {
    for (let x = Math.max(0, dx); x < Math.min(width, width + dx); x++) result[y * width + x] = mask[(y - dy) * width + x - dx];
  }
  return result;
}

/** Return the pixel, x and y, farthest from the edge of a mask that is not empty, in steps to neighbours. */
function innermost(mask, { width, height }) {
  const distances = new Int32Array(mask.length);
  const at = (x, y) => (x < 0 || y < 0 || x >= width || y >= height ? 0 : distances[y * width + x]);
  for (let index = 0; index < mask.length; index++) {
    const x = index % width, y = Math.floor(index / width);
    if (mask[index]) distances[index] = 1 + Math.min(at(x - 1, y), at(x, y - 1));
  }
  let best = 0;
  for (let index = mask.length - 1; index >= 0; index--) {
    const x = index % width, y = Math.floor(index / width);
    if (mask[index]) distances[index] = Math.min(distances[index], 1 + at(x + 1, y), 1 + at(x, y + 1));
    if (distances[index] >= distances[best]) best = index;
  }
  return [best % width, Math.floor(best / width)];
}

/** Return the IoU of two small masks. */
function overlapOf(one, other) {
  let common = 0, either = 0;
  one.forEach((value, index) => {
    common += value & other[index];
    either += value | other[index];
  });
  return common / Math.max(1, either);
}

/** Return the mean of the colour values in a mask that is not empty, and the shares of its colours, levelled to a first mean. */
function coloursOf({ data }, mask, firstMean) {
  let sum = 0, count = 0;
  mask.forEach((value, index) => {
    if (!value) return;
    count++;
    for (let channel = 0; channel < 3; channel++) sum += data[4 * index + channel];
  });
  const mean = sum / (3 * count);
  const gain = firstMean === null ? 1 : Math.min(MAX_GAIN, Math.max(1 / MAX_GAIN, firstMean / Math.max(mean, 1)));
  const colours = Array(LEVELS ** 3).fill(0);
  // A value between two levels counts to both, so that small changes make small differences.
  mask.forEach((value, index) => {
    if (!value) return;
    const places = [0, 1, 2].map((channel) => {
      const place = (Math.min(255, data[4 * index + channel] * gain) * LEVELS) / 256 - 0.5;
      return Math.min(LEVELS - 1, Math.max(0, place));
    });
    const lower = places.map((place) => Math.min(Math.floor(place), LEVELS - 2));
    for (let corner = 0; corner < 8; corner++) {
      let share = 1, number = 0;
      places.forEach((place, channel) => {
        const bit = (corner >> (2 - channel)) & 1, upper = place - lower[channel];
        share *= bit ? upper : 1 - upper;
        number = number * LEVELS + lower[channel] + bit;
      });
      colours[number] += share;
    }
  });
  return { mean, colours: colours.map((number) => number / count) };
}
