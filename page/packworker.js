// The worker of packer.js.

import { FORMATS } from "./formats/formats.js";
import { zip } from "./formats/zip.js";

/** @param {MessageEvent<import("./packer.js").Work>} event */
self.onmessage = async ({ data: { format, project, files } }) => {
  try {
    const written = format ? await FORMATS[format].write(project) : [];
    self.postMessage({ blob: await zip([...written, ...files]) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
