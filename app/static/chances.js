// @ts-check
/** How the percentages of the drafts are shown: as numbers, as faint bars, or not at all. */

const KEPT = "polydraft.percentages";

/** @param {HTMLElement} root */
export function setUpChances(root) {
  const select = /** @type {HTMLSelectElement} */ (root.querySelector("#pd-chances"));
  const show = () => (root.dataset.chances = select.value);
  try {
    const kept = localStorage.getItem(KEPT);
    if ([...select.options].some(({ value }) => value === kept)) select.value = String(kept);
  } catch {
    // No storage allowed: numbers, until something else is chosen.
  }
  select.addEventListener("change", () => {
    show();
    try {
      localStorage.setItem(KEPT, select.value);
    } catch {
      // The choice lasts as long as the page.
    }
  });
  root.addEventListener("pd-reset", () => {
    select.selectedIndex = 0;
    select.dispatchEvent(new Event("change"));
  });
  show();
}
