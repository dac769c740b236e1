// @ts-check
/** The tabs Write and My writing. The second is loaded when it is first opened. */

import { ServerError } from "./transport.js";

/**
 * @param {HTMLElement} root
 * @param {import("./editor.js").Editor} editor
 * @param {import("./learning.js").Learning} learning
 */
export function setUpTabs(root, editor, learning) {
  const [write, stores] = /** @type {HTMLButtonElement[]} */ ([...root.querySelectorAll("[role=tab]")]);
  /** @type {Promise<{refresh: () => Promise<void>}> | null} */
  let panel = null;

  /** @param {HTMLButtonElement} tab */
  async function show(tab) {
    for (const one of [write, stores]) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
    }
    root.dataset.tab = tab === stores ? "stores" : "write";
    if (tab === write) {
      // The stores may have changed, so cached answers are outdated.
      editor.forgetAnswers();
      learning.refresh({ anew: true });
      if (matchMedia("(pointer: fine)").matches) editor.textarea.focus();
      if (editor.before() !== null) editor.requestDrafts({});
      return;
    }
    editor.abort();
    panel ??= import("./stores.js").then((module) => module.open(root, learning));
    try {
      await (await panel).refresh();
    } catch (error) {
      panel = null; // the next click tries again
      const noConnection = "My writing cannot be opened: there is no connection to Polydraft.";
      editor.notices.toast(error instanceof ServerError ? error.message : noConnection);
      show(write);
    }
  }

  for (const tab of [write, stores]) {
    tab.addEventListener("click", () => show(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = tab === write ? stores : write;
      event.preventDefault();
      show(other);
      other.focus();
    });
  }
}
