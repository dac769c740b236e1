// @ts-check
/** Keeps the newest complete answers by the text that was sent, for going back by backspace and undo. */

import { cropped } from "./drafting.js";

/**
 * A complete answer. `pays`: the rows that save time, best first, each up to where it is worth showing; `ghost`: the
 * number of the best row.
 * @typedef {{drafts: import("./drafting.js").Draft[], pays?: Paying[], ghost?: number | null}} Answer
 * @typedef {{id: number, text: string, chance: number, saved_ms: number}} Paying
 */

const MOST = 16;

/** @param {string} before @param {string} after */
const keyOf = (before, after) => `${cropped(before)}\0${after}`;

export class Answers {
  constructor() {
    /** The oldest first. @type {Map<string, Answer>} */
    this.kept = new Map();
  }

  /** @param {string} before @param {string} after */
  recall(before, after) {
    return this.kept.get(keyOf(before, after));
  }

  /** @param {{before: string, after: string}} request @param {Answer} answer */
  keep({ before, after }, { drafts, pays, ghost }) {
    const key = keyOf(before, after);
    this.kept.delete(key);
    this.kept.set(key, { drafts, pays, ghost });
    if (this.kept.size > MOST) this.kept.delete(this.kept.keys().next().value ?? key);
  }

  clear() {
    this.kept.clear();
  }
}
