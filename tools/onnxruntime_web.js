// Fetches ONNX Runtime Web for the page: checked by the SHA-512 in the lock file beside it. `deno run` gets the folder to write.

import loader from "npm:onnxruntime-web@1.30.0/wasm" with { type: "bytes" };
import runtime from "npm:onnxruntime-web@1.30.0/ort-wasm-simd-threaded.wasm" with { type: "bytes" };

const [folder] = Deno.args;
await Deno.mkdir(folder, { recursive: true });
await Deno.writeFile(`${folder}/ort.mjs`, loader);
// The service compresses no files, and this one shrinks to a quarter.
await Deno.writeFile(`${folder}/ort.wasm.gz`, new Blob([runtime]).stream().pipeThrough(new CompressionStream("gzip")));
