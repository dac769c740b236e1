// @ts-check
/**
 * The rows of the list: k rows with one draft each. While the writer types, a row that agrees is shortened. A row that
 * does not agree is freed: it shows its old text, dimmed, until the server sends a draft for it or reports that there is
 * none. A draft never moves to another row.
 */

import { restOf } from "./drafting.js";

/** @typedef {import("./drafting.js").Draft} Draft */
/** @typedef {import("./drafting.js").PlacedDraft} PlacedDraft */

/**
 * One row. `rest` is the part of its draft after the caret; in a freed row (`live` is false) it is the rest when the
 * draft last agreed. `draft` is null in an empty row.
 * @typedef {{draft: PlacedDraft | null, rest: string, live: boolean}} Row
 */

let lineages = 0;

/**
 * Whether two drafts are inserted at the same place.
 * @param {Draft} a
 * @param {Draft} b
 */
const replacesAlike = (a, b) => (a.replace ?? 0) === (b.replace ?? 0);

/** @returns {Row} */
const empty = () => ({ draft: null, rest: "", live: false });

export class Rows {
  constructor() {
    /** @type {Row[]} */
    this.all = [];
  }

  /** Whether there is a draft to take. */
  get open() {
    return this.all.some(({ live }) => live);
  }

  clear() {
    this.all = [];
  }

  /**
   * Set the number of rows.
   * @param {number} k
   */
  resize(k) {
    this.all.length = Math.min(this.all.length, k);
    while (this.all.length < k) this.all.push(empty());
  }

  /**
   * Shorten or free the rows after the text before the caret has changed.
   * @param {string} before
   */
  follow(before) {
    this.all = this.all.map((row) => {
      const rest = row.draft && restOf(row.draft, before);
      return rest ? { draft: row.draft, rest, live: true } : { ...row, live: false };
    });
  }

  /**
   * Show only the rows that save time. A row that continues a shown one keeps its place; the others fill free places from
   * the top.
   * @param {string} anchor the text before the caret in the request
   * @param {string} before the present text before the caret
   * @param {Draft[]} drafts best first, each up to where it is worth showing
   */
  decide(anchor, before, drafts) {
    /** @type {Row[]} */
    const decided = this.all.map(empty);
    /** @type {Draft[]} */
    const others = [];
    const place = (/** @type {number} */ id, /** @type {Draft} */ draft, /** @type {PlacedDraft | null} */ same) => {
      const placed = { ...draft, anchor, origin: same?.origin ?? anchor.length, lineage: same?.lineage ?? ++lineages };
      const rest = restOf(placed, before);
      if (rest) decided[id] = { draft: placed, rest, live: true };
    };
    for (const draft of drafts) {
      const id = this.all.findIndex((row, i) => {
        const old = row.live && row.draft && !decided[i].live && replacesAlike(row.draft, draft) ? restOf(row.draft, anchor) : null;
        return old && (draft.text.startsWith(old) || old.startsWith(draft.text));
      });
      if (id >= 0) place(id, draft, this.all[id].draft);
      else others.push(draft);
    }
    for (const draft of others) {
      const free = decided.findIndex(({ live }) => !live);
      if (free >= 0) place(free, draft, null);
    }
    this.all = decided;
  }

  /**
   * Mark the row that Tab takes: the one that is expected to save most time.
   * @param {number | null} id
   */
  prefer(id) {
    this.all = this.all.map((row, i) => (row.draft ? { ...row, draft: { ...row.draft, best: i === id } } : row));
  }

  /** Empty the freed rows. */
  dropFreed() {
    this.all = this.all.map((row) => (row.live ? row : empty()));
  }

  /**
   * Fill the rows with the server's drafts.
   * @param {string} anchor the text before the caret in the request
   * @param {string} before the present text before the caret
   * @param {{drafts: Draft[], settled: boolean, growing: boolean}} answer `settled`: a row without a draft is empty;
   *   `growing`: a draft that is still short keeps the longer end that its row already shows
   */
  receive(anchor, before, { drafts, settled, growing }) {
    const fresh = new Map(drafts.map((draft) => [draft.id, draft]));
    this.all = this.all.map((row, id) => {
      const draft = fresh.get(id);
      if (!draft) return settled ? empty() : row;
      const old = row.draft && replacesAlike(row.draft, draft) ? restOf(row.draft, anchor) : null;
      const continues = Boolean(old && (draft.text.startsWith(old) || old.startsWith(draft.text)));
      const text = growing && old?.startsWith(draft.text) ? old : draft.text;
      const same = continues ? row.draft : null;
      const placed = { ...draft, text, anchor, origin: same?.origin ?? anchor.length, lineage: same?.lineage ?? ++lineages };
      const rest = restOf(placed, before);
      return rest ? { draft: placed, rest, live: true } : { draft: placed, rest: row.rest || draft.text, live: false };
    });
  }

  /**
   * The field `kept` of a request: the rows that stay. One that corrects a slip is found again, or not.
   * @returns {{id: number, text: string}[]}
   */
  kept() {
    return this.all.flatMap(({ draft, rest, live }, id) => (live && !draft?.replace ? [{ id, text: rest }] : []));
  }

  /** The rests of the rows that can be taken. */
  get shown() {
    return this.all.filter(({ live }) => live).map(({ rest }) => rest);
  }

  /**
   * The index of the draft that the server names as the best, once that is known; otherwise of the one that best fits the
   * text after the caret, if that is known, or else of the most probable one; -1 if there is no draft.
   */
  likeliest() {
    const order = (/** @type {PlacedDraft} */ a, /** @type {PlacedDraft} */ b) => {
      if (Boolean(a.best) !== Boolean(b.best)) return a.best ? 1 : -1;
      const [gain, other] = [a.gain ?? -Infinity, b.gain ?? -Infinity];
      return gain === other ? a.probability - b.probability : gain - other;
    };
    const live = this.all.flatMap(({ draft, live }, i) => (draft && live ? [{ draft, i }] : []));
    return live.reduce((best, row) => (best && order(row.draft, best.draft) <= 0 ? best : row), live[0])?.i ?? -1;
  }
}
