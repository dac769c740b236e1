// @ts-check
/** The section *Background* of a document: text that the model reads before the document, and that is no part of it. */

import { setText } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

/**
 * @param {HTMLElement} root
 * @param {import("./documents.js").Documents} documents
 * @param {{forgetAnswers: () => void, settingsChanged: () => void}} drafts
 */
export function setUpBackground(root, documents, drafts) {
  const section = /** @type {HTMLDetailsElement} */ (root.querySelector(".dc-background"));
  const box = /** @type {HTMLTextAreaElement} */ (section.querySelector("textarea"));
  const size = /** @type {HTMLElement} */ (section.querySelector("summary small"));
  let shown = "";

  function draw() {
    const { id, background } = documents.current;
    if (id !== shown) section.open = false;
    shown = id;
    if (box.value !== background) box.value = background;
    const words = background.match(/\S+/g)?.length ?? 0;
    setText(size, words ? plural(words, "word") : "");
  }

  box.addEventListener("input", () => {
    documents.setBackground(box.value);
    draw();
    drafts.forgetAnswers();
  });
  box.addEventListener("change", () => drafts.settingsChanged()); // once it is written: the model reads all of it
  root.addEventListener("pd-document", draw);
  draw();
}
