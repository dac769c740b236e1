// @ts-check
/**
 * Whether the rows that were displayed came true: the writer's text went on as a row says up to its end, typed or taken,
 * or differently. The chances of rows are corrected by these counts (`Pace.offset`).
 */

const MOST = 32; // rows whose outcome is open
const CONTEXT = 32; // characters before a row; where they have changed, its outcome stays unknown

export class Outcomes {
  /** @param {(chance: number, right: boolean) => void} judge called once for each row whose outcome is known */
  constructor(judge) {
    this.judge = judge;
    /** @type {Map<number, {origin: number, context: string, text: string, chance: number}>} by lineage of the row */
    this.open = new Map();
  }

  /**
   * A row is displayed. Only its first appearance counts.
   * @param {{lineage: number, anchor: string, text: string, chance?: number}} draft
   */
  displayed({ lineage, anchor, text, chance }) {
    if (chance === undefined || this.open.has(lineage)) return;
    this.open.set(lineage, { origin: anchor.length, context: anchor.slice(-CONTEXT), text, chance });
    if (this.open.size > MOST) this.open.delete(this.open.keys().next().value ?? lineage);
  }

  /** The text has changed. @param {string} before the text before the caret */
  follow(before) {
    for (const [lineage, { origin, context, text, chance }] of this.open) {
      const same = before.length >= origin && before.slice(Math.max(0, origin - CONTEXT), origin) === context;
      const typed = before.slice(origin, origin + text.length);
      const right = typed === text;
      if (same && !right && text.startsWith(typed)) continue;
      this.open.delete(lineage);
      if (same) this.judge(chance, right);
    }
  }

  /** Another document is opened: its text says nothing about the rows. */
  forget() {
    this.open.clear();
  }
}
