// The formats of annotations: what the page offers for saving and opening.

import { readClassesTxt, readDataYaml, readKeypointShape } from "./class_names.js";
import { isCoco, readCoco, writeCoco, writeCocoPolygons } from "./coco.js";
import { readLabelMaps, writeLabelMaps } from "./label_maps.js";
import { LABEL_CONFIG, isLabelStudio, readLabelConfig, readLabelStudio, writeLabelStudio } from "./label_studio.js";
import { isLabelme, readLabelme, writeLabelme } from "./labelme.js";
import { FormatError, KnownImages, ProjectBuilder, SUBSET_FOLDER, baseName, cleanPath, parseJson, readClasses } from "./project.js";
import { decodeText } from "./text.js";
import { readVoc, writeVoc } from "./voc.js";
import { readYolo, writeYolo } from "./yolo.js";
import { unzip } from "./zip.js";

/** @typedef {import("./project.js").Project} Project */

const MAX_FILE_BYTES = 256 * 2 ** 20;
const MAX_FILES = 50_000;
const ANNOTATION_FILE = /\.(json|txt|names|ya?ml|xml)$|(^|\/)(classes|instances)\/.*\.png$/i;
/** Lists of images, which no format needs to be read. */
const IMAGE_SET = /(^|\/)ImageSets\//i;
/** The first folder `classes` of a label map. */
const LABEL_MAP = /^((?:.*?\/)??)classes\/(.*\.png)$/i;
const YAML_FILE = /\.ya?ml$/i;
const NAMES_FILE = /^(classes\.txt|.*\.names)$/i;
const IMAGE_FILE = /\.(png|jpe?g|webp|bmp|tiff?)$/i;

/**
 * Formats by id. `images` is the folder of the images in the same ZIP; hasFolders: each subset of a
 * split has its own.
 * @type {Record<string, {title: string, images: string, hasFolders?: boolean, write: import("./project.js").Writer}>}
 */
export const FORMATS = {
  coco: { title: "COCO (RLE)", images: "images/", write: (project) => writeCoco(project) },
  "coco-polygons": { title: "COCO (polygons)", images: "images/", write: writeCocoPolygons },
  yolo: { title: "YOLO segmentation", images: "images/", hasFolders: true, write: writeYolo },
  voc: { title: "Pascal VOC", images: "JPEGImages/", write: writeVoc },
  labelme: { title: "LabelMe", images: "", hasFolders: true, write: writeLabelme },
  "label-studio": { title: "Label Studio", images: "images/", write: writeLabelStudio },
  "label-maps": { title: "Label maps (PNG)", images: "images/", write: writeLabelMaps },
};

/** @typedef {{path: string, bytes: () => Promise<Uint8Array<ArrayBuffer>>, text: () => Promise<string>}} Source */

/**
 * Read annotation files of all formats, also from ZIP files. Other files are ignored.
 * @param {import("./project.js").ProjectFile[]} files
 * @param {import("./project.js").ImageSize[]} [sizes] known images, which keep their names; YOLO labels need their sizes
 * @returns {Promise<{project: Project, warnings: string[]}>} a file that cannot be read is a warning
 * @throws {FormatError} no file can be read
 */
export async function readProject(files, sizes = []) {
  const builder = new ProjectBuilder(new KnownImages(sizes));
  /** @type {Source[]} */
  const sources = [];
  for (const file of files) sources.push(...((await builder.attempt(file.path, () => sourcesIn(file))) ?? []));
  if (sources.length > MAX_FILES) throw new FormatError(`at most ${MAX_FILES} files can be read at once`);
  const isClasses = ({ path }) => baseName(path) === "classes.json";
  const byPath = new Map(sources.map((source) => [source.path, source]));
  let namesById = null;
  for (const { path, text } of sources.filter(isClasses)) {
    namesById = await builder.attempt(path, async () => readClasses(parseJson(await text()), builder));
  }
  const isConfig = ({ path }) => baseName(path) === LABEL_CONFIG;
  for (const { path, text } of sources.filter(isConfig)) {
    await builder.attempt(path, async () => readLabelConfig(await text(), builder));
  }
  const isText = (path) => /\.txt$/i.test(path) && !NAMES_FILE.test(baseName(path));
  const hasFolder = sources.some(({ path }) => isText(path) && /(^|\/)labels\//i.test(path));
  const isLabels = (path) => isText(path) && (!hasFolder || /(^|\/)labels\//i.test(path));
  const dataset = await datasetOrNull(sources, sources.some(({ path }) => isLabels(path)), builder);
  const subsets = sources.filter((source) => !isClasses(source) && (/\.json$/i.test(source.path) || isLabels(source.path)));
  builder.known.isSplit = subsets.length > 0 && subsets.every(({ path }) => SUBSET_FOLDER.test(path));
  let read = 0;
  for (const { path, text, bytes } of sources.filter((source) => !isClasses(source) && !isConfig(source))) {
    const isJson = /\.json$/i.test(path), isXml = /\.xml$/i.test(path), isMap = namesById && LABEL_MAP.test(path);
    if (!isJson && !isXml && !isMap && !(dataset && isLabels(path))) continue;
    await builder.attempt(path, async () => {
      if (isJson) await readJson(await text(), path, builder);
      else if (isXml) await readVoc(await text(), path, builder);
      else if (isMap) await readLabelMaps(path.replace(LABEL_MAP, "$1$2"), await bytes(), await byPath.get(path.replace(LABEL_MAP, "$1instances/$2"))?.bytes() ?? null, namesById, builder);
      else if (!await readLabels(await text(), path, dataset, builder)) return;
      read++;
    });
  }
  if (!read) throw new FormatError(builder.failures[0] ?? "no annotations of COCO, LabelMe or Label Studio (.json), YOLO (.txt), Pascal VOC (.xml), or a ZIP file of label maps were found");
  return builder.build();
}

async function readJson(text, path, builder) {
  const document = parseAnnotations(text);
  if (isCoco(document)) await readCoco(document, path, builder);
  else if (isLabelme(document)) await readLabelme(document, path, builder);
  else if (isLabelStudio(document)) await readLabelStudio(document, builder);
  else throw new FormatError("neither COCO, with images and annotations, nor LabelMe, with shapes, nor Label Studio's tasks, exported as JSON (not JSON-MIN)");
}

/**
 * Return a JSON document. Python writes numbers that JSON does not have, NaN and Infinity: they
 * become null.
 */
function parseAnnotations(text) {
  try {
    return JSON.parse(text);
  } catch {
    const stringOrNull = (part) => (part.startsWith('"') ? part : "null");
    return parseJson(text.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g, stringOrNull));
  }
}

/**
 * Read YOLO labels; false: the file has none, such as darknet's lists of images beside its labels.
 */
async function readLabels(text, path, dataset, builder) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const isImageList = lines.length > 0 && lines.every((line) => IMAGE_FILE.test(line));
  return !isImageList && readYolo(text, path, dataset, builder);
}

