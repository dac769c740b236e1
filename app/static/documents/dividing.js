// @ts-check
/** Divides a document whose text is too long to be edited into several, whose texts joined are that text. */

import { MOST_TITLE, newDocument, openingOf, titleOf } from "./document.js";
import { inside } from "../editor/privacy.js";

/** @typedef {import("./document.js").Document} Document */

const SIZE = 256_000; // UTF-16 units of a part: half of `MOST_EDITED`, so that the writer can add to each
const NEAR = 64_000; // units before the end of a part in which a paragraph's end is searched

/**
 * The documents into which one is divided: each with its part of the text and of its private ranges, and with all of its
 * background, stores and phrases that are never suggested.
 * @param {Document} document
 * @returns {Document[]}
 */
export function divided({ title, text, caret, privateRanges, unsure, keys, stores, background, never, created }) {
  const name = titleOf({ title, opening: openingOf(text) });
  const ranges = /** @type {import("../editor/privacy.js").Range[]} */ (privateRanges);
  let start = 0;
  return cut(text).map((part, n) => {
    const from = start;
    start += part.length;
    const ending = ` (${n + 1})`;
    return newDocument({
      title: name.slice(0, MOST_TITLE - ending.length) + ending, text: part,
      caret: caret.map((at) => Math.min(Math.max(at - from, 0), part.length)),
      privateRanges: inside(ranges, from, start), unsure, stores: [...stores], background, never, created,
      ...(n ? {} : { keys }), // they were counted for the whole text
    });
  });
}

/**
 * Cut a text into parts. A part ends with the line ends after its last paragraph.
 * @param {string} text
 * @returns {string[]}
 */
export function cut(text) {
  const parts = [];
  let from = 0;
  while (text.length - from > 1.5 * SIZE) {
    const end = placeToCut(text, from + SIZE - NEAR, from + SIZE);
    parts.push(text.slice(from, end));
    from = end;
  }
  return [...parts, text.slice(from)];
}

/**
 * The last place in [lowest, highest] where a text can be cut: after a paragraph, else after a line or a word; never
 * inside of a character.
 * @param {string} text
 * @param {number} lowest
 * @param {number} highest
 */
function placeToCut(text, lowest, highest) {
  const near = text.slice(lowest, highest);
  for (const mark of ["\n\n", "\n", " "]) {
    const at = near.lastIndexOf(mark);
    if (at >= 0) return lowest + at + mark.length;
  }
  // Scripts without spaces between words.
  const words = new Intl.Segmenter(undefined, { granularity: "word" }).segment(text.slice(highest - 200, highest + 200));
  const at = highest - 200 + (words.containing(200)?.index ?? 200);
  if (at > highest - 200 && at >= lowest) return at;
  return /[\uDC00-\uDFFF]/.test(text[highest]) ? highest - 1 : highest;
}
