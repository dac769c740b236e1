// @ts-check
/**
 * A long text in parts. A browser edits and lays out the whole text of a <textarea> at every key, so of a text longer
 * than `LONG` the field contains one part only; the rest is kept in strings:
 *
 *   head ── the text before the part │ the field: one part │ tail ── the text after it
 *
 * A place between two parts is a paragraph's end if there is one near: then neither part contains its line ends, which
 * are called the gap. Edits never move text from one part to another by themselves, so head and tail stay the same while
 * a part is in the field. Head, field and tail joined are always the whole text. Of a text that is not long, head and
 * tail are empty, and the field contains all of it.
 *
 * Positions in the whole text are called places; positions in the field count from `offset`.
 */

import { inside, joined } from "./privacy.js";

/** @typedef {import("./privacy.js").Range} Range */

/**
 * One part: its length, that of the gap after it, and where caret and scrolling were when the writer left it.
 * @typedef {{length: number, gap: number, left?: {caret: number, scroll: number}}} Part
 */

export const LONG = 512_000; // UTF-16 units; in Chromium a key in a field with so much text takes up to 50 ms
const SIZE = 256_000; // UTF-16 units of a part as it is cut
const NEAR = 64_000; // units before the end of a part in which a paragraph's end is searched
const SMALL = 16_000; // units of a part that is joined with its neighbour when the writer leaves it
const MOVED = 2000; // units that move from one part to the other where the writer deletes what separates them
const CONTEXT = 8192; // units of the head from which drafts are made, as many as a request contains: `cropped`

export class Parts {
  /**
   * @param {HTMLTextAreaElement} textarea
   * @param {import("./privacy.js").PrivateText} privacy of the text in the field
   */
  constructor(textarea, privacy) {
    this.textarea = textarea;
    this.privacy = privacy;
    /** The text before and after the part in the field. */
    this.head = "";
    this.tail = "";
    /** The end of the head, which drafts continue beside the text in the field. */
    this.context = "";
    /** The length of the part in the field is that of the field. @type {Part[]} */
    this.all = [{ length: 0, gap: 0 }];
    /** The index of the part in the field. */
    this.at = 0;
    /** Private ranges of the head, and those of the tail, counted from its beginning. @type {Range[]} */
    this.headRanges = [];
    /** @type {Range[]} */
    this.tailRanges = [];
    /** The whole text as it was joined last, and what was in the field then. */
    this.latest = { part: "", text: "" };
  }

  // ---------------------------------------------------------------- the whole text

  /** Whether the text is shown in parts. */
  get long() {
    return this.all.length > 1;
  }

  /** Where the part in the field begins. */
  get offset() {
    return this.head.length;
  }

  /** The number of UTF-16 units of the whole text. */
  get length() {
    return this.head.length + this.textarea.textLength + this.tail.length;
  }

  /** The whole text. */
  get text() {
    const part = this.textarea.value;
    if (!this.long) return part;
    if (part !== this.latest.part) this.latest = { part, text: this.head + part + this.tail };
    return this.latest.text;
  }

  /** Whether this is the whole text; of a long text the lengths are compared first. @param {string} text */
  equals(text) {
    return (!this.long || text.length === this.length) && text === this.text;
  }

  /** Start and end of the selection, as places. @returns {[number, number]} */
  get selection() {
    const { selectionStart, selectionEnd } = this.textarea;
    return [this.offset + selectionStart, this.offset + selectionEnd];
  }

  /** The private ranges of the whole text. @returns {Range[]} */
  get privateRanges() {
    return this.rangesWith(this.privacy.ranges, this.textarea.textLength);
  }

  /**
   * @param {Range[]} ranges of the text in the field
   * @param {number} length of that text
   * @returns {Range[]} of the whole text
   */
  rangesWith(ranges, length) {
    const { headRanges, tailRanges, offset } = this;
    return this.long ? joined([...headRanges, ...moved(ranges, offset), ...moved(tailRanges, offset + length)]) : ranges;
  }

