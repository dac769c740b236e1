// @ts-check
/**
 * Pure functions on drafts and text: which drafts agree with the typed text, the rest of each, where they branch, and
 * how much text to send. They use neither the page nor the network.
 */

/**
 * One draft as the server sends it. `text` is the text that taking it inserts at the caret; `personal` lists the ranges
 * that a personal store decided, as [start, end) in characters (not UTF-16 units); `how` lists for each token its range,
 * how speculation produced it, and its LTS; `replace`: how many letters before the caret it replaces, because they
 * contain a slip; `tail` is how its tokens were computed; `gain` is how much the draft raises ln P of the text after the caret;
 * `chance` is how often such a row comes true up to its end or, in a row of full length, to where it branches; `best`:
 * whether it is expected to save most time.
 * @typedef {{id: number, text: string, probability: number, whole: number, finished: boolean, gain?: number,
 *            chance?: number, best?: boolean, replace?: number,
 *            tail?: "own" | "superposed" | "checked",
 *            personal?: [number, number][], how?: [number, number, string, number | null][],
 *            made?: import("../panel/made.js").Token[]}} Draft
 */

/**
 * A draft and its position: `anchor` is the text before the caret that it continues; `origin` is the length of the anchor
 * of its first version, so that the draft is still found after deleting a few letters. All versions of one draft have
 * the same `lineage`. `chosen`: whether the writer chose its beginning among the tokens of the panel.
 * @typedef {Draft & {anchor: string, origin: number, lineage: number, chosen?: boolean}} PlacedDraft
 */

/**
 * The rest of a draft after `before`: "" if all of it is written; null if it does not continue `before`. Of a long text
 * only the last part is compared, which requests contain. A draft that replaces letters continues its own text alone.
 * @param {PlacedDraft} draft
 * @param {string} before
 * @returns {string | null}
 */
export function restOf({ anchor, origin, text, replace }, before) {
  const typed = before.length - anchor.length;
  if (replace && typed) return null;
  if (typed < 0) {
    const from = Math.max(0, before.length - WINDOW);
    const back = before.length >= origin && anchor.startsWith(before.slice(from), from);
    return back ? anchor.slice(before.length) + text : null;
  }
  const from = Math.max(0, anchor.length - WINDOW);
  if (!before.startsWith(anchor.slice(from), from) || !text.startsWith(before.slice(anchor.length))) return null;
  return text.slice(typed);
}

/**
 * Whether one of the drafts agrees with what was typed after their request, or may, because it is still growing. A draft
 * that replaces letters continues the text of its request alone.
 * @param {Draft[]} drafts
 * @param {string} typed
 */
export function mayAgree(drafts, typed) {
  return drafts.some(({ text, finished, replace }) => !replace && (text.startsWith(typed) || (!finished && typed.startsWith(text))));
}

/**
 * The text that taking `part` of a draft inserts before `after`: without an end that repeats `after`, and with a space
 * where the two need one.
 * @param {string} part
 * @param {string} after
 */
export function fitted(part, after) {
  const [next = ""] = after; // a character, not half of one
  if (!next || next === "\n") return part;
  const whole = part.trimEnd();
  const repeated = overlap(whole, after.slice(0, part.length + 20).trimStart());
  const kept = repeated ? whole.slice(0, whole.length - repeated) : part;
  if (!kept.trim()) return "";
  if (/\s/.test(next)) return kept.trimEnd();
  return STICKS.test(kept) && BEGINS.test(next) && !UNSPACED.test(next) ? `${kept} ` : kept;
}

