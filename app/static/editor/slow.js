// @ts-check
/**
 * Says that the server is slow: after two seconds without an answer the drafts on the page are dim, because they are
 * those of an earlier text, and a word says why nothing newer comes. A key that replaces the request does not begin a
 * new wait, so whoever types on learns it, too.
 */

import { part } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";

const SLOW_AFTER = 2000; // ms

export class Slow {
  /**
   * @param {HTMLElement} root
   * @param {() => void} shown called when it says so
   */
  constructor(root, shown) {
    this.root = root;
    this.shown = shown;
    this.word = part(root, ".pd-slow");
    this.timers = new Timers();
    this.waiting = false;
  }

  /** A request was sent. */
  waits() {
    if (!this.waiting) this.timers.later("slow", SLOW_AFTER, () => this.show(true));
    this.waiting = true;
  }

  /** The server has answered, or nobody waits for an answer. */
  ends() {
    if (!this.waiting) return;
    this.waiting = false;
    this.timers.stop("slow");
    this.show(false);
  }

  /** @param {boolean} slow */
  show(slow) {
    this.root.toggleAttribute("data-slow", slow);
    this.word.hidden = !slow;
    if (slow) this.shown();
  }
}
