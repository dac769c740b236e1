// @ts-check
/**
 * The rows of the list: k places that keep their drafts. While one types, each row that agrees is trimmed where it
 * stands. A row that does not is freed: it shows its old text, dimmed, until the server fills its place or says that
 * there is nothing for it. No row ever moves to another place.
 */

import { restOf } from "./drafting.js";

/** @typedef {import("./drafting.js").Draft} Draft */
/** @typedef {import("./drafting.js").PlacedDraft} PlacedDraft */

/**
 * One place. `rest` is what is left of its draft at the caret; of a freed row (`live` is false) it is what was left
 * when it last agreed. `draft` is null where the place is empty.
 * @typedef {{draft: PlacedDraft | null, rest: string, live: boolean}} Row
 */

let made = 0;

/** @returns {Row} */
const empty = () => ({ draft: null, rest: "", live: false });

export class Places {
  constructor() {
    /** @type {Row[]} */
    this.rows = [];
  }

  /** Whether a row can be taken. */
  get open() {
    return this.rows.some(({ live }) => live);
  }

  clear() {
    this.rows = [];
  }

  /**
   * As many places as there are drafts to be shown.
   * @param {number} k
   */
  resize(k) {
    this.rows.length = Math.min(this.rows.length, k);
    while (this.rows.length < k) this.rows.push(empty());
  }

  /**
   * The text before the caret has changed.
   * @param {string} before
   */
  follow(before) {
    this.rows = this.rows.map((row) => {
      const rest = row.draft && restOf(row.draft, before);
      return rest ? { draft: row.draft, rest, live: true } : { ...row, live: false };
    });
  }

  /** Freed rows that nothing will fill become empty. */
  dropFreed() {
    this.rows = this.rows.map((row) => (row.live ? row : empty()));
  }

  /**
   * The server's drafts after `anchor`, now that `before` is written.
   * @param {string} anchor
   * @param {string} before
   * @param {{drafts: Draft[], settled: boolean, growing: boolean}} answer `settled`: a place without a draft is empty;
   *   `growing`: a draft that has only just begun keeps the end that this place already shows
   */
  receive(anchor, before, { drafts, settled, growing }) {
    const fresh = new Map(drafts.map((draft) => [draft.id, draft]));
    this.rows = this.rows.map((row, id) => {
      const draft = fresh.get(id);
      if (!draft) return settled ? empty() : row;
      const old = row.draft && restOf(row.draft, anchor);
      const goesOn = Boolean(old && (draft.text.startsWith(old) || old.startsWith(draft.text)));
      const text = growing && old?.startsWith(draft.text) ? old : draft.text;
      const same = goesOn ? row.draft : null;
      const placed = { ...draft, text, anchor, origin: same?.origin ?? anchor.length, lineage: same?.lineage ?? ++made };
      const rest = restOf(placed, before);
      return rest ? { draft: placed, rest, live: true } : { draft: placed, rest: row.rest || draft.text, live: false };
    });
  }

  /**
   * What a request says of the rows that are to stay.
   * @returns {{id: number, text: string}[]}
   */
  kept() {
    return this.rows.flatMap(({ rest, live }, id) => (live ? [{ id, text: rest }] : []));
  }

  /** The place of the draft that the writer most likely goes on with; -1 where there is none. */
  likeliest() {
    const chance = (/** @type {Row} */ row) => (row.live ? /** @type {PlacedDraft} */ (row.draft).probability : -1);
    return this.rows.reduce((best, row, i) => (chance(row) > (best < 0 ? -1 : chance(this.rows[best])) ? i : best), -1);
  }
}
