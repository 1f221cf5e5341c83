// The dialog that exports annotations or the whole project, and the opening of such files.

import { annotator } from "./annotator.js";
import { element, radio } from "./dom.js";
import { download, fileName } from "./exports.js";
import { loadTransfer } from "./later.js";
import { counted, showBusy, showReport } from "./notices.js";

/**
 * Return what to say about the unfinished objects of an exported image.
 * @param {{name: string, withoutMask: number, outdated: number, toReview: number}} image
 */
function warnings({ name, withoutMask, outdated, toReview }) {
  return [
    withoutMask && `${name}: ${counted(withoutMask, "object")} left out for want of a mask. Open the image to have masks made`,
    outdated && `${name}: ${counted(outdated, "object")} with the mask from before your last change. Open the image to have masks made`,
    toReview && `${name}: ${counted(toReview, "object")} to review. Following is in doubt: masks may be wrong`,
  ].filter(Boolean);
}

/**
 * @param {import("./project.js").Project} project
 * @param {{settle: () => void, openImage: () => import("./store.js").StoredImage, onError: (error: Error) => void, importFiles: (files: File[]) => void}} actions
 *   settle: store what is being drawn
 */
export function connectExports(project, actions) {
  const dialog = element("export"), format = element("export-format"), input = element("annotations");

  /**
   * Save the file that `make` returns, after what is still to be saved in the browser.
   * @param {() => Promise<Blob>} make
   * @param {string} name
   * @param {import("./store.js").StoredImage[]} images those of a dataset: what is unfinished there is listed
   */
  const run = async (make, name, images = []) => {
    dialog.close();
    showBusy("Exporting");
    try {
      await project.flush();
      download(await make(), name);
      const lines = (await (await loadTransfer()).unfinished(project, images)).flatMap(warnings);
      showReport("Exported, but some objects are not finished", lines);
    } catch (error) {
      actions.onError(error);
    } finally {
      showBusy("");
    }
  };

  const open = async () => {
    actions.settle();
    const { FORMATS } = await loadTransfer();
    if (!format.length) format.append(...Object.entries(FORMATS).map(([id, { title }]) => new Option(title, id)));
    element("export-all").textContent = `${project.finished.length} of ${counted(project.images.length, "image")}: labelled or reviewed`;
    dialog.showModal();
  };
  element("export-open").addEventListener("click", () => open().catch(actions.onError));
  element("export-save").addEventListener("click", () => {
    const isAll = radio("export-scope").value === "all", images = isAll ? project.finished : [actions.openImage()];
    const numbers = [element("export-share"), element("export-seed")];
    if (!numbers.every((field) => field.reportValidity())) return;
    const [share, seed] = numbers.map((field) => field.valueAsNumber || 0);
    const make = async () => {
      const { exportAnnotations } = await loadTransfer();
      return exportAnnotations(project, images, format.value, element("export-images").checked, { share: share / 100, seed });
    };
    run(make, `annotations-${format.value}.zip`, isAll ? project.images : images);
  });
  element("save-project").addEventListener("click", () => run(async () => (await loadTransfer()).exportProject(project), `${fileName("project", ...[annotator()].filter(Boolean))}.zip`));
  const [count, shared, partsSeed] = ["count", "shared", "seed"].map((name) => element(`parts-${name}`));
  element("save-parts").addEventListener("click", async () => {
    count.setCustomValidity("");
    if (![count, shared, partsSeed].every((field) => field.reportValidity())) return;
    const parts = { count: count.valueAsNumber, shared: shared.valueAsNumber, seed: partsSeed.valueAsNumber };
    const { exportParts, partsOf } = await loadTransfer();
    try {
      partsOf(project.images, parts);
    } catch (error) {
      count.setCustomValidity(error.message);
      count.reportValidity();
      return;
    }
    run(() => exportParts(project, parts), "project-parts.zip");
  });
  for (const id of ["import-open", "import-project"]) element(id).addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    actions.importFiles([...input.files]);
    input.value = "";
  });
}
