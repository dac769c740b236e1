// @ts-check
/** Takes drafts: inserts one, or the beginning of one, into the text. */

import { firstWord, fitted, restOf } from "./drafting.js";
import { emit } from "../shared/dom.js";
import { ANDROID } from "../shared/platform.js";

export class Taking {
  /**
   * @param {HTMLElement} root
   * @param {import("./text_field.js").TextField} field
   * @param {() => import("./rows.js").Row[]} rows
   * @param {import("./revisiting.js").Revisiting} revisiting
   * @param {{pace: import("./pace.js").Pace, shownFor: (lineage: number) => number}} measured `shownFor`: for how many ms a
   *   draft has been shown
   */
  constructor(root, field, rows, revisiting, { pace, shownFor }) {
    this.root = root;
    this.field = field;
    this.rows = rows;
    this.revisiting = revisiting;
    this.pace = pace;
    this.shownFor = shownFor;
    /** The draft of which a word was taken last. */
    this.lineage = 0;
  }

  /**
   * Take a draft, or its first `length` characters. Every key, click and tap calls this, and only this checks that the
   * draft continues the present text.
   * @param {number} i
   * @param {number} length
   * @param {"text" | "word"} what whether it is only the first word
   * @returns {boolean} whether it was taken
   */
  take(i, length = Infinity, what = "text") {
    const { field, revisiting } = this;
    const rows = this.rows();
    const row = rows[i];
    if (!row?.live || !row.draft || (field.composing && !ANDROID)) return false;
    const { value, selectionStart, selectionEnd } = field.textarea;
    if (selectionStart !== selectionEnd && !revisiting.here()) return false;
    const { context } = field.parts;
    const before = context + value.slice(0, selectionStart);
    if (restOf(row.draft, before) !== row.rest) return false;
    const text = fitted(row.rest.slice(0, length), value.slice(selectionEnd));
    if (!text) return false;
    const { lineage, replace = 0 } = row.draft;
    // The writer would have deleted the letters that it replaces.
    this.pace.taken(text.length + replace, this.shownFor(lineage), what === "word" && lineage === this.lineage);
    this.lineage = what === "word" ? lineage : 0;
    const kept = before.slice(0, before.length - replace);
    if (replace) {
      // The draft's letters take the place of those with the slip; what is left of it continues the corrected text.
      row.draft = { ...row.draft, replace: 0, anchor: kept, origin: kept.length };
      field.textarea.setSelectionRange(kept.length - context.length, selectionStart);
    } else revisiting.taken(before, text, rows, what === "word");
    field.insert(text, what);
    if (length >= row.rest.length) emit(this.root, "pd-taken", { before: kept, text });
    return true;
  }

  /**
   * Take the first word of a draft; its rest stays in the list.
   * @param {number} i
   */
  takeWord(i) {
    const row = this.rows()[i];
    return row ? this.take(i, firstWord(row.rest).length, "word") : false;
  }
}
