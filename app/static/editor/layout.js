// @ts-check
/**
 * Layout of text and drafts in the window: the position of the list, the space reserved for list and ghost, a phone's
 * keyboard. The list is below the text. If text follows the caret, the list is below the caret's line, and the lines
 * after it are drawn below the list (ghost.js).
 */

import { part } from "../shared/dom.js";

const LETTERS_PER_TOKEN = 4.6; // English, with spaces
const LETTER_WIDTH = 0.42; // average, as a fraction of the font size
const ROW_SIZE = 0.9; // font size of a draft in the list, as a fraction of the text's
const ROW_MARGIN = 90; // px by which a draft is narrower than the text; on a phone the list is wider than the text
const ROW_MARGIN_PHONE = 40;
const MARGIN = 4; // px between a line and a list between two lines

export class Layout {
  /**
   * @param {HTMLElement} root
   * @param {{textarea: HTMLTextAreaElement, map: import("./caret.js").CaretMap, ghost: import("./ghost.js").Ghost,
   *          below: HTMLElement}} parts `below`: the list and what is below it
   * @param {Record<string, number | boolean | string>} settings
   * @param {() => void} measured draws the drafts again
   */
  constructor(root, { textarea, map, ghost, below }, settings, measured) {
    this.root = root;
    this.textarea = textarea;
    this.map = map;
    this.ghost = ghost;
    this.below = below;
    this.settings = settings;
    this.measured = measured;
    this.notes = part(root, ".pd-aside");
    this.desk = part(root, ".pd-desk");
    // The border box, because padding changes move the column without resizing it.
    new ResizeObserver(() => this.measure()).observe(textarea, { box: "border-box" });
    document.fonts.addEventListener("loadingdone", () => map.reset());
    textarea.addEventListener("scroll", () => {
      this.followText();
      if (this.notes.querySelector("span:not([hidden])")) this.placeNotes();
    }, { passive: true });
    root.addEventListener("pd-text", () => this.growToContent());

    // The part of the window that a phone's keyboard leaves free.
    const viewport = /** @type {VisualViewport} */ (window.visualViewport);
    const fit = () => root.style.setProperty("--height", `${viewport.height}px`);
    viewport.addEventListener("resize", fit);
    fit();
  }

  /** Measure again: the column or its font has changed. */
  measure() {
    const { root, map } = this;
    map.reset();
    const { left, width } = map.column();
    root.style.setProperty("--column-left", `${left}px`);
    root.style.setProperty("--column-width", `${width}px`);
    this.reserveRoom();
    this.measured();
  }

  /** Reserve the height of k rows for the list, and lines for a full-length ghost: nothing moves while typing. */
  reserveRoom() {
    const { root, settings } = this;
    root.style.setProperty("--k", String(settings.k ?? 3));
    root.style.setProperty("--ghost-room", String(this.linesOf(1, 0, 0)));
    const margin = matchMedia("(max-width: 719px)").matches ? ROW_MARGIN_PHONE : ROW_MARGIN;
    root.style.setProperty("--row-lines", String(Math.min(3, this.linesOf(ROW_SIZE, 0, margin))));
  }

  /**
   * How many lines a draft of the full length needs.
   * @param {number} size its font size, as a fraction of the text's
   * @param {number} x where it begins, in px
   * @param {number} margin
   */
  linesOf(size, x, margin) {
    const { width, fontSize } = this.map.column();
    const letters = Number(this.settings.length ?? 10) * LETTERS_PER_TOKEN;
    return Math.max(1, Math.round((x + letters * LETTER_WIDTH * size * fontSize) / Math.max(1, width - margin)));
  }

  /** Whether text follows the caret. */
  get textFollows() {
    const { value, selectionEnd } = this.textarea;
    const next = value.slice(selectionEnd, selectionEnd + 4096);
    return /\S/.test(next.length < 4096 ? next : value.slice(selectionEnd));
  }

  /**
   * Take the list out of the column if text follows the caret, to place it in `followText`.
   * @param {boolean} open whether the list has rows
   * @returns {number} the height that it needs between two lines, in px
   */
  float(open) {
    const { below, textarea } = this;
    const floats = open && this.textFollows;
    if (below.classList.contains("pd-floating") !== floats) {
      below.classList.toggle("pd-floating", floats);
      if (!floats) below.style.top = "";
    }
    const room = floats ? below.offsetHeight + 2 * MARGIN : 0;
    const reserved = `${room}px`;
    if (textarea.style.getPropertyValue("--list-room") !== reserved) textarea.style.setProperty("--list-room", reserved);
    return room;
  }

  /**
   * Move a list between two lines along with the text.
   * @param {boolean} reveal whether to scroll the text to make room for the list
   */
  followText(reveal = false) {
    const { below, map, textarea, ghost, desk } = this;
    if (!below.classList.contains("pd-floating")) return;
    const at = () => {
      if (ghost.room) return ghost.gap.getBoundingClientRect().top - desk.getBoundingClientRect().top + MARGIN;
      const caret = map.locate(textarea.value, textarea.selectionEnd); // too much text for a ghost
      const { top, lineHeight } = map.column();
      return textarea.offsetTop + top + (caret?.y ?? 0) - textarea.scrollTop + lineHeight + MARGIN;
    };
    const place = at();
    const above = place - 2 * map.column().lineHeight; // below 0 if the caret's line is scrolled out of sight
    const hidden = above < 0 ? above : Math.max(0, place + below.offsetHeight + MARGIN - desk.clientHeight);
    if (reveal && hidden) {
      textarea.scrollTop += hidden;
      if (ghost.room) ghost.redraw();
    }
    const style = `${Math.round(Math.min(at(), desk.clientHeight - below.offsetHeight))}px`;
    if (below.style.top !== style) below.style.top = style;
  }

  /** Put the words beside the drafts in the caret's line, if text follows it and no list below that line contains them. */
  placeNotes() {
    const { notes, below, map, textarea } = this;
    const alone = this.textFollows && !below.classList.contains("pd-floating");
    const caret = alone ? map.locate(textarea.value, textarea.selectionEnd) : null;
    notes.classList.toggle("pd-in-line", caret !== null);
    if (!caret) return;
    const line = textarea.getBoundingClientRect().top + map.column().top + caret.y - textarea.scrollTop;
    notes.style.setProperty("--line", `${line}px`);
  }

  /** For browsers without `field-sizing`: make the textarea as tall as its text. */
  growToContent() {
    if (CSS.supports("field-sizing", "content")) return;
    const { textarea } = this;
    if (textarea.textLength > 20_000) {
      textarea.style.height = "100vh";
      return;
    }
    textarea.style.height = "0";
    textarea.style.height = `${textarea.scrollHeight}px`;
  }
}
