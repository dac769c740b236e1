// @ts-check
/** Helpers for elements, shared by several parts of the page. */

/**
 * Set an element's text if it differs: even setting the same text costs a layout.
 * @param {Element | null} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Show or hide the element that a button controls.
 * @param {HTMLButtonElement} button
 */
export function disclose(button, open = button.getAttribute("aria-expanded") !== "true") {
  button.setAttribute("aria-expanded", String(open));
  const controlled = document.getElementById(button.getAttribute("aria-controls") ?? "");
  if (controlled) controlled.hidden = !open;
}

/** @param {string[]} keys */
export function keyCaps(keys) {
  return keys.map((key) => `<kbd>${key}</kbd>`).join(" ");
}
