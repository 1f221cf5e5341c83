// A question over the image that does not block the page.

import { createButton, element } from "./dom.js";

/** Element that had the focus before the question. */
let previous = null;

/**
 * Ask a question until it is answered, or closed by `closeQuestion`.
 * @param {string} text
 * @param {Record<string, () => void>} answers actions by the texts of their buttons; Escape is the last one
 */
export function ask(text, answers) {
  const bar = element("question");
  if (!previous) previous = document.activeElement;
  const buttons = Object.entries(answers).map(([name, action]) => {
    const answer = () => {
      closeQuestion();
      action();
    };
    return createButton("", answer, { textContent: name });
  });
  element("question-text").textContent = text;
  element("question-answers").replaceChildren(...buttons);
  bar.onkeydown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    buttons.at(-1).click();
  };
  bar.hidden = false;
  // Not a button: Enter and Space, pressed once too often, must not answer.
  bar.focus({ preventScroll: true });
}

/** Close the question; its focus goes back to where it was. */
export function closeQuestion() {
  const bar = element("question");
  if (bar.hidden) return;
  const hadFocus = bar.contains(document.activeElement);
  bar.hidden = true;
  if (hadFocus) previous?.focus({ preventScroll: true });
  previous = null;
}

export function isAsking() {
  return !element("question").hidden;
}
