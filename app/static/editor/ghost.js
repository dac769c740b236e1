// @ts-check
/**
 * The grey text after the caret. A <textarea> cannot contain text of another style, so a layer above it shows the ghost.
 * If text follows the caret, the layer also redraws that text, shifted by the ghost, on an opaque background. The
 * textarea itself is never changed.
 */

import { newElement } from "../shared/dom.js";

/** @typedef {import("./caret.js").CaretMap} CaretMap */

export class Ghost {
  /**
   * @param {HTMLTextAreaElement} textarea
   * @param {HTMLElement} layer empty, above the textarea, without pointer events
   * @param {CaretMap} map
   */
  constructor(textarea, layer, map) {
    this.textarea = textarea;
    this.layer = layer;
    this.map = map;
    this.block = newElement("div", "pd-ghost-block pd-face");
    this.line = newElement("div", "pd-ghost-line"); // the rest of the caret's paragraph
    this.text = newElement("span", "pd-ghost-text");
    // A float as wide as the column: the list is shown in its place, and pushes down the lines below the caret's.
    this.gap = newElement("span", "pd-ghost-gap");
    this.after = newElement("span");
    this.following = newElement("div", "pd-ghost-following"); // the paragraphs below it
    this.line.append(this.text, this.gap, this.after);
    this.block.append(this.line, this.following);
    layer.append(this.block);
    /** Whether text after the caret is redrawn: then a click would hit another place of the text than it shows. */
    this.covers = false;
    /** @type {[string, string, number, {room?: number}] | null} */
    this.shown = null;
    /** The height of the list between the caret's line and the one below, in px; 0: there is none. */
    this.room = 0;
    /** Called when a press in the text closes that list. */
    this.dismiss = () => {};
    /** The caret's place while a ghost is shown. @type {import("./caret.js").Place | null} */
    this.place = null;
    this.hide();
    textarea.addEventListener("scroll", () => (this.covers ? this.redraw() : this.follow()), { passive: true });
    // Where text after the caret is redrawn, hide it, so that the pointer finds that text at its true position. With the
    // list in between, the pointer may be on its way to a row: then a press closes the list, and does no more.
    textarea.addEventListener("pointermove", () => this.covers && !this.room && this.hide());
    textarea.addEventListener("mousedown", (event) => {
      if (this.room) {
        event.preventDefault();
        this.dismiss();
      } else if (this.covers) this.hide();
    });
  }

  hide() {
    this.layer.hidden = true;
    this.covers = false;
    this.shown = null;
    this.place = null;
    this.room = 0;
    this.text.textContent = this.after.textContent = this.following.textContent = "";
  }

  redraw() {
    if (this.shown) this.show(...this.shown);
  }

  follow() {
    this.layer.style.transform = `translateY(${-this.textarea.scrollTop}px)`;
  }

  /**
   * @param {string} ghost
   * @param {string} text the whole text
   * @param {number} caret
   * @param {{room?: number}} how `room`: the height of the list below the caret's line, in px, if text follows it
   */
  show(ghost, text, caret, { room = 0 } = {}) {
    const place = this.map.locate(text, caret);
    if (!place) {
      this.hide();
      return;
    }
    this.shown = [ghost, text, caret, { room }];
    this.place = place;
    this.room = room;
    this.gap.style.height = "0";
    const { left, top, lineHeight, fontSize } = this.map.column();
    const { x, y, width, rtl } = place;
    const indent = Math.max(0, rtl ? width - x : x);

    this.layer.hidden = false;
    this.line.dir = rtl ? "rtl" : "ltr";
    this.line.style.textIndent = `${indent}px`;
    this.block.style.cssText = `top:${top + y}px; left:${left}px; width:${width}px`;
    // The zero-width space allows a line break between the typed part of a word and the ghost.
    this.text.textContent = `\u200b${ghost}`;
    this.after.textContent = this.following.textContent = "";

    const next = text.slice(caret, caret + 1);
    const wraps = this.line.getBoundingClientRect().height > 1.5 * lineHeight;
    this.covers = next !== "" && (next !== "\n" || wraps || room > 0);
    this.gap.style.height = `${room}px`;
    this.block.classList.toggle("pd-covers", this.covers);
    if (this.covers) {
      const room = this.textarea.clientHeight - (top + y - this.textarea.scrollTop);
      const lines = Math.max(1, Math.ceil(room / lineHeight));
      const visible = firstLines(text, caret, lines, Math.ceil(width / (fontSize * 0.22)));
      const end = visible.indexOf("\n");
      this.after.textContent = end < 0 ? visible : visible.slice(0, end);
      this.following.textContent = end < 0 ? "" : visible.slice(end + 1);
      this.block.style.minHeight = `${room}px`;
      // The clip path covers everything after the caret, and neither the caret nor the text before it on its line.
      const edge = Math.floor(indent) + 1;
      const near = rtl ? `calc(100% - ${edge}px)` : `${edge}px`;
      const [far, close] = rtl ? ["-50vw", "calc(100% + 50vw)"] : ["calc(100% + 50vw)", "-50vw"];
      this.block.style.clipPath =
        `polygon(${near} 0, ${far} 0, ${far} 100%, ${close} 100%, ${close} ${lineHeight}px, ${near} ${lineHeight}px)`;
    }
    this.follow();
  }

  /** The lowest pixel of the ghost, in the coordinates of the textarea's scrolled content. */
  bottom() {
    const box = this.text.getBoundingClientRect();
    return box.bottom - this.textarea.getBoundingClientRect().top + this.textarea.scrollTop;
  }
}

/**
 * The part of the text from `from` that can be visible in `lines` lines of at most `perLine` characters.
 * @param {string} text
 * @param {number} from
 * @param {number} lines
 * @param {number} perLine
 */
function firstLines(text, from, lines, perLine) {
  const slice = text.slice(from, from + lines * perLine);
  let end = -1;
  for (let n = 0; n < lines; n++) {
    end = slice.indexOf("\n", end + 1);
    if (end < 0) return slice;
  }
  return slice.slice(0, end);
}
