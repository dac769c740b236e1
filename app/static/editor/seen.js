// @ts-check
/**
 * What a reader of the page has seen: which text stood at which place, and since when. A key inserts what stood there
 * READABLE_AFTER before it, because that is what the writer has read: nobody reads a text and presses a key for it in less.
 * Drafts may arrive at any moment, so the text that stands there when the key comes may be another one, or a longer one.
 *
 * A place is a row of the list, or the grey text that Tab takes. The module knows neither the page nor a clock.
 */

import { restOf } from "./drafting.js";

/** @typedef {import("./drafting.js").PlacedDraft} PlacedDraft */

/**
 * A text that stood at a place. It stays the same text while the writer types its beginning and while it grows.
 * `draft`: its newest version; `ends`: where in the writer's text it would end, and since when it reached that far, the
 * farthest last; `until`: when it disappeared.
 * @typedef {{draft: PlacedDraft, ends: {end: number, at: number}[], until: number}} Stood
 *
 * What can be taken. `text`: what continues the present text; `since(length)`: when its first `length` characters were
 * seen first.
 * @typedef {{draft: PlacedDraft, text: string, since: (length: number) => number}} Read
 */

// ms. Readers look at a word for 200 to 250 ms (Rayner 1998), and the finger takes as long again.
export const READABLE_AFTER = 200;
const REMEMBERED = 2000; // ms; a key on a busy machine, or the end of a long press, comes late

/** The place of the text that Tab takes. */
export const TAB = 0;
/** The place of a row. @param {number} i */
export const placeOf = (i) => i + 1;

export class Seen {
  constructor() {
    /** By place, the newest last. @type {Stood[][]} */
    this.places = [];
  }

  /** Forget everything: the writer has dismissed it, or it may not be inserted any more. */
  forget() {
    this.places = [];
  }

  /**
   * From `now` on, these drafts are visible, and no others.
   * @param {(PlacedDraft | null)[]} drafts by place
   * @param {string} before the text before the caret
   * @param {number} now
   */
  show(drafts, before, now) {
    for (let place = 0; place < Math.max(drafts.length, this.places.length); place++) {
      const stood = (this.places[place] ??= []);
      const draft = drafts[place] ?? null;
      const last = stood.at(-1);
      const old = last?.until === Infinity ? last : null;
      while (stood.length && stood[0].until < now - REMEMBERED) stood.shift();
      if (old && draft === old.draft) continue; // perhaps the writer has typed its beginning
      const rest = draft && restOf(draft, before);
      const reached = { end: draft && rest ? startOf(draft, before) + rest.length : 0, at: now };
      const left = old && draft && isReplacedAlike(old.draft, draft) ? restOf(old.draft, before) : null;
      if (old && draft && left && rest?.startsWith(left)) {
        if (rest.length > left.length) old.ends.push(reached);
        old.draft = draft;
      } else {
        if (old) old.until = now;
        if (draft && rest) stood.push({ draft, ends: [reached], until: Infinity });
      }
    }
  }

  /**
   * What stood at a place READABLE_AFTER before the moment `at`, as far as it continues the present text and is not typed
   * yet; null if it does not.
   * @param {number} place
   * @param {string} before the text before the caret
   * @param {number} at
   * @returns {Read | null}
   */
  read(place, before, at) {
    const then = at - READABLE_AFTER;
    const stood = this.places[place]?.findLast(({ ends, until }) => ends[0].at <= then && until > then);
    if (!stood) return null;
    const { draft, ends } = stood;
    const start = startOf(draft, before);
    const end = ends.findLast((reached) => reached.at <= then)?.end ?? 0;
    const text = restOf(draft, before)?.slice(0, Math.max(0, end - start));
    if (!text) return null;
    const since = (/** @type {number} */ length) => this.firstSight(text.slice(0, length), start, before, then);
    return { draft, text, since };
  }

  /**
   * Since when a text that stood somewhere at `then` has been visible, at any place.
   * @param {string} text
   * @param {number} start where it begins in the writer's text
   * @param {string} before
   * @param {number} then
   */
  firstSight(text, start, before, then) {
    const sights = this.places.flat().map(({ draft, ends, until }) => {
      const same = until > then && startOf(draft, before) === start && restOf(draft, before)?.startsWith(text);
      return (same && ends.find(({ end }) => end >= start + text.length)?.at) || Infinity;
    });
    return Math.min(...sights);
  }
}

/**
 * Where in the writer's text a draft is inserted: at the caret, or where the letters begin that it replaces.
 * @param {PlacedDraft} draft
 * @param {string} before
 */
const startOf = ({ replace = 0 }, before) => before.length - replace;

/** Whether two drafts are inserted at the same place. @param {PlacedDraft} a @param {PlacedDraft} b */
const isReplacedAlike = (a, b) => (a.replace ?? 0) === (b.replace ?? 0);
