// @ts-check
/**
 * The rows of the list: k rows with one draft each. While the writer types, a row that agrees is shortened. A row that
 * does not agree is freed: nobody sees it until the writer goes back to where it agrees, or the server sends a draft for
 * it. A draft never moves to another row, and while it is visible its end never moves backwards: a response that ends
 * earlier leaves the row as it is.
 */

import { restOf } from "./drafting.js";

/** @typedef {import("./drafting.js").Draft} Draft */
/** @typedef {import("./drafting.js").PlacedDraft} PlacedDraft */

/**
 * One row. `rest` is the part of its draft after the caret; in a freed row (`live` is false) it is the rest when the
 * draft last agreed, whose room the row keeps. `draft` is null in an empty row.
 * @typedef {{draft: PlacedDraft | null, rest: string, live: boolean}} Row
 */

let lineages = 0;

/**
 * The rest of a row's draft at `anchor` if `draft` says the same, shorter or longer; else null.
 * @param {PlacedDraft | null} old
 * @param {Draft} draft
 * @param {string} anchor
 */
function continued(old, draft, anchor) {
  const rest = old && (old.replace ?? 0) === (draft.replace ?? 0) ? restOf(old, anchor) : null;
  return rest && (draft.text.startsWith(rest) || rest.startsWith(draft.text)) ? rest : null;
}

/**
 * A draft of a response at its place. If it continues the row's, it is a version of that one.
 * @param {string} anchor the text before the caret in the request
 * @param {Draft} draft
 * @param {PlacedDraft | null} old the row's draft
 * @param {boolean} keepsEnd whether the row's end stays where the new one is shorter
 * @returns {PlacedDraft}
 */
function placed(anchor, draft, old, keepsEnd = true) {
  const rest = continued(old, draft, anchor);
  if (!old || !rest) return { ...draft, anchor, origin: anchor.length, lineage: ++lineages };
  const text = keepsEnd && rest.length > draft.text.length ? rest : draft.text;
  return { ...draft, chosen: old.chosen, text, anchor, origin: old.origin, lineage: old.lineage };
}

/**
 * The drafts that still save time after further keys, up to where each is worth showing. Less of each is left, and its
 * chance has risen with each key; at least the old one is left.
 * @param {import("./answers.js").Answer} answer
 * @param {number} typed ms of those keys
 * @returns {Draft[]} best first
 */
export function paying({ drafts, pays = [] }, typed) {
  return pays.flatMap(({ id, text, chance, saved_ms }) => {
    const draft = drafts.find((candidate) => candidate.id === id);
    if (!draft || (typed && saved_ms <= chance * typed)) return [];
    // A draft that appears unasked may end before it saves most time: at the next punctuation.
    const shown = draft.text.startsWith(text) ? text : draft.text;
    return [{ ...draft, text: shown, chance, best: pays[0].id === id }];
  });
}

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

  /** Set the number of rows. @param {number} k */
  resize(k) {
    this.all.length = Math.min(this.all.length, k);
    while (this.all.length < k) this.all.push(empty());
  }

  /** Shorten or free the rows after the text before the caret has changed. @param {string} before */
  follow(before) {
    this.all = this.all.map((row) => {
      const rest = row.draft && restOf(row.draft, before);
      return rest ? { draft: { .../** @type {PlacedDraft} */ (row.draft), chosen: false }, rest, live: true } : { ...row, live: false };
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
    const place = (/** @type {number} */ id, /** @type {Draft} */ fresh, /** @type {PlacedDraft | null} */ old) => {
      const draft = placed(anchor, fresh, old);
      const rest = restOf(draft, before);
      if (rest) decided[id] = { draft, rest, live: true };
    };
    for (const draft of drafts) {
      const id = this.all.findIndex((row, i) => row.live && !decided[i].live && continued(row.draft, draft, anchor));
      if (id >= 0) place(id, draft, this.all[id].draft);
      else others.push(draft);
    }
    for (const draft of others) {
      const free = decided.findIndex(({ live }) => !live);
      if (free >= 0) place(free, draft, null);
    }
    this.all = decided;
  }

  /** Mark the row that Tab takes: the one that is expected to save most time. @param {number | null} id */
  prefer(id) {
    this.all = this.all.map((row, i) => (row.draft ? { ...row, draft: { ...row.draft, best: i === id } } : row));
  }

  /**
   * Begin a row with a text: the first free row, else the lowest one that was not begun so.
   * @param {string} anchor the text before the caret
   * @param {string} text
   */
  begin(anchor, text) {
    const free = this.all.findIndex(({ live }) => !live);
    const lowest = this.all.findLastIndex(({ draft }) => !draft?.chosen);
    const id = free >= 0 ? free : lowest >= 0 ? lowest : this.all.length - 1;
    const draft = { ...placed(anchor, { id, text, probability: 0, whole: 0, finished: false }, null), chosen: true };
    this.all[id] = { draft, rest: text, live: true };
  }

  /** Empty the freed rows. */
  dropFreed() {
    this.all = this.all.map((row) => (row.live ? row : empty()));
  }

  /**
   * Fill the rows with the server's drafts.
   * @param {string} anchor the text before the caret in the request
   * @param {string} before the present text before the caret
   * @param {{drafts: Draft[], settled: boolean, shortens: boolean}} answer `settled`: a row without a draft is empty;
   *   `shortens`: the writer has changed how far drafts go, so ends may move backwards
   */
  receive(anchor, before, { drafts, settled, shortens }) {
    const fresh = new Map(drafts.map((draft) => [draft.id, draft]));
    this.all = this.all.map((row, id) => {
      const answer = fresh.get(id);
      if (!answer) return settled ? empty() : row;
      const draft = placed(anchor, answer, row.draft, row.live && !shortens);
      const rest = restOf(draft, before);
      return rest ? { draft, rest, live: true } : { draft, rest: row.rest || draft.text, live: false };
    });
  }

  /**
   * The field `kept` of a request: the rows that stay. One that corrects a slip is found again, or not.
   * @returns {{id: number, text: string, chosen?: true}[]}
   */
  kept() {
    return this.all.flatMap(({ draft, rest, live }, id) =>
      live && !draft?.replace ? [{ id, text: rest, ...(draft?.chosen ? { chosen: true } : {}) }] : []);
  }

  /** How many rows an answer must fill. */
  get freed() {
    return this.all.filter(({ live }) => !live).length;
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
