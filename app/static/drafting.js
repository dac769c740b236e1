// @ts-check
/**
 * What the editor does with drafts, as pure functions: which of them agree with what has been typed, what is left
 * of each, where they part, and how much text to send. Knows nothing about the page or the network.
 */

/**
 * One draft as the server sends it. `text` is exactly what picking it inserts at the caret; `personal` are the parts
 * of it that a personal store decided on, from where to before where in characters (not UTF-16 units); `how`, likewise,
 * how each token came by speculation, and its LTS.
 * @typedef {{id: number, text: string, probability: number, whole: number, finished: boolean,
 *            personal?: [number, number][], how?: [number, number, string, number | null][]}} Draft
 */

/**
 * A draft and where it was made: `anchor` is the text before the caret that it continues; `origin` how much of that
 * stood there when its first version came, so that going back a few letters finds it again. All versions of one draft
 * have the same `lineage`.
 * @typedef {Draft & {anchor: string, origin: number, lineage: number}} PlacedDraft
 */

/**
 * What is left of a draft after `before`: "" when all of it is written; null where it does not belong.
 * @param {PlacedDraft} draft
 * @param {string} before
 * @returns {string | null}
 */
export function restOf({ anchor, origin, text }, before) {
  const typed = before.length - anchor.length;
  if (typed < 0) {
    const back = before.length >= origin && anchor.slice(0, before.length) === before;
    return back ? anchor.slice(before.length) + text : null;
  }
  if (before.slice(0, anchor.length) !== anchor || !text.startsWith(before.slice(anchor.length))) return null;
  return text.slice(typed);
}

/**
 * What taking `part` of a draft inserts where `after` follows the caret: nothing that repeats what follows, and a
 * space where one belongs.
 * @param {string} part
 * @param {string} after
 */
export function fitted(part, after) {
  const next = after[0] ?? "";
  if (!next || next === "\n") return part;
  const whole = part.trimEnd();
  const repeated = overlap(whole, after.slice(0, part.length + 20).trimStart());
  const kept = repeated ? whole.slice(0, whole.length - repeated) : part;
  if (!kept.trim()) return "";
  if (/\s/.test(next)) return kept.trimEnd();
  return STICKS.test(kept) && BEGINS.test(next) && !UNSPACED.test(next) ? `${kept} ` : kept;
}

