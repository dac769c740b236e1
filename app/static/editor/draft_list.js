// @ts-check
/**
 * The list of drafts at the caret: one row each. A beginning or an end that rows share is shown once. Drawing changes
 * only elements that differ, because it runs for every row at every step while drafts grow.
 */

import { newElement, part, setText } from "../shared/dom.js";
import { branches, commonEnds, inkOf, isRightToLeft, percent, slipOf, upToWord } from "./drafting.js";
import { drawMarked, marks, tokens } from "./marks.js";

/** @typedef {import("./rows.js").Row} Row */

/** How the tokens of a draft were computed. */
const TAILS = {
  own: "each word computed on its own",
  superposed: "computed together with the other drafts",
  checked: "computed together with the other drafts, then checked",
};
const EXPLAINED = "How likely you are to continue this way";

export class DraftList {
  /**
   * @param {HTMLElement} root
   * @param {HTMLTextAreaElement} textarea
   * @param {(i: number, offset: number | null, pressed: number) => void} picked called when a row is clicked or tapped, at
   *   the character `offset`, or beside its text; `pressed`: when the pointer went down
   * @param {(text: string, at: number, place: {x: number, y: number}) => void} opened called when a row's menu is asked
   *   for, at a character of its text and a place in the window
   */
  constructor(root, textarea, picked, opened) {
    this.opened = opened;
    this.root = root;
    this.textarea = textarea;
    this.picked = picked;
    this.box = part(root, ".pd-list");
    this.hints = part(root, ".pd-hints");
    this.others = part(root, ".pd-others");
    this.below = part(root, ".pd-below");
    /** When the pointer went down on the list. */
    this.pressed = 0;
    this.box.addEventListener("pointerdown", ({ timeStamp }) => (this.pressed = timeStamp));
    // The textarea keeps the focus, and a phone its keyboard.
    for (const event of ["pointerdown", "mousedown"]) {
      this.box.addEventListener(event, (pressed) => pressed.preventDefault());
    }
    this.box.addEventListener("pointermove", (event) => this.showWords(event));
    this.box.addEventListener("pointerleave", () => highlight(null));
  }

  /**
   * @param {Row[]} rows empty: the list is closed
   * @param {{active: number, chosen: boolean, stem: string}} how `active`: the row that Tab takes, or -1; `chosen`:
   *   whether the writer has selected it by key; `stem`: the unfinished word before the caret
   */
  draw(rows, { active, chosen, stem }) {
    const { box } = this;
    const open = rows.length > 0;
    box.hidden = !open;
    this.hints.hidden = this.others.hidden = !open;
    while (box.children.length > rows.length) box.lastElementChild?.remove();
    while (box.children.length < rows.length) box.append(this.newOption(box.children.length));

    // The beginning of a row that corrects a slip is not that of the others, so it is shown whole.
    const texts = rows.map(({ draft, rest, live }) => (live && !draft?.replace ? rest : ""));
    const starts = branches(texts);
    const ends = commonEnds(texts, starts.map(({ shared }) => shared));
    const parts = starts.map((part, i) => ({ ...part, end: ends[i] }));
    set(box, "dir", isRightToLeft(stem || texts.join(" ")) ? "rtl" : null);
    const { colour } = this.root.dataset;
    let marked = false;
    rows.forEach(({ draft, rest, live }, i) => {
      const option = /** @type {HTMLElement} */ (box.children[i]);
      set(option, "aria-selected", String(i === active));
      set(option, "aria-hidden", live ? null : "true");
      option.classList.toggle("pd-empty", !live);
      option.classList.toggle("pd-chosen", Boolean(draft?.chosen));
      if (draft && !live) return; // a freed row is invisible, and keeps the room of its text, so that nothing moves
      const chance = part(option, ".pd-chance");
      const mine = draft ? marks(draft, rest) : [];
      marked ||= mine.length > 0;
      this.drawText(option, rest, draft?.made && colour && colour !== "off" ? tokens(draft, rest, colour) : mine, parts, i, stem);
      this.drawStruck(option, draft);
      option.dataset.text = rest;
      const title = draft ? described(draft, mine.length > 0) : "";
      if (option.title !== title) option.title = title;
      const likely = draft?.chance ?? draft?.probability ?? 0;
      setText(chance, draft ? percent(likely) : "");
      const share = String(Math.round(likely * 100) / 100);
      if (option.style.getPropertyValue("--chance") !== share) option.style.setProperty("--chance", share);
      const ink = inkOf(likely);
      if (option.dataset.ink !== ink) option.dataset.ink = ink;
    });
    this.below.toggleAttribute("data-marked", marked);
    const pointed = open && chosen && active >= 0 ? `pd-draft-${active + 1}` : null;
    set(this.textarea, "aria-activedescendant", pointed);
  }

  /**
   * @param {HTMLElement} option
   * @param {string} rest
   * @param {import("./marks.js").Mark[]} drawn
   * @param {{shared: number, parent: number, end: number}[]} parts
   * @param {number} i
   * @param {string} stem
   */
  drawText(option, rest, drawn, parts, i, stem) {
    const { shared, parent, end } = parts[i];
    const text = part(option, ".pd-draft");
    // A draft that finishes a word is shown with the typed part of the word. The style sheet draws that part, so that the
    // row's text is exactly the text that taking it inserts.
    const spaced = rest === "" || /^\s/.test(rest);
    const shownStem = spaced ? "" : stem;
    if (text.dataset.stem !== shownStem) text.dataset.stem = shownStem;
    text.classList.toggle("pd-spaced", spaced);
    const [common, own, ending] = /** @type {HTMLCollectionOf<HTMLElement>} */ (text.children);
    drawMarked(common, rest, drawn, 0, shared);
    drawMarked(own, rest, drawn, shared, rest.length - end);
    drawMarked(ending, rest, drawn, rest.length - end, rest.length);
    const crossed = parts.slice(parent + 1, i).some((between) => between.shared < shared);
    option.classList.toggle("pd-forks", shared > 0 && !crossed);
    if (shared) option.style.setProperty("--rise", String(i - parent));
  }

