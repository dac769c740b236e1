// @ts-check
/**
 * How the newest drafts were made: a line for each draft and a cell for each token, coloured by where the token came from.
 * Pointing at a cell, or reaching it by Tab, says what decided there. The data come with the answer to a request that
 * asks for them.
 */

import { newButton, newElement, on, setText } from "../shared/dom.js";
import { place } from "./place.js";
import { plural } from "../shared/wording.js";

/**
 * A token, as the server explains it: its range in the draft in characters, where it came from, its draft's weight γ in the
 * superposed row, ln p by the model, by the stores and by both, and how many tokens the rule kept there.
 * @typedef {{from: number, to: number, by: string, store?: "base" | "personal", gamma: number | null, ln_model: number | null, ln_stores: number | null,
 *            ln_mixture: number | null, kept: number | null}} Token
 * @typedef {{passes: number, rows: number, ms: number, apart_ms: number | null}} Cost
 */

/** Where a token came from, in words. @type {Record<string, string>} */
export const ORIGINS = {
  own: "a row of its own",
  superposed: "the superposed row",
  store: "a store of phrases",
  personal: "your own writing",
  healing: "the word you began",
  kept: "an earlier draft",
  plain: "a pass of its own",
  accepted: "a proposal, accepted",
  tolerated: "a proposal, accepted by tolerance",
  corrected: "the model, in place of a proposal",
  bonus: "the model, after accepted proposals",
};

export class Made {
  /** @param {import("./panel.js").Panel} panel */
  constructor(panel) {
    this.box = newElement("section", "pd-made", `
      <p class="mk-cost">The next drafts are explained here.</p><ol></ol><p class="mk-said" role="status"></p><ul class="mk-key"></ul>`);
    place("#pd-cells .pd-part", this.box);
    on(panel.root, "pd-made", (answer) => this.draw(answer));
    for (const pointing of ["pointerover", "focusin"]) {
      this.box.addEventListener(pointing, ({ target }) => {
        if (target instanceof HTMLElement && target.dataset.said) setText(this.box.querySelector(".mk-said"), target.dataset.said);
      });
    }
  }

  /** @param {{drafts: {text: string, made?: Token[]}[], explained: Cost}} answer */
  draw({ drafts, explained }) {
    const length = Math.max(0, ...drafts.map(({ made = [] }) => made.length));
    setText(this.box.querySelector(".mk-cost"), cost(drafts.length, length, explained));
    setText(this.box.querySelector(".mk-said"), "Point at a token.");
    this.box.querySelector("ol")?.replaceChildren(...drafts.map(({ text, made = [] }) => newLine(text, made)));
    const used = new Set(drafts.flatMap(({ made = [] }) => made.map(originOf)));
    this.box.querySelector(".mk-key")?.replaceChildren(...[...used].map(
      (by) => newElement("li", "", `<i class="pd-by-${by}"></i> <span></span>`, { span: ORIGINS[by] ?? by })));
  }
}

/** @param {string} text @param {Token[]} made */
function newLine(text, made) {
  const line = document.createElement("li");
  const characters = [...text];
  line.append(...made.map((token) => {
    const shown = characters.slice(token.from, token.to).join("").replaceAll("\n", "↵") || "·";
    const label = saying(shown, token);
    const cell = newButton(shown, () => {}, { label, className: `pd-by-${originOf(token)}` });
    cell.dataset.said = label;
    return cell;
  }));
  return line;
}

/** A key of `ORIGINS`. @param {Token} token */
export const originOf = ({ by, store }) => (store === "personal" ? store : by);

/**
 * What was decided at a token, in a sentence.
 * @param {string} text
 * @param {Token} token
 */
export function saying(text, token) {
  const { gamma, ln_model: model, ln_stores: stores, ln_mixture: mixture, kept } = token;
  const parts = [
    gamma === null ? "" : `γ ${gamma.toFixed(2)}`,
    model === null ? "" : `ln p ${model.toFixed(2)} by the model`,
    stores === null ? "" : `${stores.toFixed(2)} by the stores`,
    mixture === null ? "" : `${mixture.toFixed(2)} mixed`,
    kept === null ? "" : `the rule kept ${kept.toLocaleString("en")}`,
  ];
  return [`“${text.trim() || text}” from ${ORIGINS[originOf(token)] ?? token.by}`, ...parts.filter(Boolean)].join(" · ");
}

/**
 * @param {number} k
 * @param {number} length in tokens
 * @param {Cost} explained
 */
export function cost(k, length, { passes, ms, apart_ms: apart }) {
  const alone = apart === null ? "" : `; apart they would take ${apart.toFixed(0)} ms here`;
  return `${plural(k, "draft")} of ${length} tokens in ${passes} ${passes === 1 ? "pass" : "passes"}, ${ms.toFixed(0)} ms${alone}.`;
}
