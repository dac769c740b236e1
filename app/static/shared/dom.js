// @ts-check
/** Helpers for elements, shared by several parts of the page. */

/**
 * The first element inside `root` that matches a selector and is known to be there.
 * @type {{<Tag extends keyof HTMLElementTagNameMap>(root: ParentNode, selector: Tag): HTMLElementTagNameMap[Tag],
 *         <T extends HTMLElement>(root: ParentNode, selector: string): T}}
 */
export const part = (/** @type {ParentNode} */ root, /** @type {string} */ selector) => /** @type {any} */ (root.querySelector(selector));

/**
 * Returns a function that finds elements inside `root` so.
 * @param {ParentNode} root
 * @returns {<T extends HTMLElement>(selector: string) => T}
 */
export const finder = (root) => (selector) => part(root, selector);

/**
 * Run the action of a button with the attribute `data-do` when it is clicked, now or later in the page.
 * @param {HTMLElement} root
 * @param {Record<string, () => unknown>} actions by the attribute
 */
export function onDo(root, actions) {
  root.addEventListener("click", ({ target }) => {
    const button = target instanceof Element ? target.closest("[data-do]") : null;
    if (button) actions[button.getAttribute("data-do") ?? ""]?.();
  });
}

/**
 * Call a function at the next frame. `requestAnimationFrame` itself is slow in this page: see `FRAMES` in page.py.
 * @param {FrameRequestCallback} draw
 */
export function onFrame(draw) {
  const request = /** @type {any} */ (requestAnimationFrame).soon ?? requestAnimationFrame;
  request(draw);
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} className
 * @param {string} markup constant HTML, never with data in it
 * @param {Record<string, string>} texts of elements of the markup, by their selectors
 */
export function newElement(tag, className = "", markup = "", texts = {}) {
  const element = document.createElement(tag);
  element.className = className;
  element.innerHTML = markup;
  for (const [selector, text] of Object.entries(texts)) setText(element.querySelector(selector), text);
  return element;
}

/**
 * @param {string} text
 * @param {() => void} action
 * @param {{label?: string, className?: string}} how `label`: its name, where the text alone says too little
 */
export function newButton(text, action, { label, className = "" } = {}) {
  const button = newElement("button", className);
  Object.assign(button, { type: "button", textContent: text, ariaLabel: label ?? null });
  button.addEventListener("click", action);
  return button;
}

/**
 * Dispatch an event of the page: see main.js.
 * @param {HTMLElement} root
 * @param {"pd-text" | "pd-drafts" | "pd-along" | "pd-cleared" | "pd-dropped" | "pd-reset" | "pd-taken" | "pd-refused" | "pd-figures" | "pd-appearance" | "pd-settled" | "pd-word" | "pd-rows" | "pd-stats" | "pd-made" |
 *   "pd-document" | "pd-documents" | "pd-elsewhere" | "pd-status"} event
 * @param {unknown} [detail]
 */
export function emit(root, event, detail) {
  root.dispatchEvent(new CustomEvent(event, { detail }));
}

/**
 * Call a function with the detail of each such event of the page.
 * @param {HTMLElement} root
 * @param {Parameters<typeof emit>[1]} event
 * @param {(detail: any) => void} action
 */
export function on(root, event, action) {
  root.addEventListener(event, (given) => action(/** @type {CustomEvent} */ (given).detail));
}

/**
 * Draw rows anew, each with its `data-key`, and leave the focus where a reader expects it: on the same control of the same
 * row; at the beginning of the row in its place, if it is gone; on `other`, if none is left.
 * @param {HTMLElement} list
 * @param {() => HTMLElement} other
 * @param {() => void} draw
 */
export function keepFocus(list, other, draw) {
  const rows = () => /** @type {HTMLElement[]} */ ([...list.children]);
  const controls = (/** @type {HTMLElement} */ row) =>
    /** @type {HTMLElement[]} */ ([...row.querySelectorAll("a, button:enabled, input, select")]);
  const focused = /** @type {HTMLElement} */ (document.activeElement);
  const place = rows().findIndex((row) => row.contains(focused));
  const row = rows()[place];
  const fromEnd = row && controls(row).length - controls(row).indexOf(focused);
  draw();
  if (!row || document.activeElement === focused) return;
  const same = rows().find(({ dataset }) => dataset.key === row.dataset.key);
  const next = rows().at(Math.min(place, rows().length - 1));
  const to = same ? controls(same).at(-fromEnd) : next && controls(next)[0];
  (to ?? other()).focus();
}

/**
 * Set an element's text if it differs: even setting the same text costs a layout.
 * @param {Element | null} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/** Show or hide the element that a button controls. @param {HTMLButtonElement} button */
export function disclose(button, open = button.getAttribute("aria-expanded") !== "true") {
  button.setAttribute("aria-expanded", String(open));
  const controlled = document.getElementById(button.getAttribute("aria-controls") ?? "");
  if (controlled) controlled.hidden = !open;
}

/** Whether a dialog takes all keys. Whatever contains it must not be hidden meanwhile: it would stay there, unseen. */
export const dialogIsOpen = () => document.querySelector("dialog:modal") !== null;

/** @param {string[]} keys */
export function keyCaps(keys) {
  return keys.map((key) => `<kbd>${key}</kbd>`).join(" ");
}

/**
 * Set a slider to a value, and write the value beside it.
 * @param {HTMLInputElement} input
 * @param {number} place
 * @param {string} shown
 */
export function drawSlider(input, place, shown) {
  if (Number(input.value) !== Math.min(place, Number(input.max))) input.value = String(place);
  setText(input.parentElement?.querySelector("output") ?? null, shown);
  input.setAttribute("aria-valuetext", shown);
  const fraction = Math.min((place - Number(input.min)) / (Number(input.max) - Number(input.min)), 1);
  input.style.setProperty("--filled", `${fraction * 100}%`);
}
