// The dialog that exports annotations or the whole project, and the opening of such files.

import { element, radio } from "./dom.js";
import { download } from "./exports.js";
import { FORMATS } from "./formats/formats.js";
import { partsOf } from "./formats/split.js";
import { counted, showBusy } from "./notices.js";
import { exportAnnotations, exportParts, exportProject } from "./transfer.js";

/**
 * @param {import("./project.js").Project} project
 * @param {{openImage: () => import("./store.js").StoredImage, onError: (error: Error) => void, importFiles: (files: File[]) => void}} actions
 */
export function connectExports(project, actions) {
  const dialog = element("export"), format = element("export-format"), input = element("annotations");
  format.append(...Object.entries(FORMATS).map(([id, { title }]) => new Option(title, id)));

  /** Save the file that `make` returns, after what is still to be saved in the browser. */
  const run = async (make, name) => {
    dialog.close();
    showBusy("Exporting");
    try {
      await project.flush();
      download(await make(), name);
    } catch (error) {
      actions.onError(error);
    } finally {
      showBusy("");
    }
  };

  element("export-open").addEventListener("click", () => {
    element("export-all").textContent = `${project.finished.length} of ${counted(project.images.length, "image")}: labelled or reviewed`;
    dialog.showModal();
  });
  element("export-save").addEventListener("click", () => {
    const images = radio("export-scope").value === "all" ? project.finished : [actions.openImage()];
    const numbers = [element("export-share"), element("export-seed")];
    if (!numbers.every((field) => field.reportValidity())) return;
    const [share, seed] = numbers.map((field) => field.valueAsNumber || 0);
    const make = () => exportAnnotations(project, images, format.value, element("export-images").checked, { share: share / 100, seed });
    run(make, `annotations-${format.value}.zip`);
  });
  element("save-project").addEventListener("click", () => run(() => exportProject(project), "project.zip"));
  const [count, shared, partsSeed] = ["count", "shared", "seed"].map((name) => element(`parts-${name}`));
  element("save-parts").addEventListener("click", () => {
    count.setCustomValidity("");
    if (![count, shared, partsSeed].every((field) => field.reportValidity())) return;
    const parts = { count: count.valueAsNumber, shared: shared.valueAsNumber, seed: partsSeed.valueAsNumber };
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
