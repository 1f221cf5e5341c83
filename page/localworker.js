// The worker of local.js: the decoder in ONNX Runtime Web, and the embeddings of the last images.

import { SIDE, scaling, smoothed, spansAbove } from "./localmasks.js";
import { checkSeen } from "./seen.js";
import { answerBy } from "./workers.js";

const MAX_BYTES = 64_000_000;

/** Embeddings and what belongs to them by key, the last used last. */
const images = new Map();
/** Decoders by the SHA-256 of their weights. */
const decoders = new Map();
let runtime = null;

async function startRuntime() {
  const folder = new URL("onnxruntime/", import.meta.url), { body } = await fetch(`${folder}ort.wasm.gz`);
  const ort = await import(`${folder}ort.mjs`);
  ort.env.wasm.wasmBinary = await new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  return ort;
}

/** Fetch a file from the service at a base URL. @returns {Promise<ArrayBuffer>} */
async function read(service, path, query, headers) {
  const given = Object.entries(query).filter(([, value]) => value);
  const response = await fetch(new URL(`${path}?${new URLSearchParams(given)}`, service), { headers });
  if (!response.ok) throw new Error(`${path}: status ${response.status}`);
  return response.arrayBuffer();
}

/** Keep an image's embedding and the decoder of the weights that made it; return the SHA-256 of these, and the keys that made room. */
async function load(key, { id, drawn, model_version, region, headers, service }) {
  const { Tensor, InferenceSession } = await (runtime ??= startRuntime());
  const file = await read(service, `embeddings/${id}`, { model_version, region }, { ...headers, "X-Image-Id": id });
  const start = 8 + new DataView(file).getUint32(0, true);
  const { __metadata__: about, ...tensors } = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, start - 8)));
  const tensorOf = ({ shape, data_offsets: [from, to] }) => new Tensor("float16", new Uint16Array(file.slice(start + from, start + to)), shape);
  const embedding = Object.fromEntries(Object.entries(tensors).map(([name, layout]) => [name, tensorOf(layout)]));
  const [width, height, ...valid] = ["width", "height", "frame_width", "frame_height"].map((name) => Number(about[name]));
  const [orientation, range] = [about.orientation, about.range].map((text) => text && JSON.parse(text));
  checkSeen({ width, height, orientation, range }, drawn);
  const weights = about.weights_sha256, [x0, y0, x1, y1] = JSON.parse(about.region), size = [x1 - x0, y1 - y0];
  const isFirst = !decoders.has(weights);
  if (isFirst) {
    const model = await read(service, "decoder.onnx", { weights, model_version: about.model_version }, headers);
    decoders.set(weights, await InferenceSession.create(model));
  }
  const scalings = size.map((pixels, axis) => scaling(pixels, valid[axis], about.squashed === "true"));
  images.set(key, { weights, bytes: file.byteLength, embedding, origin: [x0, y0], scales: valid.map((side, axis) => side / size[axis]), scalings, width, height });
  let bytes = 0;
  const dropped = [...images].reverse().filter(([, image]) => (bytes += image.bytes) > MAX_BYTES).map(([first]) => first);
  for (const first of dropped) images.delete(first);
  if (isFirst) await decode(key, {}); // the first run takes longer
  return { weights, dropped };
}

/** Return masks as the service does. */
async function decode(key, fields) {
  const image = images.get(key), { Tensor } = await runtime;
  images.delete(key);
  images.set(key, image);
  const { box, pos_coords = [], neg_coords = [], multimask_output, mask_input, mask_threshold = 0, min_mask_region_area } = fields;
  const corners = box ? [box.slice(0, 2), box.slice(2)] : [image.origin]; // without a box, the padding point
  const points = [...pos_coords, ...neg_coords, ...corners].map((point) => image.scales.map((scale, axis) => (point[axis] - image.origin[axis]) * scale));
  const labels = [...pos_coords.map(() => 1), ...neg_coords.map(() => 0), ...(box ? [2, 3] : [-1])];
  const earlier = mask_input && Uint8Array.from(atob(mask_input), (character) => character.charCodeAt(0)).buffer.slice(-4 * SIDE * SIDE);
  const tensor = (values, ...shape) => new Tensor("float32", Float32Array.from(values), shape);
  const inputs = {
    ...image.embedding,
    point_coords: tensor(points.flat(), 1, labels.length, 2),
    point_labels: tensor(labels, 1, labels.length),
    mask_input: tensor(new Float32Array(earlier ?? new ArrayBuffer(4 * SIDE * SIDE)), 1, 1, SIDE, SIDE),
    has_mask_input: tensor([earlier ? 1 : 0], 1),
  };
  const output = multimask_output ? "low_res_masks" : "single_masks", decoder = decoders.get(image.weights);
  const { [output]: { data }, iou_predictions: { data: scores } } = await decoder.run(inputs, [output, "iou_predictions"]);
  return (multimask_output ? [1, 2, 3] : [0]).map((index) => {
    const spans = spansAbove(data.subarray(index * SIDE * SIDE, (index + 1) * SIDE * SIDE), mask_threshold, image);
    const mask = min_mask_region_area ? smoothed(spans, min_mask_region_area) : spans;
    return { rle: mask.encode(), score: Math.round(1e4 * scores[index]) / 1e4, area: mask.area, box: mask.box, isHere: true };
  });
}

answerBy(({ key, missing, fields }) => (missing ? load(key, missing) : decode(key, fields)));