  /**
   * The whole text, with an earlier text in the field.
   * @param {string} part
   * @param {Range[]} ranges
   */
  joined(part, ranges) {
    return { text: this.head + part + this.tail, ranges: this.rangesWith(ranges, part.length) };
  }

  /**
   * Whether a character in [start, end) of the whole text is private.
   * @param {number} start
   * @param {number} end
   */
  hides(start, end) {
    return inside(this.privateRanges, start, end).length > 0;
  }

  /** Nothing in the whole text is private from now on. */
  makePublic() {
    this.headRanges = this.tailRanges = [];
    this.privacy.open([]);
  }

  /**
   * The text after a position in the field.
   * @param {string} part the text in the field
   * @param {number} at
   * @param {number} length
   */
  following(part, at, length) {
    const after = part.slice(at, at + length);
    return this.long ? after + this.tail.slice(0, length - after.length) : after;
  }

  // ---------------------------------------------------------------- the part in the field

  /**
   * Put another text into the field, or the part of it with the caret.
   * @param {string} text
   * @param {number} caret
   * @param {number[][]} privateRanges
   */
  open(text, caret, privateRanges) {
    const ranges = /** @type {Range[]} */ (privateRanges);
    if (text.length > LONG) {
      const lines = text.replace(/\r\n?/g, "\n"); // as the field would convert them
      this.all = cut(lines);
      this.show(lines, ranges, caret);
      return;
    }
    this.unite(text.length);
    this.textarea.value = text;
    this.textarea.setSelectionRange(caret, caret);
    this.privacy.open(ranges);
  }

  /** The field contains the whole text. @param {number} length */
  unite(length) {
    this.head = this.tail = this.context = "";
    this.headRanges = this.tailRanges = [];
    this.latest = { part: "", text: "" };
    this.all = [{ length, gap: 0 }];
    this.at = 0;
  }

  /** Whether the field contains too much text: some was pasted, or many pages were written. */
  get overflows() {
    return this.textarea.textLength > LONG;
  }

  /** Cut what the field contains into parts, and leave the part with the caret. */
  split() {
    const { text, privateRanges, all, at, selection } = this;
    const fresh = cut(this.textarea.value);
    fresh[fresh.length - 1].gap = all[at].gap;
    all.splice(at, 1, ...fresh);
    this.show(text, privateRanges, ...selection);
  }

  /**
   * Put the part with these places into the field, and select them.
   * @param {number} start
   * @param {number} end
   */
  go(start, end = start) {
    const { text, privateRanges } = this;
    this.leave();
    this.tidy();
    this.show(text, privateRanges, start, end);
  }

  /** Move the beginning of the part after `at` to it, and put it into the field, with the caret at the old border. @param {number} at */
  join(at) {
    const { text, privateRanges } = this;
    this.leave();
    const border = this.start(at) + this.all[at].length;
    const caret = at < this.at ? this.offset : border;
    this.pull(text, at, caret);
    this.show(text, privateRanges, border, caret);
    this.textarea.setSelectionRange(caret - this.offset, caret - this.offset);
  }

  /** Where the part `at` begins. @param {number} at */
  start(at) {
    let start = 0;
    for (const { length, gap } of this.all.slice(0, at)) start += length + gap;
    return start;
  }

  /** Note the length of the part in the field, and where the writer leaves it. */
  leave() {
    const { textarea } = this;
    const { selectionStart, scrollTop, textLength } = textarea;
    this.all[this.at] = { ...this.all[this.at], length: textLength, left: { caret: selectionStart, scroll: scrollTop } };
  }

  /** Make one part of a text that is no longer long, and join a small part that the writer leaves with its neighbour. */
  tidy() {
    const { all, at } = this;
    if (this.length <= LONG) {
      this.all = [{ length: this.length, gap: 0 }];
      return;
    }
    if (all[at].length > SMALL || !this.long) return;
    const first = at > 0 ? at - 1 : at;
    const [part, next] = all.slice(first, first + 2);
    if (part.length + next.length > LONG) return;
    all.splice(first, 2, { length: part.length + part.gap + next.length, gap: next.gap });
  }

