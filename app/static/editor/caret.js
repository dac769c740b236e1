// @ts-check
/**
 * Where the caret of a <textarea> is, in pixels. Browsers have no interface for that, so a hidden copy of the text is
 * laid out with the same font and width. To keep typing fast, only the current paragraph is laid out (in a very long
 * one, only the lines near the caret); the height of everything above is cached.
 */

import { isRightToLeft } from "./drafting.js";

/** @typedef {{x: number, y: number, lineHeight: number, width: number, rtl: boolean}} Place */

// Characters of a paragraph above which measuring starts at a cached line start near the caret.
const LONG = 3000;
// An edit can still move the breaks of lines this close to the caret's line.
const CLOSE = 3;
// Characters above which no ghost text is laid out: that would take too long.
const TOO_LONG = 400_000;

export class CaretMap {
  /**
   * @param {HTMLTextAreaElement} textarea
   * @param {HTMLElement} mirror an element with the same font, hidden, in the same container
   */
  constructor(textarea, mirror) {
    this.textarea = textarea;
    this.mirror = mirror;
    this.head = document.createTextNode("");
    this.marker = document.createElement("span");
    this.tail = document.createTextNode("");
    mirror.replaceChildren(this.head, this.marker, this.tail);
    /** Whether the first paragraph decides the direction of the whole text, instead of each paragraph its own. */
    this.oneDirection = false;
    /** Height in px of all text before a paragraph. @type {{before: string, y: number}} */
    this.paragraph = { before: "", y: 0 };
    /**
     * The paragraph that was located last, and the height above it: a long text is not compared at every drawing.
     * @type {{text: string, start: number, y: number | null}}
     */
    this.latest = { text: "", start: -1, y: null };
    this.reset();
  }

  /** Clear all measurements: call when width or font have changed. */
  reset() {
    this.paragraph = { before: "", y: 0 };
    this.latest = { text: "", start: -1, y: null };
    /** A line start inside a long paragraph, and its y. @type {{before: string, y: number} | null} */
    this.line = null;
    this.metrics = null;
  }

  /** The text column: its left edge and width inside the textarea's border box, and the height of one line. */
  column() {
    if (!this.metrics) {
      const style = getComputedStyle(this.textarea);
      const left = parseFloat(style.paddingLeft);
      const gutter = style.scrollbarGutter.includes("both-edges")
        ? (this.textarea.offsetWidth - this.textarea.clientWidth) / 2
        : 0;
      this.metrics = {
        left: left + gutter,
        top: parseFloat(style.paddingTop),
        width: this.textarea.clientWidth - left - parseFloat(style.paddingRight),
        lineHeight: parseFloat(style.lineHeight),
        fontSize: parseFloat(style.fontSize),
      };
      this.mirror.style.width = `${this.metrics.width}px`;
    }
    return this.metrics;
  }

  /**
   * @param {string} text
   * @param {number} caret
   * @returns {Place | null} relative to the text column's top left corner; null where measuring would be too slow
   */
  locate(text, caret) {
    const { width, lineHeight } = this.column();
    const start = text.lastIndexOf("\n", caret - 1) + 1;
    const side = this.oneDirection ? 0 : start;
    const rtl = isRightToLeft(text.slice(side, side + 2000));
    if (text !== this.latest.text || start !== this.latest.start) {
      this.latest = { text, start, y: this.paragraphTop(text.slice(0, start)) };
    }
    const { y: top } = this.latest;
    if (top === null) return null;

    const before = text.slice(0, caret);
    // The characters up to the next space belong to the same word, so they affect where the line wraps.
    const word = text.slice(caret, caret + 200).match(/^\S+/)?.[0] ?? "\u200b";
    const from = (/** @type {{before: string, y: number}} */ anchor) => {
      if (caret - anchor.before.length > TOO_LONG) return null;
      return { anchor, ...this.measure(text.slice(anchor.before.length, caret), word, rtl) };
    };
    let measured = null;
    if (caret - start > LONG && this.line && this.line.before.length > start && before.startsWith(this.line.before)) {
      measured = from(this.line);
    }
    if (!measured || measured.line < CLOSE) measured = from({ before: text.slice(0, start), y: top });
    if (!measured) return null;
    const { anchor, x, line } = measured;
    const place = { x, y: anchor.y + line * lineHeight, lineHeight, width, rtl };
    if (caret - start > LONG) this.rememberLine(before, anchor, line);
    return place;
  }

  /**
   * Layout of `before` + `after`: the caret's x and the index of its line.
   * @param {string} before
   * @param {string} after
   * @param {boolean} rtl
   */
  measure(before, after, rtl) {
    this.mirror.dir = rtl ? "rtl" : "ltr";
    this.head.data = before;
    this.tail.data = after;
    const box = this.mirror.getBoundingClientRect();
    const mark = this.marker.getBoundingClientRect();
    return {
      x: mark.left - box.left,
      line: Math.floor((mark.top + mark.height / 2 - box.top) / this.column().lineHeight),
    };
  }

  /**
   * Height in px of whole paragraphs, computed from the cached one.
   * @param {string} before ends with a line end, or is empty
   * @returns {number | null}
   */
  paragraphTop(before) {
    const known = this.paragraph;
    let y;
    if (before.startsWith(known.before)) y = add(known.y, this.height(before.slice(known.before.length)));
    else if (known.before.startsWith(before)) y = add(known.y, this.height(known.before.slice(before.length)), -1);
    else y = this.height(before);
    if (y === null) return null;
    if (before !== known.before) this.line = null;
    this.paragraph = { before, y };
    return y;
  }

  /** @param {string} paragraphs @returns {number | null} */
  height(paragraphs) {
    if (!paragraphs) return 0;
    if (paragraphs.length > 2 * TOO_LONG) return null;
    this.mirror.removeAttribute("dir");
    this.head.data = paragraphs;
    this.tail.data = "";
    return this.mirror.getBoundingClientRect().height;
  }

  /**
   * After measuring in a long paragraph: cache the start of a line some lines above the caret, so that the next key
   * measures only from there. Lines break greedily, so the layout after a line start does not depend on the text before
   * it. The lines close to the caret's are not used, because an edit can still move their breaks.
   * @param {string} before
   * @param {{before: string, y: number}} anchor
   * @param {number} line
   */
  rememberLine(before, anchor, line) {
    const target = line - CLOSE;
    if (target < 1) {
      if (line < CLOSE) this.line = null;
      return;
    }
    const { lineHeight } = this.column();
    const top = this.mirror.getBoundingClientRect().top;
    const range = document.createRange();
    const lineOf = (/** @type {number} */ offset) => {
      range.setStart(this.head, offset);
      range.setEnd(this.head, offset + 1);
      const rect = range.getBoundingClientRect();
      return Math.floor((rect.top + rect.height / 2 - top) / lineHeight);
    };
    let low = 0;
    let high = this.head.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lineOf(middle) >= target) high = middle;
      else low = middle + 1;
    }
    if (lineOf(low) === target && !/\s/.test(this.head.data[low])) {
      this.line = { before: before.slice(0, anchor.before.length + low), y: anchor.y + target * lineHeight };
    }
  }
}

/** @param {number} a @param {number | null} b */
function add(a, b, sign = 1) {
  return b === null ? null : a + sign * b;
}
