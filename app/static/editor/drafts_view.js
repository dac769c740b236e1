// @ts-check
/**
 * Draws the drafts: the list, and the ghost text of the active row, which is the one that Tab takes. The active row stays
 * the same while its draft is shown.
 */

import { fitted, slipOf, wordStem } from "./drafting.js";
import { ANDROID } from "../shared/platform.js";
import { Timers } from "../shared/timers.js";

const ANNOUNCE_AFTER = 900; // ms until the best draft is announced
const READABLE_AFTER = 150; // ms; Tab takes no text that has been shown for less
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
    /** The last ghost text and its position. @type {{text: string, caret: number} | null} */
    this.lastGhost = null;
    this.announced = "";
    /**
     * What Tab would take, since when, the newest last: the draft, and where it ends in the text; lineage 0 is none.
     * @type {{at: number, lineage: number, end: number}[]}
     */
    this.stood = [];
    /** Whether the writer has asked for the drafts at this place. */
    this.asked = false;
    /** Whether only rows that save time are displayed: then the list appears for the second one. */
    this.decides = false;
  }

  /** Whether a draft is shown for the present position. */
  get open() {
    return this.active >= 0;
  }

  /** @param {{decides?: boolean}} how */
  draw({ decides = this.decides } = {}) {
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
    this.note();
    this.drawList();
    this.fit();
  }

  /** Remember what Tab would take from now on. */
  note() {
    const row = this.rows.all[this.active];
    const now = { at: performance.now(), lineage: this.lineage, end: row ? this.field.caret + row.rest.length : 0 };
    const last = this.stood.at(-1);
    if (last?.lineage === now.lineage && now.end <= last.end) last.end = now.end;
    else this.stood.push(now);
    while (this.stood.length > 1 && this.stood[1].at <= now.at - READABLE_AFTER) this.stood.shift();
  }

  /**
   * What Tab takes: the row, and how much of it has been shown for long enough to be read. That is the best row, or the
   * one that stood there before; null: neither.
   * @returns {{i: number, length: number} | null}
   */
  get readable() {
    if (this.chosen) return { i: this.active, length: Infinity };
    const last = this.stood.findLast(({ at }) => at <= performance.now() - READABLE_AFTER);
    const i = this.rows.all.findIndex(({ draft, live }) => live && draft?.lineage === last?.lineage);
    const length = (last?.end ?? 0) - this.field.caret;
    return i >= 0 && length > 0 ? { i, length } : null;
  }

  /** Draw again after the text's column or its font has changed. */
  fit() {
    const room = this.layout.float(this.listed.length > 0);
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

  drawList() {
    const { text, caret } = this.field;
    const stem = wordStem(text.slice(Math.max(0, caret - 40), caret));
    this.list.draw(this.listed, { active: this.active, chosen: this.chosen, stem });
  }

  /** @param {number} room the height of a list between the caret's line and the one below, in px */
  drawGhost(room = this.ghost.room) {
    const { text, caret, textarea, composing } = this.field;
    const row = this.rows.all[this.active];
    if (this.rows.all.length === 0 || (composing && !ANDROID)) {
      this.lastGhost = null;
      this.ghost.hide();
      return;
    }
    if (this.isRevisiting()) {
      // A ghost would cover the selection; the lines below it make room for the list.
      if (room) this.ghost.show("", text, textarea.selectionEnd, { room });
      else this.ghost.hide();
    } else if (row?.draft?.replace) {
      this.lastGhost = null;
      if (room) this.ghost.show("", text, caret, { room });
      else this.ghost.hide();
    } else if (row) {
      this.lastGhost = { text: fitted(row.rest, text.slice(textarea.selectionEnd)), caret };
      this.ghost.show(this.lastGhost.text, text, caret, { room });
    } else if (!this.decides && this.lastGhost && this.rows.all.some(({ draft }) => draft)) {
      // No draft agrees, and new ones are requested: until they arrive, the letters stay in place, paler.
      const typed = Math.max(0, caret - this.lastGhost.caret);
      this.ghost.show(this.lastGhost.text.slice(typed), text, caret, { fading: true, room });
    } else if (room) this.ghost.show("", text, caret, { room });
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

  /** Announce the best draft to screen readers when the writer pauses, unless it was the last announcement. */
  announceLater() {
    this.timers.later("announce", ANNOUNCE_AFTER, () => {
      const { draft, rest } = this.rows.all[this.active] ?? {};
      const slip = draft?.replace ? slipOf(draft) : null;
      const best = slip ? `${slip.stays}${rest.trim()}, in place of ${slip.word}` : rest?.trim();
      if (!best || best === this.announced || document.activeElement !== this.field.textarea) return;
      this.announced = best;
      const live = this.rows.all.filter((row) => row.live).length;
      this.announce(`${live === 1 ? "One draft" : `${live} drafts`}. Best: ${best}.`);
    });
  }
}
