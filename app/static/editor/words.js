// @ts-check
/** Which words of a text are meant to be replaced: the one at the caret, or those that are selected. Pure functions. */

import { UNSPACED } from "./drafting.js";

const MOST = 8; // words; core/words.py knows it, too
const REACH = 200; // characters of a word that are looked for on each side
const WORD = /[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}\p{N}]+)*/gu;
const NONE = "Put the caret on a word, or select up to eight words.";

/**
 * Where the words begin and end that the caret or the selection touches, or why none can be replaced, in a sentence.
 * @param {string} text
 * @param {number} start of the selection
 * @param {number} end
 * @returns {{start: number, end: number} | {problem: string}}
 */
export function wordsAt(text, start, end) {
  const from = Math.max(0, start - REACH);
  const alone = start === end;
  const touched = [];
  for (const [first, last] of wordsOf(text.slice(from, end + REACH))) {
    const [begins, ends] = [from + first, from + last];
    if (alone ? begins <= start && start <= ends : begins < end && ends > start) touched.push({ begins, ends });
    if (touched.length > MOST && end - start > REACH * MOST) break; // a whole document is selected
  }
  if (!touched.length) return { problem: NONE };
  const chosen = alone ? touched.slice(-1) : touched;
  const place = { start: chosen[0].begins, end: chosen[chosen.length - 1].ends };
  if (chosen.length > MOST) return { problem: "More than eight words are selected; select up to eight." };
  if (text.slice(place.start, place.end).includes("\n")) return { problem: "The selection has a line end; select words of one line." };
  return place;
}

/**
 * Where each word of a text begins and ends. In scripts without spaces between words, the browser's segmenter finds them.
 * @param {string} text
 * @returns {Generator<[number, number]>}
 */
function* wordsOf(text) {
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (!UNSPACED.test(word)) yield [index, index + word.length];
    else {
      for (const part of new Intl.Segmenter(undefined, { granularity: "word" }).segment(word)) {
        yield [index + part.index, index + part.index + part.segment.length];
      }
    }
  }
}
