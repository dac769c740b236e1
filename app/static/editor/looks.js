// @ts-check
/** Counts the rows that the writer looks at and reads, and the times of keys and answers, for benchmarks. */

import { isNew, restOf } from "./drafting.js";
import { READ_AFTER } from "./pace.js";
import { Timers } from "../shared/timers.js";

export class Looks {
  /** @param {import("./rows.js").Rows} rows @param {import("./pace.js").Pace} pace */
  constructor(rows, pace) {
    this.rows = rows;
    this.pace = pace;
    this.timers = new Timers();
    /** The drafts of the rows when looks were last counted. @type {import("./drafting.js").PlacedDraft[]} */
    this.appeared = [];
  }

  /**
   * Count the looks at rows that have appeared or grown, and later the rows that were probably read.
   * @param {string} before
   * @returns {number} how many looks
   */
  count(before) {
    const seen = this.appeared.flatMap((draft) => restOf(draft, before) || []);
    const looks = this.rows.shown.filter((rest) => isNew(rest, seen)).length;
    const drafts = this.rows.all.flatMap(({ draft, live }) => (draft && live ? [draft] : []));
    const fresh = drafts.filter(({ lineage }) => !this.appeared.some((other) => other.lineage === lineage)).length;
    this.appeared = drafts;
    this.pace.looked(looks);
    this.timers.later("read", READ_AFTER, () => this.pace.read(fresh));
    return looks;
  }

  /** The writer goes on, and has not read the newest rows. */
  stop() {
    this.timers.stop("read");
  }

  /** There are no rows any more. */
  forget() {
    this.appeared = [];
  }
}

/** Times in ms. */
export const counters = () => ({
  keystrokes: 0,
  requests: 0,
  avoided: 0,
  /** Rows that had to be read: displayed, and not as far before. */
  newRows: 0,
  /** Key down to the first draft in the page, for keys that no draft agreed with. @type {number[]} */
  firstMs: [],
  /** Key down to the last freed row filled, for keys that some drafts agreed with. @type {number[]} */
  fillMs: [],
  /** Key down to all drafts complete. @type {number[]} */
  doneMs: [],
  /** Key down to the shortened drafts in the page. @type {number[]} */
  alongMs: [],
});

/**
 * Record how long a request has taken until its drafts are in the rows.
 * @param {ReturnType<typeof counters>} counted
 * @param {import("./drafts_controller.js").Request} request
 * @param {import("./rows.js").Rows} rows
 * @param {boolean} settled
 */
export function recordTimes({ firstMs, fillMs, doneMs }, request, rows, settled) {
  if (request.pressed === null) return;
  const elapsed = performance.now() - request.pressed;
  if (!request.answered && request.freed === request.k && rows.open) firstMs.push(elapsed);
  if (!request.filled && (settled || !rows.freed)) {
    request.filled = true;
    if (request.freed < request.k) fillMs.push(elapsed);
  }
  if (request.done) doneMs.push(elapsed);
}
