// @ts-check
/** Two tabs, Write and My writing. Nothing of the second is loaded before somebody opens it. */

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
      // What was added or forgotten meanwhile counts at once.
      editor.forgetAnswers();
      learning.ask({ anew: true });
      if (matchMedia("(pointer: fine)").matches) editor.textarea.focus();
      if (editor.before() !== null) editor.ask({});
      return;
    }
    editor.abort();
    panel ??= import("./stores.js").then((module) => module.open(root, learning));
    try {
      await (await panel).refresh();
    } catch (error) {
      panel = null; // a lost connection; the next click tries again
      const said = error instanceof ServerError ? error.message : "My writing cannot be opened: there is no connection to Polydraft.";
      editor.toast(said);
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
