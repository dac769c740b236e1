// @ts-check
/** The tabs Write and My writing. The panel of the second is loaded when it is first opened. */

import { ServerError } from "./transport.js";

/**
 * @param {HTMLElement} root
 * @param {() => Promise<{refresh: () => Promise<void>}>} load loads the panel of the second tab
 * @param {{write: () => void, leave: () => void, toast: (message: string) => void}} page `write`: the first tab is shown
 *   again; `leave`: the second is shown in its place
 */
export function setUpTabs(root, load, page) {
  const [write, stores] = /** @type {HTMLButtonElement[]} */ ([...root.querySelectorAll("[role=tab]")]);
  /** @type {Promise<{refresh: () => Promise<void>}> | null} */
  let panel = null;

  /** @param {HTMLButtonElement} tab */
  async function show(tab) {
    for (const button of [write, stores]) {
      button.setAttribute("aria-selected", String(button === tab));
      button.tabIndex = button === tab ? 0 : -1;
    }
    root.dataset.tab = tab === stores ? "stores" : "write";
    if (tab === write) {
      page.write();
      return;
    }
    page.leave();
    panel ??= load();
    try {
      await (await panel).refresh();
    } catch (error) {
      panel = null; // the next click tries again
      const noConnection = "My writing cannot be opened: there is no connection to Polydraft.";
      page.toast(error instanceof ServerError ? error.message : noConnection);
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
