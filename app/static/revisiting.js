// @ts-check
/**
 * Going back to where drafts were taken. The draft that was taken is selected there, and the rows it was one of are
 * shown again; taking another row replaces it, any other key leaves the text as it is.
 */

/** @typedef {import("./places.js").Row} Row */

/** A draft that was taken, or a part of one. @typedef {{before: string, text: string, rows: Row[]}} Taken */

const MOST = 100; // remembered
const ROOM = 40_000_000; // characters of text that they may hold on to

export class Revisiting {
  /** @param {import("./editor.js").Editor} editor */
  constructor(editor) {
    this.editor = editor;
    /** In the order in which they were taken. @type {Taken[]} */
    this.list = [];
    /** The one that is looked at again, and where the caret was before. @type {{at: number, caret: number} | null} */
    this.now = null;
  }

  /**
   * A draft is about to be taken.
   * @param {string} before
   * @param {string} text
   */
  taken(before, text) {
    const { rows } = this.editor;
    // Word by word, one draft is one place to come back to.
    const last = this.list.at(-1);
    const goesOn = last && last.before + last.text === before && this.editor.takingWord && last.rows.some(
      ({ draft, rest }) => draft && (last.text + text) === rest.slice(0, last.text.length + text.length),
    );
    if (goesOn) last.text += text;
    else this.list.push({ before, text, rows: rows.map((row) => ({ ...row })) });
    const room = () => this.list.reduce((sum, { before }) => sum + before.length, 0);
    while (this.list.length > MOST || (this.list.length > 1 && room() > ROOM)) this.list.shift();
  }

  /** Whether the draft that is looked at again is what is selected. */
  here() {
    if (!this.now) return false;
    const { before, text } = this.list[this.now.at];
    const { selectionStart, selectionEnd } = this.editor.textarea;
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
   * To the draft taken before this place, or, `by` 1, back to the next one and at last to where one came from.
   * @param {-1 | 1} by
   * @returns {boolean} whether the key is ours
   */
  walk(by) {
    const { editor } = this;
    const { value, selectionStart } = editor.textarea;
    const stands = (/** @type {Taken} */ { before, text }) => value.slice(0, before.length + text.length) === before + text;
    const caret = this.now?.caret ?? selectionStart;
    if (by > 0 && !this.now) return false;
    let at = this.now?.at ?? this.list.length;
    do at += by;
    while (this.list[at] && (!stands(this.list[at]) || this.list[at].before.length >= caret));
    if (at < 0) return this.list.length > 0; // nothing further back: the key shall not leave the page
    if (!this.list[at]) {
      this.end();
      editor.textarea.setSelectionRange(caret, caret);
      return true;
    }
    this.now = { at, caret };
    const { before, text, rows } = this.list[at];
    editor.showAgain(before.length, before.length + text.length, rows);
    return true;
  }
}
