// @ts-check
/** The list of drafts below the text: one row each, drawn in place, with the beginnings that rows share drawn once. */

import { setText } from "./dom.js";
import { branches, percent } from "./drafting.js";
import { drawMarked, marks, tokens } from "./marks.js";

/** @typedef {import("./drafting.js").Row} Row */

export class DraftList {
  /**
   * @param {HTMLElement} root
   * @param {HTMLTextAreaElement} textarea
   * @param {(i: number, event: MouseEvent) => void} picked called when a row is clicked or tapped
   */
  constructor(root, textarea, picked) {
    this.root = root;
    this.textarea = textarea;
    this.picked = picked;
    this.box = /** @type {HTMLElement} */ (root.querySelector(".pd-list"));
    this.hints = /** @type {HTMLElement} */ (root.querySelector(".pd-hints"));
    this.below = /** @type {HTMLElement} */ (root.querySelector(".pd-below"));
  }

  /**
   * @param {Row[]} rows
   * @param {{active: number, chosen: boolean, stem: string}} how `active`: the row that Tab takes; `chosen`: by hand;
   *   `stem`: the end of an unfinished word before the caret
   */
  draw(rows, { active, chosen, stem }) {
    const { box } = this;
    const open = rows.length > 0;
    box.hidden = !open;
    this.hints.hidden = !open;
    this.textarea.setAttribute("aria-expanded", String(open));
    while (box.children.length > rows.length) box.lastElementChild?.remove();
    while (box.children.length < rows.length) box.append(this.newOption(box.children.length));

    const parts = branches(rows.map((row) => row.rest));
    const coloured = this.root.hasAttribute("data-coloured");
    let marked = false;
    rows.forEach(({ draft, rest }, i) => {
      const option = /** @type {HTMLElement} */ (box.children[i]);
      const { shared, parent } = parts[i];
      const mine = marks(draft, rest);
      const drawn = coloured ? tokens(draft, rest) : mine;
      marked ||= mine.length > 0;
      option.setAttribute("aria-selected", String(i === active));
      option.title = `The whole draft: ${percent(draft.whole)}${mine.length ? "; underlined: from your stores" : ""}`;
      option.dataset.text = rest;
      const text = /** @type {HTMLElement} */ (option.querySelector(".pd-draft"));
      // A draft that finishes a word is read as that word; what is already typed is drawn by the style sheet only,
      // so that the row's text is exactly what taking it inserts.
      const spaced = /^\s/.test(rest);
      text.dataset.stem = spaced ? "" : stem;
      text.classList.toggle("pd-spaced", spaced);
      const [common, own] = /** @type {HTMLCollectionOf<HTMLElement>} */ (text.children);
      drawMarked(common, rest, drawn, 0, shared);
      drawMarked(own, rest, drawn, shared, rest.length);
      const crossed = parts.slice(parent + 1, i).some((between) => between.shared < shared);
      option.classList.toggle("pd-forks", shared > 0 && !crossed);
      option.style.setProperty("--rise", String(i - parent));
      setText(/** @type {HTMLElement} */ (option.querySelector(".pd-chance")), percent(draft.probability));
    });
    this.below.toggleAttribute("data-marked", marked);
    if (open && chosen) this.textarea.setAttribute("aria-activedescendant", `pd-draft-${active + 1}`);
    else this.textarea.removeAttribute("aria-activedescendant");
  }

  /** @param {number} i */
  show(i) {
    this.box.children[i].scrollIntoView({ block: "nearest" });
  }

  /** @param {number} i */
  newOption(i) {
    const option = document.createElement("div");
    option.className = "pd-option-row";
    option.id = `pd-draft-${i + 1}`;
    option.setAttribute("role", "option");
    option.innerHTML =
      `<span class="pd-number">${i + 1}</span>` +
      `<span class="pd-draft" dir="auto"><span class="pd-common"></span><span class="pd-own"></span></span>` +
      `<kbd class="pd-tab" aria-hidden="true">Tab</kbd><span class="pd-chance"></span>`;
    // The textarea keeps the focus, and a phone its keyboard.
    option.addEventListener("pointerdown", (event) => event.preventDefault());
    option.addEventListener("mousedown", (event) => event.preventDefault());
    option.addEventListener("click", (event) => this.picked(i, event));
    return option;
  }
}
