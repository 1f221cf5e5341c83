// The worker that packs files into a ZIP: with many images, that takes seconds.

import { FORMATS } from "./formats/formats.js";
import { zip } from "./formats/zip.js";
import { answerBy } from "./workers.js";

answerBy(async ({ format, project, files }) => zip([...(format ? await FORMATS[format].write(project) : []), ...files]));
