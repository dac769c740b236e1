// @ts-check
/** The section *Background* of a document: text that the model reads before the document, and that is no part of it. */

import { wordsIn } from "./document.js";
import { on, part, setText } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

export const MOST_BACKGROUND = 1 << 18; // UTF-16 units: the limit of app/documents/notes.py

/**
 * @param {HTMLElement} root
 * @param {import("./documents.js").Documents} documents
 * @param {import("../editor/drafts_controller.js").DraftsController} drafts
 */
export function setUpBackground(root, documents, drafts) {
  const section = /** @type {HTMLDetailsElement} */ (root.querySelector(".dc-background"));
  const box = part(section, "textarea");
  const size = part(section, "summary small");
  const problem = part(section, "[role=alert]");
  let shown = "";
  let skipped = 0; // characters that the model does not read
  let tooLong = false; // then the box has a text that is not the document's

  function draw() {
    const { id, background } = documents.current;
    if (id !== shown) {
      section.open = false;
      skipped = 0;
      tooLong = false;
    }
    shown = id;
    if (box.value !== background && !tooLong) box.value = background;
    problem.hidden = !tooLong;
    const most = MOST_BACKGROUND.toLocaleString("en");
    setText(problem, tooLong ? `This text has ${box.value.length.toLocaleString("en")} characters, and a background at most ${most}. Shorten it; until then the earlier one is used and kept.` : "");
    const words = wordsIn(background);
    const cut = words && skipped ? `, without the first ${skipped.toLocaleString("en")} characters, which are not read` : "";
    setText(size, words ? `${plural(words, "word")}${cut}` : "");
  }

  box.addEventListener("input", () => {
    tooLong = box.value.length > MOST_BACKGROUND;
    if (!tooLong) {
      documents.change({ background: box.value });
      drafts.forgetAnswers();
    }
    draw();
  });
  box.addEventListener("change", () => drafts.settingsChanged()); // the model reads all of it
  root.addEventListener("pd-document", draw);
  on(root, "pd-stats", ({ background_skipped: now = 0 }) => {
    if (now === skipped) return;
    skipped = now;
    draw();
  });
  draw();
}