  /**
   * Show the word with a slip that the row replaces, struck out, and the letters of it that stay. The style sheet draws
   * both, as the stem of the other rows.
   * @param {HTMLElement} option
   * @param {import("./drafting.js").PlacedDraft | null} draft
   */
  drawStruck(option, draft) {
    const text = part(option, ".pd-draft");
    const { word, stays } = draft?.replace ? slipOf(draft) : { word: null, stays: null };
    set(text, "data-struck", word);
    set(/** @type {HTMLElement} */ (text.firstElementChild), "data-stays", stays);
    if (word !== null) text.dataset.stem = "";
  }

  /** Open the menu of a row below it. @param {number} i */
  openMenu(i) {
    const text = /** @type {HTMLElement} */ (this.box.children[i].querySelector(".pd-draft"));
    const { left, bottom } = text.getBoundingClientRect();
    this.opened(text.textContent ?? "", ownStart(text), { x: left, y: bottom });
  }

  /** @param {number} i */
  show(i) {
    this.box.children[i].scrollIntoView({ block: "nearest" });
  }

  /** @param {number} i */
  newOption(i) {
    const markup =
      `<span class="pd-number">${i + 1}</span>` +
      `<span class="pd-draft" dir="auto"><span class="pd-common"></span><span class="pd-own"></span><span class="pd-end"></span></span>` +
      `<kbd class="pd-tab" aria-hidden="true">${this.root.dataset.takeKey ?? "Tab"}</kbd><span class="pd-chance" title="${EXPLAINED}"></span>`;
    const option = newElement("div", "pd-option-row", markup);
    option.id = `pd-draft-${i + 1}`;
    option.setAttribute("role", "option");
    option.addEventListener("click", (event) => {
      const text = part(option, ".pd-draft");
      // A program that clicks, such as a screen reader, presses no pointer.
      this.picked(i, offsetAt(text, event), event.detail ? this.pressed : event.timeStamp);
    });
    option.addEventListener("contextmenu", (event) => {
      const text = part(option, ".pd-draft");
      if (!text.textContent) return;
      event.preventDefault();
      this.opened(text.textContent, offsetAt(text, event) ?? ownStart(text), { x: event.clientX, y: event.clientY });
    });
    return option;
  }

  /** Mark the words that a click at the pointer would take. @param {PointerEvent} event */
  showWords(event) {
    const text = event.pointerType === "mouse" && event.target instanceof Element && event.target.closest(".pd-draft");
    const at = text instanceof HTMLElement ? offsetAt(text, event) : null;
    if (at === null || !(text instanceof HTMLElement)) return highlight(null);
    return highlight(rangeOf(text, upToWord(text.textContent ?? "", at)));
  }
}

/**
 * The description of a row: how probable its draft is, and how it was made.
 * @param {import("./drafting.js").PlacedDraft} draft
 * @param {boolean} personal whether personal stores decided parts of it
 */
function described(draft, personal) {
  const { whole, tail } = draft;
  const corrected = draft.replace ? `In place of “${slipOf(draft).word}”. ` : "";
  const ending = tail ? `; ${TAILS[tail]}` : "";
  return `${corrected}The whole draft: ${percent(whole)}${personal ? "; underlined: from your stores" : ""}${ending}`;
}

/**
 * Set an attribute if it differs; null removes it.
 * @param {HTMLElement} element
 * @param {string} name
 * @param {string | null} value
 */
function set(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/** Where the part of a row begins that no other row has. @param {HTMLElement} text */
function ownStart(text) {
  return text.querySelector(".pd-common")?.textContent?.length ?? 0;
}

/**
 * The index of the character under the pointer; null beside the text.
 * @param {HTMLElement} text
 * @param {MouseEvent} event
 * @returns {number | null}
 */
function offsetAt(text, { clientX, clientY }) {
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  let before = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const length = /** @type {Text} */ (node).data.length;
    for (let i = 0; i < length; i++) {
      range.setStart(node, i);
      range.setEnd(node, i + 1);
      for (const box of range.getClientRects()) {
        if (clientX >= box.left && clientX < box.right && clientY >= box.top - 4 && clientY <= box.bottom + 4) return before + i;
      }
    }
    before += length;
  }
  return null;
}

/**
 * The first `length` characters of an element's text.
 * @param {HTMLElement} text
 * @param {number} length
 */
function rangeOf(text, length) {
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  range.setStart(text, 0);
  let left = length;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const { data } = /** @type {Text} */ (node);
    if (left <= data.length) {
      range.setEnd(node, left);
      break;
    }
    left -= data.length;
  }
  return range;
}

/** @param {Range | null} range */
function highlight(range) {
  const { highlights } = CSS;
  if (!highlights) return;
  if (range) highlights.set("pd-words", new Highlight(range));
  else highlights.delete("pd-words");
}
