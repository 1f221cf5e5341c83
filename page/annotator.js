// The name of the person who annotates in this browser.

import { element } from "./dom.js";

const NAME = "mobile-sam-annotator";

/** Return the name that new and changed objects get, or undefined if none was given. @returns {string | undefined} */
export function annotator() {
  return localStorage.getItem(NAME) || undefined;
}

/** Keep the name in the page's field for the next visit. */
export function keepAnnotator() {
  const field = element("annotator");
  field.value = annotator() ?? "";
  field.addEventListener("change", () => {
    field.value = field.value.trim();
    if (field.value) localStorage.setItem(NAME, field.value);
    else localStorage.removeItem(NAME);
  });
}
