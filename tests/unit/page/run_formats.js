// Runs the page's formats for the tests: a call as JSON on stdin, its result as JSON on stdout.

import { agreementOf, agreementTable, compared, differenceOf, pairsOf } from "../../../page/agreement.js";
import { maskInput, withClicks } from "../../../page/drawn.js";
import { decodeBrush, encodeBrush } from "../../../page/formats/brush_rle.js";
import { firstTarget, judge, LOOKS_DIFFERENT, nextTarget, promptsFor } from "../../../page/follow.js";
import { FORMATS, readProject } from "../../../page/formats/formats.js";
import { imagesIn } from "../../../page/formats/images.js";
import { polygonsOf } from "../../../page/formats/polygons.js";
import { FormatError } from "../../../page/formats/project.js";
import { rasterize } from "../../../page/formats/rasterize.js";
import { encodePng } from "../../../page/formats/png.js";
import { Spans } from "../../../page/formats/spans.js";
import { partsOf, splitImages } from "../../../page/formats/split.js";
import { withoutIdentical } from "../../../page/identical.js";
import { scaling, smoothed, spansAbove } from "../../../page/localmasks.js";
import { layoutOf, turnedSize, turnedValues, withOrientation } from "../../../page/orientation.js";
import { decodePng16, rangeOf, stretched } from "../../../page/png16.js";
import { Project } from "../../../page/project.js";
import { cut, rounded } from "../../../page/regions.js";
import { Mask } from "../../../page/rle.js";
import { checkFile, checkSeen } from "../../../page/seen.js";
import { unzip, zip } from "../../../page/formats/zip.js";
import { DOMParser } from "./dom_parser.js";

globalThis.DOMParser ??= DOMParser;

const maskOf = (rle) => Mask.fromSpans(Spans.decode(rle), null);
const decoded = (files) => files.map(({ path, content }) => ({ path, content: Uint8Array.fromBase64(content) }));