/**
 * Return a file, or the files in a ZIP file, that may have annotations.
 * @returns {Promise<Source[]>}
 */
async function sourcesIn({ path, content }) {
  const blob = new Blob([content]);
  const file = { path: cleanPath(path), size: blob.size, bytes: async () => new Uint8Array(await blob.arrayBuffer()) };
  const entries = /\.zip$/i.test(path) ? await unzip(blob) : [file];
  const isUsed = ({ path }) => ANNOTATION_FILE.test(path) && !IMAGE_SET.test(path);
  const sources = entries.filter(isUsed);
  return sources.map((source) => {
    const bytes = () => contentOf(source);
    return { path: source.path, bytes, text: async () => decodeText(await bytes()) };
  });
}

function contentOf({ size, bytes }) {
  if (size > MAX_FILE_BYTES) throw new FormatError(`an annotation file may have at most ${MAX_FILE_BYTES / 2 ** 20} MB`);
  return bytes();
}

/**
 * Return what label files of YOLO do not have, or null if it cannot be read: with wrong names,
 * labels are wrong too.
 * @param {Source[]} sources
 * @param {boolean} isNeeded whether there are labels
 * @param {ProjectBuilder} builder
 */
async function datasetOrNull(sources, isNeeded, builder) {
  try {
    return await readDataset(sources, builder);
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    if (isNeeded) builder.failures.push(`YOLO labels were not read: ${error.message}`);
    return null;
  }
}

/**
 * Read data.yaml, or else classes.txt. The names become classes in their order, also without
 * objects.
 * @param {Source[]} sources
 * @param {ProjectBuilder} builder
 * @returns {Promise<import("./yolo.js").Dataset>}
 * @throws {FormatError} the names cannot be read, or files of one kind differ
 */
async function readDataset(sources, builder) {
  const yamlFiles = sources.filter(({ path }) => YAML_FILE.test(path));
  const lists = sources.filter(({ path }) => NAMES_FILE.test(baseName(path)));
  const classesTxt = lists.filter(({ path }) => /\.txt$/i.test(path));
  const usedLists = classesTxt.length ? classesTxt : lists;
  const names = await namesIn(yamlFiles, readDataYaml) ?? await namesIn(usedLists, readClassesTxt);
  if (!names && yamlFiles.length) {
    const [{ path }] = yamlFiles;
    throw new FormatError(`${path}: the names of the classes (names) are missing: add them, or classes.txt`);
  }
  let keypoints = null;
  for (const { text } of yamlFiles) keypoints ??= readKeypointShape(await text());
  names?.forEach((name, index) => builder.category(name, { id: index + 1 }));
  return { names: names ?? new Map(), keypoints };
}

/**
 * Return the class names by number that files have; null: they have none.
 * @param {Source[]} sources
 * @param {(text: string) => Map<number, string> | null} parse
 */
async function namesIn(sources, parse) {
  let names = null, origin = "";
  for (const { path, text } of sources) {
    try {
      const found = parse(await text());
      if (!found?.size) continue;
      if (names && !isSame(found, names)) {
        throw new FormatError(`it names the classes differently than ${origin}: keep one of the two`);
      }
      names ??= found;
      origin ||= path;
    } catch (error) {
      if (!(error instanceof FormatError)) throw error;
      throw new FormatError(`${path}: ${error.message}`);
    }
  }
  return names;
}

/** Return whether two maps have the same entries. */
function isSame(one, other) {
  return one.size === other.size && [...one].every(([key, value]) => other.get(key) === value);
}
