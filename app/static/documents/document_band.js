// @ts-check
/** The band above the text: what the page says about the open document as long as it is so, each with a button. */

import { MOST_EDITED } from "./document.js";
import { finder } from "../shared/dom.js";

/**
 * @param {HTMLElement} root
 * @param {import("./documents.js").Documents} documents
 * @param {import("../editor/start.js").Editor} editor
 */
export function setUpDocumentBand(root, documents, { textarea, notices }) {
  const find = finder(root);
  const long = find(".bd-long");
  const unsure = find(".bd-unsure");

  const most = MOST_EDITED.toLocaleString("en");
  find(".bd-long span").textContent = `This text has more than ${most} characters, so it can be read and not edited.`;

  function draw() {
    long.hidden = !textarea.readOnly;
    unsure.hidden = !documents.current.unsure;
  }

  /**
   * @param {string} name of the button
   * @param {() => Promise<string>} action returns what was done, for the writer
   */
  function onClick(name, action) {
    const button = /** @type {HTMLButtonElement} */ (find(`[data-do=${name}]`));
    button.addEventListener("click", async () => {
      button.disabled = true; // a second click would divide the first part, too
      try {
        notices.toast(await action(), { long: true });
      } catch (error) {
        notices.toast(error instanceof Error ? error.message : String(error), { long: true });
      } finally {
        button.disabled = false;
      }
    });
  }

  onClick("divide", () => documents.divide());
  onClick("make-public", async () => {
    await documents.makePublic(documents.current.id);
    draw();
    return `“${documents.title}” is not private: stores that learn may learn it.`;
  });
  for (const name of ["pd-text", "pd-document"]) root.addEventListener(name, draw);
  draw();
}
