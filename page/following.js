// Follow: the objects of the open image are looked for on the next one, by the rules of follow.js.

import { identityOf, thereAlready } from "./copying.js";
import { service, session } from "./current.js";
import { canvasOf } from "./dom.js";
import { mend } from "./edits.js";
import { firstTarget, judge, LOOKS_DIFFERENT, nextTarget, promptsFor, smallSize } from "./follow.js";
import { imageList, openCount, openImage, remoteOf, viewed } from "./images.js";
import { counted, say, showBusy, showError } from "./notices.js";
import { maskOptions } from "./options.js";
import { handleError } from "./requests.js";
import { SeenOtherwise } from "./seen.js";
import { acceptsClicks, versionField } from "./versions.js";

/** Open the next image with the objects of this one where the model finds them. Those in doubt are marked for review. */
export async function follow() {
  mend.settle();
  const current = session;
  await current.masks.settled();
  if (current !== session) return; // another image was opened
  const next = imageList.after(current.image);
  const objects = current.annotated.filter(({ object }) => !object.review), waiting = current.annotated.length - objects.length;
  if (!next) say("This is the last image of the list");
  else if (!objects.length) say(waiting ? "Review the marked objects first: correct them, or press Review" : "This image has no objects to follow");
  else if (next.width !== current.width || next.height !== current.height) say(`Nothing followed: the next image has another size, ${next.width} x ${next.height}`);
  else await followTo(next, objects, waiting);
}

async function followTo(next, objects, waiting) {
  const current = session, opened = openCount;
  showBusy(`Following ${counted(objects.length, "object")} to ${next.name}`);
  try {
    const view = await viewed(next), remote = remoteOf(next, view);
    const [before, after] = await Promise.all([current.view, view].map(({ picture }) => smallPicture(picture, next)));
    await service.embed(remote);
    const found = await Promise.all(objects.map((annotated) => find(annotated, { before, after, next, remote, options: current.options })));
    if (current !== session || opened !== openCount) return; // another image was chosen
    showBusy("");
    await openImage(next, found, (added) => {
      const doubtful = added.filter(({ review }) => review).length, left = thereAlready(found.length - added.length);
      const skipped = waiting ? `; ${waiting} left behind: review them first` : "";
      say(`${counted(added.length, "object")} followed, ${doubtful || "none"} to review${left}${skipped}`);
    });
  } catch (error) {
    showBusy("");
    if (current !== session) return;
    if (error instanceof SeenOtherwise) showError(error); // about the next image, not the open one
    else handleError(error, () => current === session && follow());
  }
}

/** Return the picture at the size in which pictures are compared. */
async function smallPicture(picture, image) {
  const { width, height } = smallSize(image);
  const bitmap = await createImageBitmap(picture, { resizeWidth: width, resizeHeight: height, resizeQuality: "medium" });
  let pixels;
  canvasOf(width, height, (context) => {
    context.drawImage(bitmap, 0, 0);
    pixels = context.getImageData(0, 0, width, height);
  });
  bitmap.close();
  return pixels;
}

/** Return the fields of an object on the next image: its mask there, and why the mask may be wrong. */
async function find({ object, mask }, { before, after, next, remote, options }) {
  const first = firstTarget(before, mask);
  if (!first) return { ...identityOf(object), drawn: mask, review: ["too small to be followed"] };
  const target = { ...first, ...object.track };
  const question = promptsFor(target, after, next), { pos_coords, box } = question.fields;
  const prompts = acceptsClicks() ? { pos_coords, box } : { box };
  const [answer] = await service.segment(remote, { ...prompts, ...maskOptions(next, options), ...versionField() });
  const reasons = judge(target, question, after, answer), isLikely = reasons.every((reason) => reason === LOOKS_DIFFERENT);
  const { firstArea, firstMean, firstColours, steps, meanCost } = isLikely ? nextTarget(target, question, after, answer) : target;
  const points = acceptsClicks() ? pos_coords.map(([x, y]) => ({ x: Math.floor(x), y: Math.floor(y), label: 1 })) : [];
  return {
    ...identityOf(object),
    drawn: answer.area ? answer : mask,
    points,
    settled: points.length,
    track: { firstArea, firstMean, firstColours, steps, meanCost },
    ...(reasons.length && { review: reasons }),
  };
}
