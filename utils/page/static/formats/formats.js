// The formats of annotations: what the page offers for saving and opening.

import { readClassesTxt, readDataYaml } from "./class_names.js";
import { isCoco, readCoco, writeCoco } from "./coco.js";
import { writeLabelMaps } from "./label_maps.js";
import { isLabelme, readLabelme, writeLabelme } from "./labelme.js";
import { FormatError, KnownImages, ProjectBuilder, baseName, cleanPath } from "./project.js";
import { writeVoc } from "./voc.js";
import { readYolo, writeYolo } from "./yolo.js";
import { unzip } from "./zip.js";

/** @typedef {import("./project.js").Project} Project */

const MAX_FILE_BYTES = 256 * 2 ** 20;
const MAX_FILES = 50_000;
const ANNOTATION_FILE = /\.(json|txt|names|ya?ml)$/i;
const NAMES_FILE = /^(classes\.txt|obj\.names|.*\.names)$/i;

/**
 * Formats by id. `images` is the folder of the images in the same ZIP: an image's place is `images + cleanPath(name)`.
 * @type {Record<string, {title: string, images: string, write: (project: Project, options?: any) => import("./project.js").ProjectFile[] | Promise<import("./project.js").ProjectFile[]>}>}
 */
export const FORMATS = {
  coco: { title: "COCO (RLE)", images: "images/", write: (project) => writeCoco(project) },
  "coco-polygons": {
    title: "COCO (polygons)",
    images: "images/",
    write: (project, options) => writeCoco(project, { segmentation: "polygons", ...options }),
  },
  yolo: { title: "YOLO segmentation", images: "images/", write: writeYolo },
  voc: { title: "Pascal VOC", images: "JPEGImages/", write: writeVoc },
  labelme: { title: "LabelMe", images: "", write: writeLabelme },
  "label-maps": { title: "Label maps (PNG)", images: "images/", write: writeLabelMaps },
};

/**
 * Read annotation files of COCO, LabelMe and YOLO, also from ZIP files. Other files are ignored.
 * @param {import("./project.js").ProjectFile[]} files
 * @param {import("./project.js").ImageSize[]} [sizes] known images, which keep their names; YOLO labels need their sizes
 * @returns {Promise<{project: Project, warnings: string[]}>} a file that cannot be read is a warning
 * @throws {FormatError} no file can be read
 */
export async function readProject(files, sizes = []) {
  const builder = new ProjectBuilder(new KnownImages(sizes));
  /** @type {string[]} */
  const failures = [];
  let read = 0;
  const attempt = async (path, action) => {
    try {
      await action();
      read++;
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      failures.push(`${path}: ${error.message}`);
    }
  };
  /** @type {{path: string, load: () => Promise<Uint8Array>}[]} */
  const sources = [];
  for (const file of files) await list(file, sources, failures);
  if (sources.length > MAX_FILES) throw new FormatError(`at most ${MAX_FILES} files can be read at once`);
  const names = await readNames(sources, failures);
  const labelFolder = sources.some(({ path }) => /(^|\/)labels\/.*\.txt$/i.test(path));
  for (const { path, load } of sources) {
    if (/\.json$/i.test(path)) {
      await attempt(path, async () => {
        const document = parseJson(await text(load));
        if (isCoco(document)) readCoco(document, builder);
        else if (isLabelme(document)) await readLabelme(document, path, builder);
        else throw new FormatError("neither COCO, with images and annotations, nor LabelMe, with shapes and imagePath");
      });
    } else if (/\.txt$/i.test(path) && !NAMES_FILE.test(baseName(path)) && (!labelFolder || /(^|\/)labels\//i.test(path))) {
      await attempt(path, async () => readYolo(await text(load), path, names, builder));
    }
  }
  if (!read) throw new FormatError(failures[0] ?? "no annotations of COCO (.json), LabelMe (.json) or YOLO (.txt) were found");
  const { project, warnings } = builder.build();
  return { project, warnings: [...failures, ...warnings] };
}

/** Add a file, or the files in a ZIP file, to the sources. */
async function list({ path, content }, sources, failures) {
  const blob = content instanceof Blob ? content : new Blob([content]);
  if (!/\.zip$/i.test(path)) {
    if (ANNOTATION_FILE.test(path)) sources.push({ path: cleanPath(path), load: async () => bytesOf(blob) });
    return;
  }
  try {
    for (const entry of await unzip(blob)) {
      if (!ANNOTATION_FILE.test(entry.path)) continue;
      sources.push({
        path: entry.path,
        load: async () => {
          if (entry.size > MAX_FILE_BYTES) throw tooLarge();
          return entry.bytes();
        },
      });
    }
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    failures.push(`${path}: ${error.message}`);
  }
}

async function bytesOf(blob) {
  if (blob.size > MAX_FILE_BYTES) throw tooLarge();
  return new Uint8Array(await blob.arrayBuffer());
}

function tooLarge() {
  return new FormatError(`an annotation file may have at most ${MAX_FILE_BYTES / 2 ** 20} MB`);
}

/** Return the class names by index, from data.yaml or classes.txt. */
async function readNames(sources, failures) {
  for (const [pattern, parse] of /** @type {[RegExp, (text: string) => Map<number, string> | null][]} */ ([
    [/\.ya?ml$/i, readDataYaml], [NAMES_FILE, readClassesTxt],
  ])) {
    for (const { path, load } of sources) {
      if (!pattern.test(baseName(path))) continue;
      try {
        const names = parse(await text(load));
        if (names?.size) return names;
      } catch (error) {
        if (!(error instanceof FormatError)) throw error;
        failures.push(`${path}: ${error.message}`);
      }
    }
  }
  return new Map();
}

async function text(load) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await load());
  } catch (error) {
    if (error instanceof FormatError) throw error;
    throw new FormatError("not a text file in UTF-8");
  }
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new FormatError("not valid JSON");
  }
}
