// @ts-check
/** Puts the panel's own drawings into the components that app/web/panel.py has for them. */

/**
 * Append an element to the one with this selector. Gradio may make that later; it dispatches "pd-part" then.
 * @param {string} selector
 * @param {HTMLElement} element
 */
export async function place(selector, element) {
  const there = () => document.querySelector(selector);
  while (!there()) await new Promise((later) => addEventListener("pd-part", later, { once: true }));
  there()?.append(element);
}
