// @ts-check
/**
 * Takes drafts: inserts one, or the beginning of one, into the text. What is inserted is what the writer has read: the
 * text that stood there 200 ms before the key (seen.js). What has been added to it since stays on the page as a draft. If
 * nothing was there yet, or it does not continue the text any more, nothing is inserted.
 */

import { firstWord, fitted, upToWord } from "./drafting.js";
import { placeOf } from "./seen.js";
import { emit } from "../shared/dom.js";
import { ANDROID } from "../shared/platform.js";

/** @typedef {import("./seen.js").Read} Read */

export class Taking {
  /**
   * @param {HTMLElement} root
   * @param {{field: import("./text_field.js").TextField, view: import("./drafts_view.js").DraftsView,
   *          revisiting: import("./revisiting.js").Revisiting, pace: import("./pace.js").Pace}} parts
   * @param {() => void} tooNew called when a draft is not taken because it has just appeared or changed
   */
  constructor(root, { field, view, revisiting, pace }, tooNew) {
    this.root = root;
    this.field = field;
    this.view = view;
    this.revisiting = revisiting;
    this.pace = pace;
    this.tooNew = tooNew;
    /** The draft of which a word was taken last. */
    this.lineage = 0;
  }

  /** When the key was pressed. */
  get at() {
    return this.field.pressed ?? performance.now();
  }

  /** What `takeBest` takes, or null. */
  get best() {
    return this.view.best(this.at);
  }

  /**
   * Take the best draft, or the one that the writer has selected.
   * @returns {boolean} whether the key is used: a draft that has just appeared is not taken, but Tab stays in the text
   */
  takeBest() {
    return this.take(this.best) || this.refuses(this.view.active);
  }

  /** Take the first word of it; its rest stays in the list. */
  takeWordOfBest() {
    return this.takeWord(this.best) || this.refuses(this.view.active);
  }

  /** Take the draft of a row. @param {number} i */
  takeRow(i) {
    return this.take(this.row(i)) || this.refuses(i);
  }

  /** Take its first word. @param {number} i */
  takeWordOfRow(i) {
    return this.takeWord(this.row(i)) || this.refuses(i);
  }

  /**
   * A row is clicked: take its draft up to the end of the word there. If the row has changed since it was read, that is
   * the word of the earlier text at the same place.
   * @param {number} i
   * @param {number | null} offset of the character; null: beside the text, which takes all of it
   * @param {number} pressed when the pointer went down
   */
  click(i, offset, pressed) {
    this.field.keyDown(pressed);
    const read = this.row(i);
    const length = read && offset !== null ? upToWord(read.text, Math.min(offset, read.text.length - 1)) : Infinity;
    return this.take(read, length) || this.refuses(i);
  }

  /** @param {number} i */
  row(i) {
    return this.view.seen.read(placeOf(i), this.field.head, this.at);
  }

  /** @param {Read | null} read */
  takeWord(read) {
    return read ? this.take(read, firstWord(read.text).length, "word") : false;
  }

  /**
   * Say that a row is too new to be taken.
   * @param {number} i
   * @returns {boolean} whether there is one
   */
  refuses(i) {
    const { view } = this;
    if (!view.rows.all[i]?.live || !view.shows(i) || this.row(i)) return false;
    this.tooNew();
    return true;
  }

  /**
   * Insert a draft as it was read, or its first `length` characters. Every key, click and tap calls this.
   * @param {Read | null} read
   * @param {number} length
   * @param {"text" | "word"} what whether it is only the first word
   * @returns {boolean} whether it was inserted
   */
  take(read, length = Infinity, what = "text") {
    const { field, revisiting, view } = this;
    if (!read || (field.composing && !ANDROID)) return false;
    const { value, selectionStart, selectionEnd } = field.textarea;
    if (selectionStart !== selectionEnd && !revisiting.here()) return false;
    if (value !== field.text) return false; // a program has changed it within this task
    const text = fitted(read.text.slice(0, length), value.slice(selectionEnd));
    if (!text) return false;
    const { lineage, replace = 0 } = read.draft;
    // The writer would have deleted the letters that it replaces.
    const further = what === "word" && lineage === this.lineage;
    this.pace.taken(text.length + replace, this.at - read.since(text.length), further);
    this.lineage = what === "word" ? lineage : 0;
    const before = field.head;
    const kept = before.slice(0, before.length - replace);
    if (replace) {
      // The draft's letters take the place of those with the slip; what is left of it continues the corrected text.
      Object.assign(read.draft, { replace: 0, anchor: kept, origin: kept.length });
      field.textarea.setSelectionRange(kept.length, selectionStart);
    } else revisiting.taken(before, text, view.rows.all, what === "word");
    field.insert(text, what);
    if (length >= read.text.length) emit(this.root, "pd-taken", { before: kept, text });
    return true;
  }
}