  /**
   * Move text from the part after `at` to it, at least up to a place.
   * @param {string} text the whole text
   * @param {number} at
   * @param {number} least
   */
  pull(text, at, least) {
    const [part, next] = this.all.slice(at, at + 2);
    const from = this.start(at + 1);
    const until = from + next.length;
    const lowest = Math.max(from, least);
    if (lowest + MOVED >= until) {
      this.all.splice(at, 2, { length: part.length + part.gap + next.length, gap: next.gap });
      return;
    }
    const { end, gap } = placeToCut(text, lowest, lowest + MOVED);
    this.all[at] = { length: end - this.start(at), gap };
    this.all[at + 1] = { length: until - end - gap, gap: next.gap };
  }

  /**
   * Put the part with these places into the field, and select them. A part that ends between them is continued.
   * @param {string} text the whole text
   * @param {Range[]} ranges its private ranges
   * @param {number} start
   * @param {number} end
   */
  show(text, ranges, start, end = start) {
    const { textarea } = this;
    let at = this.all.length - 1;
    while (at > 0 && this.start(at) > start) at--;
    while (at + 1 < this.all.length && end > this.start(at) + this.all[at].length) this.pull(text, at, end);
    const from = this.start(at);
    const until = from + this.all[at].length;
    const part = text.slice(from, until);
    this.at = at;
    this.head = text.slice(0, from);
    this.tail = text.slice(until);
    this.context = this.head.slice(-CONTEXT);
    this.headRanges = inside(ranges, 0, from);
    this.tailRanges = inside(ranges, until, text.length);
    this.latest = { part, text };
    // Setting an equal text would keep the steps of undo, which belong to another part.
    if (textarea.value === part) textarea.value = "";
    textarea.value = part;
    textarea.setSelectionRange(start - from, end - from);
    this.privacy.open(inside(ranges, from, until));
  }
}

/**
 * Cut a text into parts.
 * @param {string} text
 * @returns {Part[]}
 */
export function cut(text) {
  /** @type {Part[]} */
  const parts = [];
  let from = 0;
  while (text.length - from > 1.5 * SIZE) {
    const { end, gap } = placeToCut(text, from + SIZE - NEAR, from + SIZE);
    parts.push({ length: end - from, gap });
    from = end + gap;
  }
  parts.push({ length: text.length - from, gap: 0 });
  return parts;
}

/**
 * The last place in [lowest, highest] where a text can be cut: at the end of a paragraph, else of a line or a word; never
 * inside of a character.
 * @param {string} text
 * @param {number} lowest
 * @param {number} highest
 * @returns {{end: number, gap: number}} where the first part ends, and how many characters separate it from the next
 */
function placeToCut(text, lowest, highest) {
  const near = text.slice(lowest, highest);
  for (const mark of ["\n\n", "\n"]) {
    const at = near.lastIndexOf(mark);
    if (at >= 0) return { end: lowest + at, gap: mark.length };
  }
  const space = near.search(/ \S*$/);
  if (space >= 0) return { end: lowest + space, gap: 1 };
  // Scripts without spaces between words.
  const words = new Intl.Segmenter(undefined, { granularity: "word" }).segment(text.slice(highest - 200, highest + 200));
  const at = highest - 200 + (words.containing(200)?.index ?? 200);
  if (at > highest - 200 && at >= lowest) return { end: at, gap: 0 };
  return { end: /[\uDC00-\uDFFF]/.test(text[highest] ?? "") ? highest - 1 : highest, gap: 0 };
}

/**
 * @param {Range[]} ranges
 * @param {number} by
 * @returns {Range[]}
 */
function moved(ranges, by) {
  return ranges.map(([start, end]) => [start + by, end + by]);
}
