// Files packed into a ZIP by a worker: with many images, that takes seconds.

/**
 * @typedef {object} Work
 * @property {string | null} format a key of FORMATS, to write the project in
 * @property {import("./formats/project.js").Project | null} project
 * @property {import("./formats/project.js").ProjectFile[]} files further files
 */

/**
 * Return a ZIP file.
 * @param {Work} work
 * @returns {Promise<Blob>}
 * @throws {Error} the project does not fit into the format, or the files not into a ZIP
 */
export function pack(work) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("packworker.js", import.meta.url), { type: "module" });
    const end = (finish) => {
      worker.terminate();
      finish();
    };
    worker.onmessage = ({ data }) => end(() => (data.error ? reject(new Error(data.error)) : resolve(data.blob)));
    worker.onerror = (event) => end(() => reject(new Error(event.message || "the files could not be packed")));
    worker.postMessage(work);
  });
}
