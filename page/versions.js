// The loaded versions of the model: which one new requests name, and what its weights accept.

import { element } from "./dom.js";
import { hint, showWeights } from "./notices.js";

const CHOICE = "mobile-sam-version";
const ONLY_BOXES = "These weights accept boxes only";
/** Stands for the service's only version while `/info` is not known. */
const UNKNOWN = { version: undefined, weights: null, descriptor: { side: 1024, resize: "longest_side", prompts: ["points", "boxes", "masks"] } };

/** @type {(typeof UNKNOWN)[]} `loaded` of `/info`, the newest last */
let loaded = [];

/** Return the version that the user has chosen, if any. */
const chosen = () => Number(localStorage.getItem(CHOICE)) || undefined;

/** Return a version while it is loaded; otherwise, and by default, the one in use: the chosen one, or the newest. */
export function modelOf(version) {
  const numbered = (number) => loaded.find((one) => one.version === number);
  return numbered(version) ?? numbered(chosen()) ?? loaded.at(-1) ?? UNKNOWN;
}

/** Return the field of a request for a version, by default the one in use; it is undefined if the service has only one. */
export function versionField(version) {
  return { model_version: loaded.length === 1 ? undefined : modelOf(version).version ?? chosen() };
}

/** Return whether the weights in use accept clicks; otherwise they accept boxes only. */
export function acceptsClicks() {
  return modelOf().descriptor.prompts.includes("points");
}

/** Tell what the weights in use accept. */
export function hintAtPrompts() {
  const shiftClick = element("one-click").checked ? "more of the same object" : "the next object";
  if (acceptsClicks()) hint("Click an object, or drag a box around it", `(Shift + click: ${shiftClick})`);
  else hint(`${ONLY_BOXES}: drag one around an object`);
}

/** Offer the loaded versions in `/info` if there are several. A chosen one that is gone is no longer chosen. */
export function showVersions(info) {
  loaded = info.loaded;
  const wanted = chosen(), { version } = modelOf(), select = element("version");
  if (wanted && version && wanted !== version) {
    localStorage.removeItem(CHOICE);
    hint(`Version ${wanted} of the model is no longer loaded: version ${version} is used`);
  }
  select.replaceChildren(...loaded.map((one) => new Option(`${one.weights.name}, version ${one.version}`, String(one.version))));
  select.value = String(version);
  select.hidden = loaded.length < 2;
  showModel(select.hidden ? info.weights : modelOf().weights);
}

/** Use the version that was selected. */
export function chooseVersion() {
  localStorage.setItem(CHOICE, element("version").value);
  showModel(modelOf().weights);
}

/** Show weights, and offer what they accept. */
function showModel(weights) {
  if (weights) showWeights(weights);
  const refused = acceptsClicks() ? "" : ONLY_BOXES;
  element("everything-options").disabled = element("hover").disabled = refused !== "";
  element("everything").title = refused || "Segment everything (E)";
  element("hover").title = refused;
}
