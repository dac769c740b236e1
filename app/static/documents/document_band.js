// @ts-check
/** The band above the text: what the page says about the open document as long as it is so, each with a button. */

import { MOST_EDITED } from "./document.js";
import { finder } from "../shared/dom.js";

/**
 * @param {HTMLElement} root
 * @param {import("./documents.js").Documents} documents
 * @param {{textarea: HTMLTextAreaElement, toast: import("../editor/notices.js").Notices["toast"]}} page
 */
export function setUpDocumentBand(root, documents, { textarea, toast }) {
  const find = finder(root);
  const long = find(".bd-long");
  const divide = /** @type {HTMLButtonElement} */ (find("[data-do=divide]"));

  const most = MOST_EDITED.toLocaleString("en");
  find(".bd-long span").textContent = `This text has more than ${most} characters, so it can be read and not edited.`;

  function draw() {
    long.hidden = !textarea.readOnly;
  }

  divide.addEventListener("click", async () => {
    divide.disabled = true; // a second click would divide the first part
    try {
      toast(await documents.divide(), { long: true });
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error), { long: true });
    } finally {
      divide.disabled = false;
    }
  });
  for (const name of ["pd-text", "pd-document"]) root.addEventListener(name, draw);
  draw();
}