const STICKS = /[^\s\p{Ps}\p{Pi}'’-]$/u; // an end that wants a space before the next word
const BEGINS = /[\p{L}\p{N}\p{Ps}\p{Pi}"]/u;
const WORD = /[\p{L}\p{N}]/u;

/**
 * How many characters at the end of `part` stand at the beginning of `after` too: whole words, or marks.
 * @param {string} part
 * @param {string} after
 */
function overlap(part, after) {
  const inside = (/** @type {string} */ text, /** @type {number} */ at) =>
    WORD.test(text[at - 1] ?? "") && WORD.test(text[at] ?? "");
  for (let n = Math.min(part.length, after.length); n > 0; n--) {
    if (part.endsWith(after.slice(0, n)) && !inside(part, part.length - n) && !inside(after, n)) return n;
  }
  return 0;
}

/**
 * Whether one writes here: nothing but spaces follows on the line.
 * @param {string} after
 */
export function isWritingPlace(after) {
  return /^[^\S\n]*(?:\n|$)/u.test(after.slice(0, 2000));
}

/**
 * How many characters of `rest` a click at `offset` takes: up to the end of the word, or of the punctuation, there.
 * @param {string} rest
 * @param {number} offset
 */
export function upToWord(rest, offset) {
  let end = 0;
  while (end < rest.length) {
    end += firstWord(rest.slice(end)).length || rest.length;
    if (offset < end) break;
  }
  return end;
}

/**
 * Whether a draft still has enough left to be worth showing without asking for more: three characters and more
 * than the end of a word. Scripts without spaces between words count by characters alone.
 * @param {string} rest
 */
export function hasEnoughLeft(rest) {
  if (rest.trim().length < 3) return false;
  return /\s\S/.test(rest) || UNSPACED.test(rest);
}

// Scripts that are written without spaces between words: a "word" is then what the browser's segmenter says.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const PIECE = /^\s*(?:["'\p{Ps}\p{Pi}]*[\p{L}\p{M}\p{N}]+(?:['’_.-][\p{L}\p{M}\p{N}]+)*|[^\p{L}\p{M}\p{N}_\s]+|_+)/u;

/**
 * The first word of `rest` with the space before it, or the punctuation it begins with. A writer often wants the word
 * and goes on otherwise, so punctuation after a word is a piece of its own.
 * @param {string} rest
 */
export function firstWord(rest) {
  const word = rest.match(PIECE)?.[0] ?? rest;
  if (!UNSPACED.test(word) || !("Segmenter" in Intl)) return word;
  let length = 0;
  for (const { segment, isWordLike } of new Intl.Segmenter(undefined, { granularity: "word" }).segment(word)) {
    if (isWordLike && length > 0 && word.slice(0, length).trim()) break;
    length += segment.length;
  }
  return word.slice(0, length);
}

/**
 * The end of an unfinished word before the caret, so that a draft that completes it can be read as a whole word.
 * @param {string} before
 */
export function wordStem(before) {
  return before.slice(-40).match(/\S+$/u)?.[0] ?? "";
}

/**
 * How many characters two texts share from the start, cut back to where whole words end in both.
 * @param {string} a
 * @param {string} b
 */
export function sharedBeginning(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  const wordEnds = (/** @type {string} */ text) => n === text.length || /\s/.test(text[n]) || UNSPACED.test(text[n]);
  while (n > 0 && !(wordEnds(a) && wordEnds(b))) n--;
  return a.slice(0, n).trim() ? n : 0;
}

/**
 * Where each row parts from the rows above it. `shared` is the number of leading characters that an earlier row
 * already shows, `parent` the first such row (-1: nothing shared).
 * @param {string[]} texts
 * @returns {{shared: number, parent: number}[]}
 */
export function branches(texts) {
  return texts.map((text, i) => {
    let best = { shared: 0, parent: -1 };
    for (let j = i - 1; j >= 0; j--) {
      const shared = sharedBeginning(text, texts[j]);
      if (shared && shared >= best.shared) best = { shared, parent: j };
    }
    return best;
  });
}

const WINDOW = 8192;
const STRIDE = 4096;

/**
 * The part of the text before the caret that is sent. It starts at 0 or at a multiple of 4096 UTF-16 units, so that
 * the server's cached prefix stays valid while one types in a long text.
 * @param {string} before
 */
export function cropped(before) {
  if (before.length < WINDOW) return wellFormed(before);
  let start = Math.floor((before.length - STRIDE) / STRIDE) * STRIDE;
  if (isLowSurrogate(before.charCodeAt(start))) start++;
  return wellFormed(before.slice(start));
}

/** @param {number} unit */
const isLowSurrogate = (unit) => unit >= 0xdc00 && unit <= 0xdfff;

/**
 * Half characters (lone surrogates) have no UTF-8 form; the server gets U+FFFD in their place.
 * @param {string} text
 */
function wellFormed(text) {
  // @ts-ignore String.prototype.toWellFormed is newer than the type library
  if (typeof text.toWellFormed === "function") return text.toWellFormed();
  return text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, "\uFFFD");
}

const RTL = /[\u0591-\u08FF\uFB1D-\uFDFD\uFE70-\uFEFC\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u;

/**
 * Whether a paragraph runs from right to left: its first letter decides, as with `dir="auto"`.
 * @param {string} paragraph
 */
export function isRightToLeft(paragraph) {
  const letter = paragraph.match(/\p{L}/u)?.[0];
  return letter !== undefined && RTL.test(letter);
}

/**
 * Whether some paragraph is so long that the browser's search for the direction of each paragraph takes longer than
 * a key press (in Chromium 1.5 s for 1 MB without a line end).
 * @param {string} text
 */
export function hasHugeParagraph(text) {
  let start = 0;
  while (text.length - start > HUGE) {
    const end = text.lastIndexOf("\n", start + HUGE);
    if (end < start) return true;
    start = end + 1;
  }
  return false;
}

const HUGE = 20_000;

/**
 * A probability as a reader wants it.
 * @param {number} p
 */
export function percent(p) {
  if (p >= 0.995) return p >= 1 ? "100%" : ">99%";
  if (p > 0 && p < 0.005) return "<1%";
  return `${Math.round(p * 100)}%`;
}
