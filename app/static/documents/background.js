// @ts-check
/** The section *Background* of a document: text that the model reads before the document, and that is no part of it. */

import { setText } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

/**
 * @param {HTMLElement} root
 * @param {{current: () => {id: string, background: string}, set: (text: string) => void, written: () => void}} page
 *   `current`: the open document; `set`: called with its background at every key; `written`: called once that is over
 */
export function setUpBackground(root, { current, set, written }) {
  const section = /** @type {HTMLDetailsElement} */ (root.querySelector(".dc-background"));
  const box = /** @type {HTMLTextAreaElement} */ (section.querySelector("textarea"));
  const size = /** @type {HTMLElement} */ (section.querySelector("summary small"));
  let shown = "";

  function draw() {
    const { id, background } = current();
    if (id !== shown) section.open = false;
    shown = id;
    if (box.value !== background) box.value = background;
    const words = background.match(/\S+/g)?.length ?? 0;
    setText(size, words ? plural(words, "word") : "");
  }

  box.addEventListener("input", () => {
    set(box.value);
    draw();
  });
  box.addEventListener("change", written);
  root.addEventListener("pd-document", draw);
  draw();
}
