// @ts-check
/**
 * Tracks which characters of the text were typed in incognito, as ranges. Every edit moves the ranges: typing elsewhere,
 * cutting and pasting, undo and redo. Text that is removed and inserted again is as private as before. In doubt, text
 * counts as private.
 *
 * A copy on the clipboard includes its private ranges under a separate type, so that a paste finds them after a reload
 * and in other tabs. Other programs drop that type; text pasted from them is compared with the copies of this tab.
 */

import { keepCopies, recallCopies } from "../shared/memory.js";

/** @typedef {[number, number]} Range [start, end) in UTF-16 units */
/** @typedef {{text: string, ranges: Range[]}} Copy a part of a text and its private ranges */

/**
 * Sort ranges, join those that touch, and drop empty ones.
 * @param {Range[]} ranges
 * @returns {Range[]}
 */
export function joined(ranges) {
  /** @type {Range[]} */
  const all = [];
  for (const [start, end] of [...ranges].sort((a, b) => a[0] - b[0])) {
    if (end <= start) continue;
    const last = all.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else all.push([start, end]);
  }
  return all;
}

/**
 * The ranges after `inserted` characters replaced `removed` ones at `at`. No range includes the inserted characters.
 * @param {Range[]} ranges
 * @param {{at: number, removed: number, inserted: number}} edit
 * @returns {Range[]}
 */
export function moved(ranges, { at, removed, inserted }) {
  const end = at + removed;
  const by = inserted - removed;
  return joined(ranges.flatMap(([from, to]) => /** @type {Range[]} */ ([
    [from, Math.min(to, at)],
    [Math.max(from, end) + by, to + by],
  ])));
}

/**
 * The parts of the ranges inside `start` to `end`, counted from `start`.
 * @param {Range[]} ranges
 * @param {number} start
 * @param {number} end
 * @returns {Range[]}
 */
export function inside(ranges, start, end) {
  return joined(ranges.map(([from, to]) => [Math.max(from, start) - start, Math.min(to, end) - start]));
}

/**
 * The edit between two texts. If possible, the text after the caret is unchanged.
 * @param {string} old
 * @param {string} now
 * @param {number} caret in the new text
 */
export function difference(old, now, caret) {
  const tail = now.slice(caret);
  let same = old.endsWith(tail) ? tail.length : 0;
  if (same < tail.length) while (same < Math.min(old.length, now.length) && old[old.length - 1 - same] === now[now.length - 1 - same]) same++;
  const most = Math.min(old.length, now.length) - same;
  let at = 0;
  for (const step of [4096, 1]) {
    while (at + step <= most && old.slice(at, at + step) === now.slice(at, at + step)) at += step;
  }
  return { at, removed: old.length - same - at, inserted: now.length - same - at };
}

const STATES = 3000; // states of the text that are stored for undo and redo
const LONGEST = 300_000; // characters of a text whose states are stored
const COPIES = 50; // cut, copied or dragged texts that are stored for pasting
const CLIPBOARD_TYPE = "application/x-polydraft-private"; // of the ranges as JSON

export class PrivateText {
  /**
   * @param {HTMLTextAreaElement} textarea
   * @param {() => boolean} isOn whether text typed now is private
   */
  constructor(textarea, isOn) {
    this.textarea = textarea;
    this.isOn = isOn;
    /** @type {Range[]} */
    this.ranges = [];
    /** Whether all of the text is private, also what is added. */
    this.whole = false;
    this.text = textarea.value;
    /** Ranges by state of the text. @type {Map<string, Range[]>} */
    this.states = new Map();
    /** Private texts that were copied and may be pasted. @type {Copy[]} */
    this.copies = recallCopies();
    /** Whether anything was private since the page was loaded. */
    this.ever = this.copies.length > 0;
    /** The text that is being pasted or dropped, if the clipboard includes ranges. @type {Copy | null} */
    this.arriving = null;
    for (const name of ["copy", "cut", "dragstart"]) textarea.addEventListener(name, (event) => this.copied(event));
    for (const name of ["paste", "drop"]) textarea.addEventListener(name, (event) => this.pasting(event));
  }

  /** Another text was opened. @param {number[][]} ranges */
  open(ranges) {
    this.text = this.textarea.value;
    this.ranges = joined(inside(/** @type {Range[]} */ (ranges), 0, this.text.length));
    this.whole = false;
    this.states.clear();
    this.ever ||= this.ranges.length > 0;
    this.rememberState();
  }

  /** All of the text is private, also what is added, until `open` is called. */
  hideAll() {
    this.whole = this.ever = true;
    this.ranges = joined([[0, this.text.length]]);
  }

  /** Further parts of the text are private. @param {Range[]} ranges */
  add(ranges) {
    this.ranges = joined([...this.ranges, ...ranges]);
    this.rememberState();
  }

