// @ts-check
/** The setting that shows how likely drafts are: by the strength of their ink, numbers, faint bars, or not at all. */

import { attempt } from "../shared/memory.js";

const KEPT = "polydraft.percentages";

/** @param {HTMLElement} root */
export function setUpChances(root) {
  const select = /** @type {HTMLSelectElement} */ (root.querySelector("#pd-chances"));
  const show = () => (root.dataset.chances = select.value);
  const kept = attempt(() => localStorage.getItem(KEPT));
  if ([...select.options].some(({ value }) => value === kept)) select.value = String(kept);
  select.addEventListener("change", () => {
    show();
    attempt(() => localStorage.setItem(KEPT, select.value));
  });
  root.addEventListener("pd-reset", () => {
    select.selectedIndex = 0;
    select.dispatchEvent(new Event("change"));
  });
  show();
}
