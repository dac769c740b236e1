// @ts-check
/** Small helpers around elements that several parts of the page share. */

/**
 * Set an element's text. Writing the same text again would still cost a layout.
 * @param {Element | null} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/**
 * Open or close what a button controls.
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
