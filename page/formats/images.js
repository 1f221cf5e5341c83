// The images in ZIP files of annotations.

import { baseName, PROJECT_FILE, SUBSET_FOLDER } from "./project.js";
import { unzip } from "./zip.js";

/** Not those that begin with "._": macOS adds them. */
const IMAGE = /(^|\/)(?!\._)[^/]*\.(png|jpe?g|webp|avif|gif|bmp|tiff?|hei[cf])$/i;
/** The first folder of images, as in COCO, YOLO and label maps, or in Pascal VOC. LabelMe has none. */
const FOLDER = /^((?:.*?\/)??)(?:images|JPEGImages)\//;
/** Folders of masks, unless they are in such a folder. */
const MASKS = /(^|\/)(classes|instances|Segmentation(Class|Object))\//;
const SUBSET_ANNOTATIONS = /(^|\/)(?:train|val)\/.*\.(json|txt)$/i;

/**
 * Return the images in ZIP files, named as their annotations name them: without the folders of images and of a split.
 * @param {Blob[]} zips those that cannot be read have none
 * @returns {Promise<{name: string, load: () => Promise<File>}[]>}
 */
export async function imagesIn(zips) {
  const lists = await Promise.all(zips.map((zip) => unzip(zip).catch(() => [])));
  return lists.flatMap((entries) => {
    if (entries.some(({ path }) => path === PROJECT_FILE)) return [];
    const found = entries.filter(({ path }) => IMAGE.test(path) && (FOLDER.test(path) || !MASKS.test(path)));
    const names = found.map(({ path }) => path.replace(FOLDER, "$1"));
    const short = names.map((name) => name.replace(SUBSET_FOLDER, "$1"));
    const isSplit = names.every((name) => SUBSET_FOLDER.test(name)) && entries.some(({ path }) => SUBSET_ANNOTATIONS.test(path));
    const isUnique = new Set(short).size === short.length;
    return found.map(({ path, bytes }, index) => ({
      name: (isSplit && isUnique ? short : names)[index],
      load: async () => new File([await bytes()], baseName(path), { type: typeOf(path) }),
    }));
  });
}

/** Return the type of an image file, as browsers have it for files of this extension. */
function typeOf(path) {
  return `image/${path.slice(path.lastIndexOf(".") + 1).toLowerCase().replace("jpg", "jpeg")}`;
}
