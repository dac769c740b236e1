// @ts-check
/**
 * Other drafts for a text: the writer asks for drafts that begin differently from all that were shown for it, again for
 * more of them, and goes back to the earlier ones. Another text begins anew.
 */

/** @typedef {import("./rows.js").Row} Row */
/** What was shown at one time, and the drafts that its request excluded. @typedef {{excluded: string[], rows: Row[]}} Time */

const MOST = 256; // drafts that a request may exclude: the limit of app/wire/bounds.py
const SEEDS = 2 ** 32;

export class Others {
  constructor() {
    /** The text before the caret that all of this belongs to. @type {string | null} */
    this.before = null;
    /** The drafts that were shown for it. @type {Set<string>} */
    this.shown = new Set();
    /** The first drafts, and those of each time that the writer has asked for others. @type {Time[]} */
    this.times = [{ excluded: [], rows: [] }];
    /** Which of these are shown. */
    this.at = 0;
  }

  /** @param {string} before */
  begin(before) {
    Object.assign(this, new Others(), { before });
  }

  /**
   * Note the rows that are shown for a text.
   * @param {string} before
   * @param {Row[]} rows
   */
  note(before, rows) {
    if (before !== this.before) this.begin(before);
    const live = rows.filter(({ live }) => live);
    for (const { rest } of live) this.shown.add(rest);
    if (live.length) this.times[this.at].rows = rows.map((row) => ({ ...row }));
  }

  /** Whether drafts were shown for a text. @param {string} before */
  knows(before) {
    return before === this.before && this.shown.size > 0;
  }

  /** Go to the drafts of the next time. @returns {Row[] | null} null if they must be requested */
  next() {
    this.at++;
    if (this.at < this.times.length && this.times[this.at].rows.length) return this.times[this.at].rows;
    this.times[this.at] = { excluded: [...this.shown].slice(-MOST), rows: [] };
    return null;
  }

  /** Go back to the drafts of the time before. @returns {Row[] | null} null if there is none */
  back() {
    return this.at ? this.times[--this.at].rows : null;
  }

  /** What a request for drafts of a text excludes. @param {string} before @returns {{avoid?: string[]}} */
  requestFields(before) {
    const { excluded } = this.times[this.at];
    return before === this.before && excluded.length ? { avoid: excluded } : {};
  }

  /**
   * The settings of a request, with the seed of this time.
   * @param {string} before
   * @param {any} settings
   */
  seeded(before, settings) {
    const { sampling, reset_every: resets } = settings;
    if (before !== this.before || !this.at || !(sampling || resets)) return settings;
    return { ...settings, sampling: { ...sampling, seed: ((sampling?.seed ?? 0) + this.at) % SEEDS } };
  }
}
