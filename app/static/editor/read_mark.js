// @ts-check
/**
 * A mark in the margin where the model begins to read: what stands above it does not change the drafts. Pointing at it
 * says so in a sentence, and how much of the background is not read; so does a click or a tap. There is none while the
 * model reads everything.
 */

import { cropped } from "./drafting.js";
import { wordsIn } from "../documents/document.js";
import { newButton, on } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";

const DRAWN_AFTER = 300; // ms without an answer: locating another place than the caret's costs a layout

/** What an answer says of it. @typedef {{before: string, skipped?: number, background_skipped?: number, window?: number}} Answer */

export class ReadMark {
  /**
   * @param {HTMLElement} root
   * @param {{field: import("./text_field.js").TextField, notices: import("./notices.js").Notices}} parts
   */
  constructor(root, { field, notices }) {
    this.field = field;
    this.timers = new Timers();
    this.mark = newButton("", () => notices.toast(this.mark.title, { long: true }), { className: "pd-reads" });
    this.mark.tabIndex = -1;
    this.mark.hidden = true;
    /** Where the model begins to read; null: nothing is skipped. @type {number | null} */
    this.begin = null;
    /** The mark's y in the text, in px. */
    this.y = 0;
    field.textarea.after(this.mark);
    on(root, "pd-stats", (answer) => this.read(answer));
    on(root, "pd-text", ({ opened }) => {
      if (!opened) return;
      this.begin = null;
      this.draw();
    });
    field.textarea.addEventListener("scroll", () => this.follow(), { passive: true });
    new ResizeObserver(() => this.drawLater()).observe(field.textarea, { box: "border-box" });
  }

  /** @param {Answer} answer */
  read({ before, skipped = 0, background_skipped: background = 0, window: tokens = 0 }) {
    const sent = cropped(before);
    const begin = before.length - sent.length + units(sent, skipped);
    this.begin = begin || background ? begin : null;
    this.mark.title = saying({ words: wordsIn(before.slice(begin)), above: begin > 0, background, tokens });
    this.mark.setAttribute("aria-label", this.mark.title);
    this.drawLater();
  }

  drawLater() {
    this.timers.later("draw", DRAWN_AFTER, () => this.draw());
  }

  draw() {
    const { text, map } = this.field;
    const place = this.begin === null ? null : map.locate(text, Math.min(this.begin, text.length));
    this.mark.hidden = place === null;
    if (!place) return;
    this.y = map.column().top + place.y;
    this.follow();
  }

  follow() {
    this.mark.style.transform = `translateY(${this.y - this.field.textarea.scrollTop}px)`;
  }
}

/**
 * The length of the first `n` characters of a text in UTF-16 units.
 * @param {string} text
 * @param {number} n
 */
function units(text, n) {
  let at = 0;
  for (let left = n; left > 0 && at < text.length; left--) at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
  return at;
}

/**
 * What the mark means.
 * @param {{words: number, above: boolean, background: number, tokens: number}} read `words`: from the mark to the caret;
 *   `above`: whether text above the mark is not read; `background`: characters of it that are not read; `tokens`: that the
 *   model reads at most
 */
export function saying({ words, above, background, tokens }) {
  const most = `It reads at most ${tokens.toLocaleString("en")} tokens.`;
  const text = above
    ? `The model reads from here to the caret, ${words.toLocaleString("en")} words; what stands above does not change the drafts.`
    : "The model reads your text from here on.";
  const cut = background ? ` Of the background it does not read the first ${background.toLocaleString("en")} characters.` : "";
  return `${text}${cut} ${most}`;
}
