// @ts-check
/**
 * The writer's own numbers: the time between keys, from the first sight of a text to its taking, how many rows were shown
 * and how many taken, and the time that drafts have saved. They are stored in this browser only, can be seen and reset in
 * *My writing*, and nothing is measured in incognito. `core/time_saved.py` explains what they are for.
 *
 * A time that no person can have is never counted.
 */

import { READABLE_AFTER } from "./seen.js";
import { keep, recall } from "../shared/memory.js";

const KEPT = "polydraft.pace";
const KNOWN_AFTER = 200; // keys until the numbers count as known
const TAKINGS = 20; // takings until their own time replaces the published mean
const PUBLISHED = { key_ms: 157, look_ms: 50, take_ms: 700, word_ms: 120 }; // see research/docs/evaluation.md
const QUICKEST_KEY = 30; // ms; a key that is held down repeats so fast, and programs type faster
const LONGEST = 10_000; // ms; after a longer time without a key the writer was elsewhere
// A longer time without a key is thought, not typing. The mean of slow typists is 480 ms (Dhakal et al. 2018), so a second
// is twice that; for whoever is slower, three times their median.
const SHORTEST_PAUSE = 1000; // ms
const PAUSE = 3; // medians
export const READ_AFTER = 750; // ms without a key until rows on the screen count as read
const FORGET_AT = 4000; // keys; then all counts are halved, so that the newest ones weigh most
const WEEKS = 8; // for which saved time is stored
const FIRST = 20; // ms, the lower end of the first bin
const RATIO = 1.17; // of the ends of a bin
const BINS = 40;
const TENTHS = 10;
const DOUBT = 4; // how many judged rows the assumption weighs that the chances are right, at a chance of 50 %
const MOST_OFFSET = 2; // log-odds

/**
 * `keys` and `takes`: counts by time, in bins whose ends grow by RATIO; `shown`: rows that stood on the screen for
 * READ_AFTER; `weeks`: ms saved by the Monday of the week; `judged` and `right`: rows that saved time by their chance, in
 * tenths, and how many of them the writer's text then agreed with.
 * @typedef {{keys: number[], takes: number[], shown: number, taken: number, weeks: Record<string, number>,
 *            judged: number[], right: number[]}} Numbers
 */

/** @returns {Numbers} */
const none = () => ({
  keys: Array(BINS).fill(0), takes: Array(BINS).fill(0), shown: 0, taken: 0, weeks: {},
  judged: Array(TENTHS).fill(0), right: Array(TENTHS).fill(0),
});

export class Pace {
  /** @param {() => boolean} isIncognito */
  constructor(isIncognito) {
    this.isIncognito = isIncognito;
    /** @type {Numbers} */
    this.numbers = stored();
    /** When the last character was typed. */
    this.lastKey = -1e9;
    /** Called after a change. @type {() => void} */
    this.changed = () => {};
    this.timer = 0;
    addEventListener("pagehide", () => this.keep());
    addEventListener("storage", ({ key }) => {
      if (key !== KEPT) return;
      this.numbers = stored(); // another tab has measured
      this.changed();
    });
  }

