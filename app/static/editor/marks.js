// @ts-check
/** Marked parts of a draft: words from a personal store, underlined; and, on demand, each token tinted by how likely it was
 * or by how it was made. */

import { originOf, saying } from "../panel/made.js";

/** @typedef {{from: number, to: number, name: string, title?: string}} Mark in UTF-16 units of the rest of the draft */

/** Lower ends of the classes of chances, from the unlikeliest tokens to the likeliest. */
const CHANCES = [0, 0.02, 0.1, 0.3, 0.6];

/**
 * The parts that a personal store decided, extended to whole words: half a word underlined would look like a typing
 * error.
 * @param {import("./drafting.js").Draft} draft
 * @param {string} rest the end of the draft's text
 * @returns {Mark[]}
 */
export function marks(draft, rest) {
  if (!draft.personal?.length) return [];
  return placed(draft, rest, wholeWords([...draft.text], draft.personal).map(([start, end]) => ({ start, end, name: "pd-mine" })));
}

/**
 * Extend parts to whole words, and join those that meet.
 * @param {string[]} characters
 * @param {[number, number][]} parts in order
 * @returns {[number, number][]}
 */
function wholeWords(characters, parts) {
  const inWord = (/** @type {number} */ at) => /[\p{L}\p{M}\p{N}'’-]/u.test(characters[at] ?? "");
  /** @type {[number, number][]} */
  const words = [];
  for (let [start, end] of parts) {
    while (inWord(start) && inWord(start - 1)) start--;
    while (inWord(end - 1) && inWord(end)) end++;
    const last = words[words.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else words.push([start, end]);
  }
  return words;
}

/**
 * Each token with the colour of how likely it was, or of how it was made.
 * @param {import("./drafting.js").Draft} draft
 * @param {string} rest
 * @param {string} colour "chance" or "made"
 * @returns {Mark[]}
 */
export function tokens(draft, rest, colour) {
  const texts = [...draft.text];
  return placed(draft, rest, (draft.made ?? []).map((token) => {
    const level = token.ln_mixture === null ? null : CHANCES.findLastIndex((p) => Math.exp(Number(token.ln_mixture)) >= p);
    const name = colour === "made" ? `pd-by-${originOf(token)}` : level === null ? "" : `pd-likely-${level}`;
    return { start: token.from, end: token.to, name, title: saying(texts.slice(token.from, token.to).join(""), token) };
  }).filter(({ name }) => name));
}

/**
 * @param {import("./drafting.js").Draft} draft
 * @param {string} rest
 * @param {{start: number, end: number, name: string, title?: string}[]} parts in characters of the draft's text
 * @returns {Mark[]}
 */
function placed(draft, rest, parts) {
  const characters = [...draft.text]; // the server counts characters, not UTF-16 units
  const gone = draft.text.length - rest.length;
  const unit = (/** @type {number} */ at) => characters.slice(0, at).join("").length - gone;
  return parts
    .map(({ start, end, ...how }) => ({ from: Math.max(0, unit(start)), to: unit(end), ...how }))
    .filter(({ from, to }) => to > from);
}

/**
 * Draw `text` from `start` to `end` with its marks. An unchanged element is not touched, because this runs for every row
 * at every step while drafts grow.
 * @param {HTMLElement} element
 * @param {string} text
 * @param {Mark[]} marked
 * @param {number} start
 * @param {number} end
 */
export function drawMarked(element, text, marked, start, end) {
  const inside = marked
    .map((mark) => ({ ...mark, from: Math.max(mark.from, start), to: Math.min(mark.to, end) }))
    .filter(({ from, to }) => to > from);
  const shown = text.slice(start, end);
  const key = inside.map(({ from, to, name, title = "" }) => `${from - start},${to - start},${name}${title}`).join(";");
  if (element.textContent === shown && (element.dataset.marks ?? "") === key) return;
  if (!inside.length) element.textContent = shown;
  else {
    let at = start;
    element.replaceChildren();
    for (const { from, to, name, title } of inside) {
      const mark = document.createElement("span");
      mark.className = name;
      if (title) mark.title = title;
      // The space before a word is part of the token, but it is not marked.
      const space = text.slice(from, to).match(/^\s*/)?.[0].length ?? 0;
      mark.textContent = text.slice(from + space, to);
      element.append(text.slice(at, from + space), mark);
      at = to;
    }
    element.append(text.slice(at, end));
  }
  if (key) element.dataset.marks = key;
  else delete element.dataset.marks;
}
