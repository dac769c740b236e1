// @ts-check
/** The fields of a document, in either store: its text and its metadata; its title, and the number of its words. */

/**
 * A document without its text. `title`: given by the writer; if empty, `opening`, the beginning of the first line, is
 * shown. `caret`: start and end of the selection. `privateRanges`: ranges that were typed in incognito.
 * `unsure`: all of the text is private, because another program wrote it and it may contain private text. `keys`: see counts.js. `stores`: files of base
 * stores that this document uses beside those that all documents use. `created`, `changed`, `binned`: ms since 1970;
 * `binned` is null outside the bin.
 * `revision`: identifies the stored text; empty if the document was never stored.
 * @typedef {{id: string, title: string, opening: string, words: number, caret: number[], privateRanges: number[][],
 *            unsure: boolean, keys: {typed: number, taken: number, takes: number}, stores: string[], created: number,
 *            changed: number, binned: number | null, revision: string}} Entry
 */

/**
 * With its text, with text that the model reads before it, and with what no draft of it contains, one phrase a line.
 * @typedef {Entry & {text: string, background: string, never: string}} Document
 */

/**
 * A store of documents, implemented by `file_documents.js` and `browser_documents.js`. `write` replaces a text only if
 * `base` is its present revision ("" for a new document) and throws `Changed` otherwise.
 * @typedef {{where: "browser" | "files", list: () => Promise<Entry[]>, read: (id: string) => Promise<Document | null>,
 *            write: (document: Document, base: string) => Promise<Entry>,
 *            putInBin: (id: string, on: boolean) => Promise<void>, remove: (id: string) => Promise<void>}} Store
 */

export const MOST_EDITED = 512_000; // UTF-16 units; in Chromium a key in a field with so much text takes up to 50 ms
export const MOST_TITLE = 1000; // UTF-16 units: the limit of app/documents/notes.py
const OPENING = 80; // characters of the first line that are shown as a title
const SLICE = 100_000; // characters counted at once: about 2 ms

/** The stored text is not the one that was edited: another window or program has changed it. */
export class Changed extends Error {}

/** @param {Partial<Document>} known @returns {Document} */
export function newDocument(known = {}) {
  const now = Date.now();
  return {
    id: crypto.randomUUID(), title: "", opening: "", words: 0, caret: [0, 0], privateRanges: [], unsure: false,
    keys: { typed: 0, taken: 0, takes: 0 }, stores: [], created: now, changed: now, binned: null, revision: "", text: "",
    background: "", never: "",
    ...known,
  };
}

/** @param {{title: string, opening: string}} entry */
export function titleOf({ title, opening }) {
  return title || opening || "Untitled";
}

/** The beginning of the first line that is not empty. @param {string} text */
export function openingOf(text) {
  const line = text.slice(0, 10_000).split("\n").find((line) => line.trim()) ?? "";
  return [...line.trim().slice(0, 2 * OPENING)].slice(0, OPENING).join("");
}

/** The text as a field and a file contain it: line ends are "\n". @param {string} text */
export function inLines(text) {
  return text.replace(/\r\n?/g, "\n");
}

/** A file name for a document, without extension. @param {{title: string, opening: string}} entry */
export function fileNameOf(entry) {
  const letters = titleOf(entry).replace(/[^\p{L}\p{M}\p{N} ,.'’()&+_-]+/gu, " ").replace(/(?<= |^)\p{M}+/gu, "");
  const name = [...letters.replace(/\s+/g, " ")].slice(0, 60).join("");
  return name.replace(/^[. ]+|[. ]+$/g, "") || "Untitled";
}

/** @param {string} text */
export const wordsIn = (text) => text.match(/\S+/g)?.length ?? 0;

/**
 * Counts words: runs of characters that are no spaces. A long text is counted in slices, so typing stays fast.
 * @param {string} text
 * @param {() => boolean} stopped called between slices; true stops counting
 * @returns {Promise<number>} incomplete if counting was stopped
 */
export async function countWords(text, stopped = () => false) {
  let words = 0;
  let from = 0;
  while (from < text.length) {
    let to = Math.min(from + SLICE, text.length);
    // End the slice at a space, unless the word is longer than 1000 characters.
    const space = to < text.length ? text.slice(to, to + 1000).search(/\s/) : -1;
    if (space > 0) to += space;
    words += wordsIn(text.slice(from, to));
    from = to;
    if (from < text.length && !document.hidden) await new Promise((resolve) => setTimeout(resolve)); // for keys and drawing
    if (stopped()) break;
  }
  return words;
}