  keepLater() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.keep(), 1000);
  }

  keep() {
    if (!this.isIncognito()) keep(KEPT, this.numbers);
  }

  /** Delete all numbers. */
  reset() {
    clearTimeout(this.timer);
    this.numbers = none();
    keep(KEPT, null);
    this.changed();
  }

  // ---------------------------------------------------------------- measuring

  /** A character was typed. @param {number} now in ms */
  typed(now) {
    const ms = now - this.lastKey;
    this.lastKey = now;
    if (this.isIncognito() || ms < QUICKEST_KEY || ms > LONGEST) return;
    const { keys } = this.numbers;
    keys[binOf(ms)] += 1;
    if (sum(keys) >= FORGET_AT) this.numbers.keys = keys.map((count) => count / 2);
    this.keepLater();
  }

  /** Rows have appeared or grown: each costs a look. @param {number} rows */
  looked(rows) {
    if (rows) this.save(-rows * this.costs.look_ms);
  }

  /** Rows have stood on the screen while the writer paused, long enough to be read. @param {number} rows */
  read(rows) {
    if (!this.isIncognito()) this.numbers.shown += rows;
  }

  /**
   * A draft was taken.
   * @param {number} length of the taken text, in characters, with the typed letters that it replaced
   * @param {number} ms since this very text was first seen
   * @param {boolean} further whether it is a further word of a draft that was just taken word by word
   */
  taken(length, ms, further) {
    if (this.isIncognito()) return;
    const { takes } = this.numbers;
    const { key_ms, take_ms, word_ms } = this.costs;
    if (!further) {
      this.numbers.taken += 1;
      if (ms >= READABLE_AFTER && ms <= LONGEST) takes[binOf(ms)] += 1;
    }
    this.save(length * key_ms - (further ? word_ms : take_ms));
  }

  /**
   * It is known whether a row that was displayed came true.
   * @param {number} chance of the row, as the server sent it, with the `offset` of this writer
   * @param {boolean} right
   */
  judge(chance, right) {
    if (this.isIncognito()) return;
    const { judged } = this.numbers;
    const tenth = Math.min(TENTHS - 1, Math.floor(withOffset(chance, -this.offset) * TENTHS));
    judged[tenth] += 1;
    if (right) this.numbers.right[tenth] += 1;
    if (sum(judged) >= FORGET_AT) {
      this.numbers.judged = judged.map((count) => count / 2);
      this.numbers.right = this.numbers.right.map((count) => count / 2);
    }
    this.keepLater();
  }

  /** @param {number} ms saved; below 0: lost */
  save(ms) {
    if (this.isIncognito()) return;
    const { weeks } = this.numbers;
    const week = mondayOf(new Date());
    weeks[week] = (weeks[week] ?? 0) + ms;
    for (const old of Object.keys(weeks).sort().slice(0, -WEEKS)) delete weeks[old];
    this.keepLater();
    this.changed();
  }

  // ---------------------------------------------------------------- what is known

  /** The times between two keys: of typing, and of thought; and the time from which on it is thought. */
  get times() {
    const { keys } = this.numbers;
    const pause = Math.max(SHORTEST_PAUSE, PAUSE * (sum(keys) >= KNOWN_AFTER ? quantile(keys, 0.5) : 0));
    return { typing: within(keys, 0, pause), thought: within(keys, pause, Infinity), pause };
  }

  /** Whether the writer's own time from first sight to taking is known. */
  get decisionKnown() {
    return sum(this.numbers.takes) >= TAKINGS;
  }

  /** How many times between two keys of typing are measured. */
  get keys() {
    return sum(this.times.typing);
  }

  /** Whether the writer's own time between keys is known. */
  get known() {
    return this.keys >= KNOWN_AFTER;
  }

  /**
   * What the server adds to the log-odds of every chance, so that as many rows come true as their chances say: the value
   * at which the expected number of right rows is the number counted, with a prior of DOUBT rows around 0.
   */
  get offset() {
    const { judged, right } = this.numbers;
    const surplus = (/** @type {number} */ offset) =>
      judged.reduce((total, n, tenth) => total + n * withOffset((tenth + 0.5) / TENTHS, offset) - right[tenth], DOUBT * offset / 4);
    let [low, high] = [-MOST_OFFSET, MOST_OFFSET];
    for (let step = 0; step < 20; step++) {
      const middle = (low + high) / 2;
      if (surplus(middle) > 0) high = middle;
      else low = middle;
    }
    return Math.round(50 * (low + high)) / 100;
  }

  /** The costs of this writer, in ms, as the server takes them: the published means where they are not known. */
  get costs() {
    const key = this.known ? meanOf(this.times.typing) : PUBLISHED.key_ms;
    const take = this.decisionKnown ? quantile(this.numbers.takes, 0.5) : PUBLISHED.take_ms;
    return { ...PUBLISHED, key_ms: Math.round(key), take_ms: Math.round(take) };
  }

  /** How long the writer must not type until that is a pause, and all drafts are shown, in ms. */
  get pause() {
    return this.times.pause;
  }

  /** Pauses for thought: how many, and their median in ms. */
  get thought() {
    const { thought } = this.times;
    return { count: Math.round(sum(thought)), ms: quantile(thought, 0.5) };
  }

  /** The minutes that drafts have saved in this week; below 0: cost. */
  get minutes() {
    return (this.numbers.weeks[mondayOf(new Date())] ?? 0) / 60_000;
  }
}

/** The numbers of the last visit; new ones if there are none, or what is stored has another form. */
function stored() {
  const numbers = recall(KEPT);
  const counts = (/** @type {unknown} */ list, length = BINS) =>
    Array.isArray(list) && list.length === length && list.every((count) => Number.isFinite(count) && count >= 0);
  const judged = numbers && counts(numbers.judged, TENTHS) && counts(numbers.right, TENTHS);
  const usable =
    judged && counts(numbers.keys) && counts(numbers.takes) && Number.isFinite(numbers.shown) && Number.isFinite(numbers.taken) &&
    typeof numbers.weeks === "object" && numbers.weeks && Object.values(numbers.weeks).every(Number.isFinite);
  return /** @type {Numbers} */ (usable ? numbers : none());
}

/** @param {number} ms */
const binOf = (ms) => Math.min(BINS - 1, Math.max(0, Math.floor(Math.log(ms / FIRST) / Math.log(RATIO))));

/** The geometric middle of a bin, in ms. @param {number} bin */
const middle = (bin) => FIRST * RATIO ** (bin + 0.5);

/**
 * The counts whose times are at least `from` and below `to`, in ms.
 * @param {number[]} counts by bin
 * @param {number} from
 * @param {number} to
 */
const within = (counts, from, to) => counts.map((count, bin) => (middle(bin) >= from && middle(bin) < to ? count : 0));

/** @param {number[]} counts */
const sum = (counts) => counts.reduce((total, count) => total + count, 0);

/** @param {number[]} counts by bin */
const meanOf = (counts) => counts.reduce((total, count, bin) => total + count * middle(bin), 0) / Math.max(1, sum(counts));

/**
 * A probability after log-odds are added to it: σ(logit p + offset).
 * @param {number} p
 * @param {number} offset
 */
export const withOffset = (p, offset) => (p > 0 ? 1 / (1 + ((1 - p) / p) * Math.exp(-offset)) : 0);

/**
 * @param {number[]} counts by bin
 * @param {number} share
 */
function quantile(counts, share) {
  let left = share * sum(counts);
  const bin = counts.findIndex((count) => (left -= count) <= 0);
  return middle(bin < 0 ? BINS - 1 : bin);
}

/** The Monday of a day's week, as year-month-day. @param {Date} day */
function mondayOf(day) {
  const monday = new Date(day.getFullYear(), day.getMonth(), day.getDate() - ((day.getDay() + 6) % 7), 12);
  return monday.toISOString().slice(0, 10);
}
