// @ts-check
/**
 * Prints the document alone. A browser prints of a text field only what is on the screen, so the whole text is put into
 * an element that page.css shows in print.
 */

/** @param {HTMLElement} root @param {() => string} text */
export function setUpPrint(root, text) {
  const printed = root.querySelector(".pd-printed");
  // Each paragraph has its own direction, as in the field.
  addEventListener("beforeprint", () => printed?.replaceChildren(text()));
  addEventListener("afterprint", () => printed?.replaceChildren());
}
