// @ts-check
/** Stores the choices of the sampling panel in the browser for the next visit. */

import { attempt } from "./memory.js";

const KEPT = "polydraft.sampling";

export function isKept() {
  return recall() !== null;
}

/** @returns {any} the choices of the last visit, or null */
export function recall() {
  return attempt(() => JSON.parse(localStorage.getItem(KEPT) ?? "null"));
}

/** @param {object | null} choice null deletes the kept choices */
export function keep(choice) {
  attempt(() => (choice ? localStorage.setItem(KEPT, JSON.stringify(choice)) : localStorage.removeItem(KEPT)));
}
