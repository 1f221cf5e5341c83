// Runs the page's formats for the tests: a call as JSON on stdin, its result as JSON on stdout.

import { fromBase64, toBase64 } from "../../../utils/page/static/formats/bytes.js";
import { FORMATS, readProject } from "../../../utils/page/static/formats/formats.js";
import { polygonsOf } from "../../../utils/page/static/formats/polygons.js";
import { rasterize } from "../../../utils/page/static/formats/rasterize.js";
import { Spans } from "../../../utils/page/static/formats/spans.js";
import { Project } from "../../../utils/page/static/project.js";
import { unzip, zip } from "../../../utils/page/static/formats/zip.js";

const decoded = (files) => files.map(({ path, content }) => ({ path, content: fromBase64(content) }));

const CALLS = {
  async write({ format, project, options }) {
    const files = await FORMATS[format].write(project, options);
    return Promise.all(files.map(async ({ path, content }) => ({ path, content: toBase64(await bytes(content)) })));
  },
  read: ({ files, sizes }) => readProject(decoded(files), sizes),
  addClasses({ classes }) {
    const project = new Project(() => {});
    return { ids: [...project.addClasses(classes)], names: project.classes.map(({ name }) => name) };
  },
  zip: async ({ files }) => toBase64(await bytes(await zip(decoded(files)))),
  async unzip({ content }) {
    const entries = await unzip(new Blob([fromBase64(content)]));
    return Promise.all(entries.map(async (entry) => ({ path: entry.path, content: toBase64(await entry.bytes()) })));
  },
  polygons: ({ masks, frame, tolerance }) =>
    masks.map((rle) => {
      const spans = Spans.decode(rle), polygons = polygonsOf(spans, frame, tolerance);
      return { polygons, again: rasterize(polygons, frame, spans.width, spans.height).encode(), encoded: spans.encode() };
    }),
  async time({ format, project, options }) {
    const began = performance.now();
    const { size } = await zip(await FORMATS[format].write(project, options));
    return { seconds: (performance.now() - began) / 1000, size };
  },
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
