// The images in ZIP files of annotations.

import { baseName, KnownImages, SUBSET_FOLDER } from "./project.js";
import { unzip } from "./zip.js";

/** Not those that begin with "._": macOS adds them. */
const IMAGE = /(^|\/)(?!\._)[^/]*\.(png|jpe?g|webp|avif|gif|bmp|tiff?|hei[cf])$/i;
/** The first folder of images, as in COCO, YOLO and label maps, or in Pascal VOC. LabelMe has none. */
const FOLDER = /^((?:.*?\/)??)(?:images|JPEGImages)\//;
/** Folders of masks, unless they are in such a folder. */
const MASKS = /(^|\/)(classes|instances|Segmentation(Class|Object))\//;
/** In the ZIP file of a whole project, which is no data set. */
export const PROJECT_FILE = "project.json";

/**
 * Return the images in ZIP files that are not known, named as their annotations name them: without the folders of images
 * and of a split.
 * @param {Blob[]} files those that are no ZIP files have none
 * @param {import("./project.js").ImageSize[]} known
 * @returns {Promise<{name: string, load: () => Promise<File>}[]>}
 */
export async function imagesIn(files, known) {
  const knownImages = new KnownImages(known), lists = await Promise.all(files.map((file) => unzip(file).catch(() => [])));
  return lists.filter((entries) => entries.every(({ path }) => path !== PROJECT_FILE)).flatMap((entries) => {
    const found = entries.filter(({ path }) => IMAGE.test(path) && (FOLDER.test(path) || !MASKS.test(path)));
    const names = found.map(({ path }) => path.replace(FOLDER, "$1")), short = names.map((name) => name.replace(SUBSET_FOLDER, "$1"));
    const isSplit = names.every((name) => SUBSET_FOLDER.test(name)) && new Set(short).size === short.length
      && entries.some(({ path }) => SUBSET_FOLDER.test(path) && /\.(json|txt)$/i.test(path));
    return found.map(({ path, bytes }, index) => ({
      name: (isSplit ? short : names)[index],
      load: async () => new File([await bytes()], baseName(path), { type: `image/${path.split(".").pop().toLowerCase().replace("jpg", "jpeg")}` }),
    }));
  }).filter(({ name }) => !knownImages.find(name));
}
