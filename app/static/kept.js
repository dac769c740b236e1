// @ts-check
/** What the sampling panel keeps for the next visit, in the browser's storage. */

const KEPT = "polydraft.sampling";

export function isKept() {
  return recall() !== null;
}

/** @returns {any} what the last visit chose, or null */
export function recall() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "null");
  } catch {
    return null; // no storage allowed, or damaged: nothing kept
  }
}

/** @param {object | null} choice null forgets it */
export function keep(choice) {
  try {
    if (choice) localStorage.setItem(KEPT, JSON.stringify(choice));
    else localStorage.removeItem(KEPT);
  } catch {
    // Storage is full or switched off: the choice lasts as long as the page.
  }
}