  /** @param {InputEvent | null} event that has changed the text */
  edited(event) {
    const { textarea, text } = this;
    const now = textarea.value;
    this.text = now;
    if (now === text) return;
    if (this.whole) return this.hideAll();
    if (!this.ever && !this.isOn()) return;
    this.ever = true;
    if (!this.states.size) this.rememberState(text);
    const type = event?.inputType ?? "";
    // A text dragged within the page is deleted at its old place before it is inserted.
    const arrived = type === "insertFromPaste" || type === "insertFromDrop" ? this.arriving : null;
    if (type !== "deleteByDrag") this.arriving = null;
    const edit = difference(text, now, textarea.selectionStart);
    const { at, removed, inserted } = edit;
    const known = type.startsWith("history") ? this.states.get(stateOf(now)) : undefined;
    const touched = inside(this.ranges, at, at + removed).length > 0;
    /** @type {Range[]} */
    let fresh = [];
    if (known) this.ranges = known.map(([from, to]) => [from, to]);
    else {
      if (this.isOn() || type.startsWith("history")) fresh = [[0, inserted]];
      else if (touched && type !== "insertText" && type !== "insertFromPaste") fresh = [[0, inserted]]; // a spelling correction
      else if (inserted > 1 || type === "insertFromPaste" || type === "insertFromDrop") fresh = this.privateParts(now.slice(at, at + inserted));
      this.ranges = joined([...moved(this.ranges, edit), ...fresh.map(([from, to]) => /** @type {Range} */ ([from + at, to + at]))]);
    }
    if (arrived) this.ranges = joined([...this.ranges, ...placed(arrived, now, textarea.selectionEnd, edit)]);
    if (known && this.isOn()) this.ranges = joined([...this.ranges, [at, at + inserted]]);
    this.rememberState();
  }

  /**
   * The parts of an inserted text that are private in a copy made before.
   * @param {string} text
   * @returns {Range[]}
   */
  privateParts(text) {
    /** @type {Range[]} */
    const ranges = [];
    for (const copy of this.copies) {
      // The inserted text is a part of the copy, or all of it.
      for (let at = copy.text.indexOf(text); at >= 0; at = copy.text.indexOf(text, at + 1)) {
        ranges.push(...inside(copy.ranges, at, at + text.length));
      }
      // The inserted text contains a private part of the copy.
      for (const [from, to] of copy.ranges) {
        const secret = copy.text.slice(from, to).trim();
        for (let at = text.indexOf(secret); secret.length > 1 && at >= 0; at = text.indexOf(secret, at + 1)) {
          ranges.push([at, at + secret.length]);
        }
      }
    }
    return joined(ranges);
  }

  /** The selection is copied, cut or dragged: add its private ranges to the clipboard. @param {Event} event */
  copied(event) {
    const { selectionStart: start, selectionEnd: end } = this.textarea;
    const text = this.textarea.value.slice(start, end);
    const ranges = inside(this.ranges, start, end);
    const data = transferred(event);
    if (!data || !ranges.length) return;
    this.copies = [...this.copies, { text, ranges }].slice(-COPIES);
    keepCopies(this.copies);
    data.setData(CLIPBOARD_TYPE, JSON.stringify(ranges));
    if (event.type === "dragstart") return; // the browser adds the text
    data.setData("text/plain", text);
    event.preventDefault();
    if (event.type === "cut") document.execCommand("delete");
  }

  /** @param {Event} event a paste or a drop */
  pasting(event) {
    const data = transferred(event);
    const json = data?.getData(CLIPBOARD_TYPE);
    const text = (data?.getData("text/plain") ?? "").replace(/\r\n?/g, "\n");
    this.arriving = json ? { text, ranges: parsedRanges(json) } : null;
    this.ever ||= this.arriving !== null;
  }

  /**
   * Whether a character in [start, end) is private.
   * @param {number} start
   * @param {number} end
   */
  hides(start, end) {
    return inside(this.ranges, start, end).length > 0;
  }

  /** The first position from which all characters up to `end` are public. @param {number} end */
  publicFrom(end) {
    return Math.max(0, ...this.ranges.filter(([from]) => from < end).map(([, to]) => Math.min(to, end)));
  }

  rememberState(text = this.text) {
    if (text.length > LONGEST || !this.ever) return;
    const state = stateOf(text);
    this.states.delete(state);
    this.states.set(state, text === this.text ? this.ranges : []);
    if (this.states.size > STATES) this.states.delete(/** @type {string} */ (this.states.keys().next().value));
  }
}

/** @param {Event} event */
function transferred(event) {
  return event instanceof DragEvent ? event.dataTransfer : event instanceof ClipboardEvent ? event.clipboardData : null;
}

/**
 * Parse the ranges from a clipboard. If they cannot be parsed, everything is private.
 * @param {string} json
 * @returns {Range[]}
 */
function parsedRanges(json) {
  try {
    const ranges = JSON.parse(json);
    if (ranges.flat().every(Number.isInteger) && ranges.every((/** @type {Range} */ range) => range.length === 2)) return ranges;
  } catch {
    // another page has written it
  }
  return [[0, Infinity]];
}

/**
 * The private ranges of a copy that was just inserted; the whole insertion if it is not the copy unchanged.
 * @param {Copy} copy
 * @param {string} now
 * @param {number} end of the insertion
 * @param {{at: number, inserted: number}} edit
 * @returns {Range[]}
 */
function placed({ text, ranges }, now, end, { at, inserted }) {
  const start = end - text.length;
  if (!text || now.slice(Math.max(0, start), end) !== text) return [[at, at + inserted]];
  return inside(ranges, 0, text.length).map(([from, to]) => [from + start, to + start]);
}

/** A hash of a text. @param {string} text */
function stateOf(text) {
  let a = 0x811c9dc5;
  let b = 0x9e3779b9;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    a = Math.imul(a ^ unit, 0x01000193);
    b = Math.imul(b ^ unit, 0x85ebca6b) ^ (b >>> 13);
  }
  return `${text.length}:${a}:${b}`;
}
