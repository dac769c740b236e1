// @ts-check
/**
 * Draws the drafts: the list, and the ghost text of the active row, which is the one that Tab takes. The active row stays
 * the same while its draft is shown.
 */

import { fitted, slipOf, wordStem } from "./drafting.js";
import { Seen, TAB, placeOf } from "./seen.js";
import { ANDROID } from "../shared/platform.js";
import { Timers } from "../shared/timers.js";

const ANNOUNCE_AFTER = 900; // ms until the best draft is announced
const TOUCH = matchMedia("(pointer: coarse)");

export class DraftsView {
  /**
   * @param {import("./text_field.js").TextField} field
   * @param {import("./rows.js").Rows} rows
   * @param {{ghost: import("./ghost.js").Ghost, list: import("./draft_list.js").DraftList, layout: import("./layout.js").Layout}} drawn
   * @param {() => boolean} isRevisiting whether a draft that was taken is selected in the text
   * @param {(message: string) => void} announce
   */
  constructor(field, rows, { ghost, list, layout }, isRevisiting, announce) {
    this.field = field;
    this.rows = rows;
    this.ghost = ghost;
    this.list = list;
    this.layout = layout;
    this.isRevisiting = isRevisiting;
    this.announce = announce;
    this.timers = new Timers();
    /** The index of the row whose draft Tab takes, or -1. */
    this.active = -1;
    /** The lineage of that draft. */
    this.lineage = 0;
    /** Whether the writer has selected it by key. */
    this.chosen = false;
    this.announced = "";
    this.seen = new Seen();
    /** Whether the writer has asked for the drafts at this place. */
    this.asked = false;
    /** Whether only rows that save time are displayed: then the list appears for the second one. */
    this.decides = false;
  }

  /** Whether a draft is shown for the present position. */
  get open() {
    return this.active >= 0;
  }

  /**
   * @param {{decides?: boolean, since?: number}} how `since`: when the writer saw these rows first, if that was before now
   */
  draw({ decides = this.decides, since = performance.now() } = {}) {
    this.decides = decides;
    // The draft that Tab takes, identified by its lineage, stays the same until another one is known to be the best.
    const row = this.rows.all[this.active];
    const likeliest = this.rows.likeliest();
    const better = !this.chosen && likeliest >= 0 && this.rows.all[likeliest].draft?.best;
    if (better || !row?.live || row.draft?.lineage !== this.lineage) {
      this.active = likeliest;
      this.lineage = this.rows.all[this.active]?.draft?.lineage ?? 0;
      this.chosen = false;
    }
    const { listed } = this; // found once, because of a long text that takes time
    const drafts = this.rows.all.map(({ draft, live }, i) => (live && this.shows(i, listed) ? draft : null));
    if (this.announced && this.announced !== this.spoken()) this.unsay();
    this.seen.show([drafts[this.active] ?? null, ...drafts], this.field.head, since);
    this.drawList(listed);
    this.fit(listed);
  }

  /** Whether the writer sees a row: in the list, or as the ghost alone. @param {number} i */
  shows(i, listed = this.listed) {
    return (this.open && i === this.active) || listed.length > 0;
  }

  /**
   * What the key for the best draft takes if it was pressed at a moment, as the writer had read it: the draft that the
   * writer has selected, or else the one that had the key's name then, or that has it now.
   * @param {number} at
   */
  best(at) {
    const places = this.chosen ? [placeOf(this.active)] : [TAB, placeOf(this.active)];
    for (const place of places) {
      const read = this.seen.read(place, this.field.head, at);
      if (read) return read;
    }
    return null;
  }

  /** Draw again after the text's column or its font has changed. */
  fit(listed = this.listed) {
    const room = this.layout.float(listed.length > 0);
    this.drawGhost(room);
    this.layout.followText(true);
  }

  /**
   * The rows in the list. A single row that saves time is the ghost alone; on a touch screen it is a row to tap, too. One
   * that corrects a slip is always a row, because the ghost cannot strike letters out.
   * Where text follows the caret, a list appears only if the writer has asked for it.
   */
  get listed() {
    const { all, shown } = this.rows;
    if (all.length && this.layout.textFollows && !(this.asked && all.some(({ draft }) => draft))) return [];
    const alone = !TOUCH.matches && !all.some(({ draft, live }) => live && draft?.replace);
    return this.decides && shown.length < (alone ? 2 : 1) ? [] : all;
  }

  drawList(listed = this.listed) {
    const { text, caret } = this.field;
    const stem = wordStem(text.slice(Math.max(0, caret - 40), caret));
    this.list.draw(listed, { active: this.active, chosen: this.chosen, stem });
  }

  /** @param {number} room the height of a list between the caret's line and the one below, in px */
  drawGhost(room = this.ghost.room) {
    const { text, caret, textarea, composing } = this.field;
    const row = this.rows.all[this.active];
    if (this.rows.all.length === 0 || (composing && !ANDROID)) {
      this.ghost.hide();
      return;
    }
    const revisits = this.isRevisiting();
    // A ghost would cover the selection, and cannot strike letters out.
    const ghost = revisits || !row || row.draft?.replace ? "" : fitted(row.rest, text.slice(textarea.selectionEnd));
    // Where text follows, the lines below make room for the list, with a ghost or without.
    if (ghost || room) this.ghost.show(ghost, text, revisits ? textarea.selectionEnd : caret, { room });
    else this.ghost.hide();
    if (caret === text.length) {
      // At the end of the text, scroll so that the ghost's last line is visible too.
      const hidden = this.ghost.bottom() + 4 - textarea.scrollTop - textarea.clientHeight;
      if (hidden > 0) textarea.scrollTop += hidden;
    }
  }

  /** Make the next row that has a draft the active one. @param {number} by 1 or -1 */
  move(by) {
    do this.active = (this.active + by + this.rows.all.length) % this.rows.all.length;
    while (!this.rows.all[this.active].live);
    this.lineage = this.rows.all[this.active].draft?.lineage ?? 0;
    this.chosen = true;
    this.drawList();
    this.drawGhost();
    this.list.show(this.active);
  }

  /** The best draft as it is announced; "" if there is none. */
  spoken() {
    const { draft, rest } = this.rows.all[this.active] ?? {};
    const slip = draft?.replace ? slipOf(draft) : null;
    return (slip ? `${slip.stays}${rest?.trim()}, in place of ${slip.word}` : rest?.trim()) ?? "";
  }

  /** Remove the announcement: a screen reader would go on finding a draft that is gone. */
  unsay() {
    this.announced = "";
    this.announce("");
  }

  /** Announce the best draft to screen readers when the writer pauses, unless it was the last announcement. */
  announceLater() {
    this.timers.later("announce", ANNOUNCE_AFTER, () => {
      const best = this.spoken();
      if (!best || best === this.announced || document.activeElement !== this.field.textarea) return;
      this.announced = best;
      const live = this.rows.all.filter((row) => row.live).length;
      this.announce(`${live === 1 ? "One draft" : `${live} drafts`}. Best: ${best}.`);
    });
  }
}
