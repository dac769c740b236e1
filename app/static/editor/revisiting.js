// @ts-check
/**
 * Goes back to places where drafts were taken: selects the draft that was taken and shows the list of that moment again.
 * Taking another row replaces the draft; any other key leaves the text unchanged.
 */

/** @typedef {import("./rows.js").Row} Row */

/** A draft that was taken, or a part of one. @typedef {{before: string, text: string, rows: Row[]}} Taken */

const MOST = 100; // taken drafts that are stored
const ROOM = 40_000_000; // characters in all their `before`

export class Revisiting {
  /**
   * @param {HTMLTextAreaElement} textarea
   * @param {(start: number, end: number, rows: Row[]) => void} showAgain shows these rows and selects the draft in the text
   */
  constructor(textarea, showAgain) {
    this.textarea = textarea;
    this.showAgain = showAgain;
    /** In the order in which they were taken. @type {Taken[]} */
    this.list = [];
    /** The index of the draft that is shown again, and the caret before that. @type {{at: number, caret: number} | null} */
    this.now = null;
  }

  /**
   * Store a draft that is about to be taken.
   * @param {string} before
   * @param {string} text
   * @param {Row[]} rows
   * @param {boolean} word whether it is only the first word of the draft
   */
  taken(before, text, rows, word) {
    // A draft taken word by word is stored as one.
    const last = this.list.at(-1);
    const continues = last && last.before + last.text === before && word && last.rows.some(
      ({ draft, rest }) => draft && (last.text + text) === rest.slice(0, last.text.length + text.length),
    );
    if (continues) last.text += text;
    else this.list.push({ before, text, rows: rows.map((row) => ({ ...row })) });
    const room = () => this.list.reduce((sum, { before }) => sum + before.length, 0);
    while (this.list.length > MOST || (this.list.length > 1 && room() > ROOM)) this.list.shift();
  }

  /** Whether the selection is the draft that is shown again. */
  here() {
    if (!this.now) return false;
    const { before, text } = this.list[this.now.at];
    const { selectionStart, selectionEnd } = this.textarea;
    return selectionStart === before.length && selectionEnd === before.length + text.length;
  }

  end() {
    this.now = null;
  }

  forget() {
    this.end();
    this.list.length = 0;
  }

  /**
   * Go to the draft taken before the caret, or, with `by` 1, to the next one and finally to the caret's old position.
   * @param {-1 | 1} by
   * @returns {boolean} whether the key was used
   */
  walk(by) {
    const { value, selectionStart } = this.textarea;
    const unchanged = (/** @type {Taken} */ { before, text }) => value.slice(0, before.length + text.length) === before + text;
    const caret = this.now?.caret ?? selectionStart;
    if (by > 0 && !this.now) return false;
    let at = this.now?.at ?? this.list.length;
    do at += by;
    while (this.list[at] && (!unchanged(this.list[at]) || this.list[at].before.length >= caret));
    if (at < 0) return this.list.length > 0; // no earlier draft: the browser's "back" must not leave the page
    if (!this.list[at]) {
      this.end();
      this.textarea.setSelectionRange(caret, caret);
      return true;
    }
    this.now = { at, caret };
    const { before, text, rows } = this.list[at];
    this.showAgain(before.length, before.length + text.length, rows);
    return true;
  }
}