const CALLS = {
  split: ({ images, split }) => (splitImages(images, split), images),
  parts: ({ images, parts }) => partsOf(images, parts),
  /** Compare the objects on one image; those of a comparison are named by their indices. */
  compared({ images: [image] }) {
    const [mine, theirs] = [image.mine, image.theirs].map((objects) => objects.map((object) => ({ ...object, mask: maskOf(object.mask) })));
    const comparisons = compared(mine, theirs);
    const indexIn = (objects, object) => (object ? objects.indexOf(object) : null);
    return {
      comparisons: comparisons.map((one) => ({ ...one, mine: indexIn(mine, one.mine), theirs: indexIn(theirs, one.theirs), difference: differenceOf(one) })),
      agreement: agreementOf(comparisons),
      pairs: pairsOf(comparisons),
      table: agreementTable([{ name: image.name, comparisons }]),
    };
  },
  async write({ format, project, options }) {
    const files = await FORMATS[format].write(project, options);
    return Promise.all(files.map(async ({ path, content }) => ({ path, content: (await bytes(content)).toBase64() })));
  },
  read: ({ files, sizes }) => readProject(decoded(files), sizes),
  /** Read several projects; one that cannot be read has an `error`. */
  readAll: ({ projects }) => Promise.all(projects.map(({ files, sizes }) => (
    readProject(decoded(files), sizes).catch((error) => {
      if (!(error instanceof FormatError)) throw error;
      return { error: error.message };
    })
  ))),
  async images({ files, known }) {
    const found = await imagesIn([await zip(decoded(files))], known);
    return Promise.all(found.map(async ({ name, load }) => [name, (await load()).type]));
  },
  async addClasses({ classes }) {
    const project = new Project(() => {});
    return { ids: [...(await project.addClasses(classes))], names: project.classes.map(({ name }) => name) };
  },
  zip: async ({ files }) => (await bytes(await zip(decoded(files)))).toBase64(),
  async unzip({ content }) {
    const entries = await unzip(new Blob([Uint8Array.fromBase64(content)]));
    return Promise.all(entries.map(async (entry) => ({ path: entry.path, content: (await entry.bytes()).toBase64() })));
  },
  encodeBrush: ({ masks }) => masks.map((rle) => encodeBrush(Spans.decode(rle))),
  /** Decode brush masks of an image; one that cannot be decoded has an `error`. */
  decodeBrush: ({ rles, width, height, maxSpans }) => rles.map((rle) => {
    try {
      return decodeBrush(rle, { width, height }, maxSpans).encode();
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      return { error: error.message };
    }
  }),
  withoutIdentical({ added, known }) {
    const withMask = ({ rle, ...object }, name) => ({ ...object, [name]: new Mask(rle, maskOf(rle)) });
    const { kept, replaced, ...counts } = withoutIdentical(added.map((one) => withMask(one, "drawn")), known.map((one) => withMask(one, "mask")));
    return { ...counts, kept: kept.map(({ name }) => name), replaced: [...replaced] };
  },
  cut: ({ mask, region }) => cut(maskOf(mask), region).spans().encode(),
  rounded: ({ regions, image }) => regions.map((region) => rounded(region, image)),
  maskInput: ({ mask, isSquashed }) => maskInput(maskOf(mask), isSquashed),
  withClicks: ({ drawn, sent, answer, clicks }) => withClicks(maskOf(drawn), maskOf(sent ?? drawn), maskOf(answer), clicks).record,
  follow({ pictures: [first, ...pictures], mask, answers }) {
    let target = firstTarget(first, Mask.fromRecord(mask));
    if (!target) return null;
    return pictures.map((picture, index) => {
      const question = promptsFor(target, picture, { width: mask.size[1], height: mask.size[0] });
      const answer = Mask.fromRecord(answers[index]), reasons = judge(target, question, picture, answer);
      if (reasons.every((reason) => reason === LOOKS_DIFFERENT)) target = nextTarget(target, question, picture, answer);
      return { question, expected: [...question.expected], reasons };
    });
  },
  upsample({ logits, threshold, image, valid, isSquashed, region: [x0, y0, x1, y1] }) {
    const scalings = [x1 - x0, y1 - y0].map((size, axis) => scaling(size, valid[axis], isSquashed));
    const values = new Float32Array(Uint8Array.fromBase64(logits).buffer);
    return spansAbove(values, threshold, { ...image, origin: [x0, y0], scalings }).encode();
  },
  orientations: ({ files }) => decoded(files).map(({ content }) => layoutOf(content).orientation),
  layouts: ({ files }) => Promise.all(decoded(files).map(async ({ path, content }) => {
    const { kind, orientation, stored, isDeep } = layoutOf(content), file = new Blob([content]);
    const turned = (target) => bytes(withOrientation(file, layoutOf(content), target));
    const [upright, canonical] = [(await turned(1)).toBase64(), (await turned(kind === "webp" ? 1 : 6)).toBase64()];
    return { path, kind, orientation, stored, isDeep, upright, canonical };
  })),
  turn({ pixels, size, orientation }) {
    const values = Uint16Array.from(pixels);
    return { ...turnedSize(size, orientation), pixels: [...turnedValues(values, size, 1, orientation)] };
  },
  async stretch({ content, range, orientation }) {
    const image = await decodePng16(Uint8Array.fromBase64(content)), found = range === undefined ? rangeOf(image) : range;
    const { values, width, height, samples } = image;
    const turned = turnedSize(image, orientation), again = turnedValues(values, image, samples, orientation);
    return {
      range: found, width, height, samples,
      picture: new Uint8Array(stretched(image, found).buffer).toBase64(),
      file: (await bytes(await encodePng(again, turned.width, turned.height, null, samples))).toBase64(),
    };
  },
  checkSeen({ answer, drawn }) {
    try {
      checkSeen(answer, drawn);
    } catch (error) {
      return { message: error.message, view: error.view };
    }
    return null;
  },
  checkFile({ got, sent }) {
    try {
      checkFile(got, sent, { name: "a.png" });
    } catch (error) {
      return error.message;
    }
    return null;
  },
  smoothed: ({ masks, minArea }) => masks.map((rle) => smoothed(Spans.decode(rle), minArea).encode()),
  polygons: ({ masks, frame, tolerance }) =>
    masks.map((rle) => {
      const spans = Spans.decode(rle), polygons = polygonsOf(spans, frame, tolerance);
      return { polygons, again: rasterize(polygons, frame, spans.width, spans.height).encode(), encoded: spans.encode() };
    }),
};

async function bytes(content) {
  return new Uint8Array(await new Blob([content]).arrayBuffer());
}

const { call, ...given } = JSON.parse(await new Response(Deno.stdin.readable).text());
let answer;
try {
  answer = { result: await CALLS[call](given) };
} catch (error) {
  answer = { error: error.message, type: error.constructor.name };
}
await new Response(JSON.stringify(answer)).body.pipeTo(Deno.stdout.writable);