const STICKS = /[^\s\p{Ps}\p{Pi}'’-]$/u; // an end that needs a space before the next word
const BEGINS = /[\p{L}\p{N}\p{Ps}\p{Pi}"]/u;

/**
 * How many characters at the end of `part` are also at the beginning of `after`: whole words or punctuation.
 * @param {string} part
 * @param {string} after
 */
function overlap(part, after) {
  const inside = (/** @type {string} */ text, /** @type {number} */ at) =>
    /[\p{L}\p{N}]$/u.test(text.slice(0, at)) && /^[\p{L}\p{N}]/u.test(text.slice(at));
  for (let n = Math.min(part.length, after.length); n > 0; n--) {
    if (part.endsWith(after.slice(0, n)) && !inside(part, part.length - n) && !inside(after, n)) return n;
  }
  return 0;
}

/** Whether drafts belong here: only spaces follow on the line. @param {string} after */
export function isWritingPlace(after) {
  return /^[^\S\n]*(?:\n|$)/u.test(after.slice(0, 2000));
}

/**
 * How many characters of `rest` a click at `offset` takes: up to the end of the word or punctuation at that place.
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
 * Whether the rest of a draft is long enough to show without a new request: at least three characters and more than the
 * end of a word. In scripts without spaces between words, three characters suffice.
 * @param {string} rest
 */
export function hasEnoughLeft(rest) {
  if (rest.trim().length < 3) return false;
  return /\s\S/.test(rest) || UNSPACED.test(rest);
}

// Scripts that are written without spaces between words. The browser's segmenter finds their words.
export const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;

const PIECE = /^\s*(?:["'\p{Ps}\p{Pi}]*[\p{L}\p{M}\p{N}]+(?:['’_.-][\p{L}\p{M}\p{N}]+)*|[^\p{L}\p{M}\p{N}_\s]+|_+)/u;

/**
 * The first word of `rest` with the space before it, or the punctuation it begins with. Punctuation after a word is a
 * separate piece, because a writer often takes only the word.
 * @param {string} rest
 */
export function firstWord(rest) {
  const word = rest.match(PIECE)?.[0] ?? rest;
  if (!UNSPACED.test(word)) return word;
  let length = 0;
  for (const { segment, isWordLike } of new Intl.Segmenter(undefined, { granularity: "word" }).segment(word)) {
    if (isWordLike && length > 0 && word.slice(0, length).trim()) break;
    length += segment.length;
  }
  return word.slice(0, length);
}

/**
 * The unfinished word before the caret. The list shows it in front of a draft that completes it.
 * @param {string} before
 */
export function wordStem(before) {
  return before.slice(-40).match(/\S+$/u)?.[0] ?? "";
}

/** The word with a slip that a draft replaces, and the letters of it that stay. @param {PlacedDraft} draft */
export function slipOf({ anchor, replace = 0 }) {
  const word = anchor.slice(-40).match(/\S+\s?$/u)?.[0] ?? "";
  return { word: word.trimEnd(), stays: word.slice(0, Math.max(0, word.length - replace)) };
}

/**
 * The length of the common beginning of two texts, shortened to a place where a word ends in both.
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
 * Where each row branches from the rows above it. `shared` is the number of leading characters that an earlier row
 * also has, `parent` the first such row (-1: none).
 * @param {string[]} texts
 * @returns {{shared: number, parent: number}[]}
 */
export function branches(texts) {
  return texts.map((text, i) => {
    let best = { shared: 0, parent: -1 };
    for (let j = i - 1; j >= 0; j--) {
      const shared = sharedBeginning(text, texts[j]);
      // A draft that ends where an earlier one goes on is drawn whole: nothing of it would be left otherwise.
      if (shared && shared < text.trimEnd().length && shared >= best.shared) best = { shared, parent: j };
    }
    return best;
  });
}

const LEAST_TAIL = 8; // characters of a common end that are worth leaving out

/**
 * How many characters at the end of each text an earlier one also has, from the beginning of a word on; at least two words.
 * @param {string[]} texts
 * @param {number[]} own where the part of each text begins that no earlier one begins with
 */
export function commonEnds(texts, own) {
  return texts.map((text, i) => {
    let most = 0;
    for (const other of texts.slice(0, i)) {
      let n = 0;
      while (n < text.length - own[i] && n < other.length && text.at(-1 - n) === other.at(-1 - n)) n++;
      const space = text.slice(text.length - n).search(/\s\S/);
      const end = space < 0 || n === text.length ? 0 : n - space;
      if (end >= LEAST_TAIL && end < other.length && /\S\s+\S/.test(text.slice(text.length - end))) most = Math.max(most, end);
    }
    return text.slice(own[i], text.length - most).trim() ? most : 0;
  });
}

/**
 * Whether a row must be read: it is none of those on the screen, and not the first words of one. core/time_saved.py
 * charges a look for it, too.
 * @param {string} text
 * @param {string[]} shown
 */
export function isNew(text, shown) {
  const goesOn = (/** @type {string} */ other) => /[\p{L}\p{N}'’]$/u.test(text) && /^[\p{L}\p{N}'’]/u.test(other.slice(text.length));
  return !shown.some((other) => other.startsWith(text) && !goesOn(other));
}

const WINDOW = 8192;
const STRIDE = 4096;

/**
 * The part of the text before the caret that requests contain. It starts at 0 or at a multiple of 4096 UTF-16 units, so
 * that the server's cached prefix stays valid while typing in a long text.
 * @param {string} before
 */
export function cropped(before) {
  if (before.length <= WINDOW) return wellFormed(before);
  const start = Math.floor((before.length - STRIDE) / STRIDE) * STRIDE;
  return wellFormed(before.slice(start));
}

const FOLLOWING = 256;

/**
 * The beginning of the text after the caret that requests contain; "" if it is only white space.
 * @param {string} after
 */
export function following(after) {
  const beginning = after.slice(0, FOLLOWING);
  return beginning.trim() ? wellFormed(beginning) : "";
}

/**
 * A part of a text without the halves of characters that were cut at its ends. UTF-8 cannot encode others either, so each
 * becomes U+FFFD.
 * @param {string} part
 */
export function wellFormed(part) {
  return part.replace(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, "").toWellFormed();
}

const RTL = /[\u0591-\u08FF\uFB1D-\uFDFD\uFE70-\uFEFC\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u;

/**
 * Whether a paragraph is written from right to left, decided by its first letter as with `dir="auto"`.
 * @param {string} paragraph
 */
export function isRightToLeft(paragraph) {
  const letter = paragraph.match(/\p{L}/u)?.[0];
  return letter !== undefined && RTL.test(letter);
}

/**
 * Whether a paragraph is so long that the browser's computation of its direction delays typing (in Chromium 1.5 s for
 * 1 MB without a line end).
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

/** The strengths of ink, and from which probability on a draft has them. @type {[string, number][]} */
const INKS = [["dark", 0.5], ["grey", 0.2], ["faint", 0]];

/** The ink of a row with this chance; app/service/showing.py knows it, too. @param {number} chance */
export function inkOf(chance) {
  const [ink] = INKS.find(([, least]) => chance >= least) ?? INKS[0];
  return ink;
}

/** A probability as a rounded percentage. @param {number} p */
export function percent(p) {
  if (p >= 0.995) return p >= 1 ? "100%" : ">99%";
  if (p > 0 && p < 0.005) return "<1%";
  return `${Math.round(p * 100)}%`;
}
