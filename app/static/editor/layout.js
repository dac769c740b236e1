// @ts-check
/**
 * Layout of text and drafts in the window: the position of the list, the space reserved for list and ghost, a phone's
 * keyboard. The list is below the text. If text follows the caret, the list is over that text, below the caret's line.
 */

const LETTERS_PER_TOKEN = 4.6; // English, with spaces
const LETTER_WIDTH = 0.42; // average, as a fraction of the font size
const ROW_SIZE = 0.9; // font size of a draft in the list, as a fraction of the text's
const ROW_MARGIN = 90; // px by which a draft is narrower than the text; on a phone the list is wider than the text
const ROW_MARGIN_PHONE = 40;

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
    this.desk = /** @type {HTMLElement} */ (root.querySelector(".pd-desk"));
    // The border box, because padding changes move the column without resizing it.
    new ResizeObserver(() => this.measure()).observe(textarea, { box: "border-box" });
    document.fonts?.addEventListener("loadingdone", () => map.reset());
    textarea.addEventListener("scroll", () => this.followText(), { passive: true });
    root.addEventListener("pd-text", () => this.growToContent());

    // The part of the window that a phone's keyboard leaves free.
    const viewport = window.visualViewport;
    const fit = () => root.style.setProperty("--height", `${viewport?.height ?? innerHeight}px`);
    viewport?.addEventListener("resize", fit);
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

  /**
   * Place the list below the text, or over it if text follows the caret.
   * @param {boolean} open whether the list has rows
   */
  placeDrafts(open) {
    const { below, textarea } = this;
    const floats = open && /\S/.test(textarea.value.slice(textarea.selectionEnd));
    if (below.classList.contains("pd-floating") !== floats) {
      below.classList.toggle("pd-floating", floats);
      textarea.style.setProperty("--list-room", floats ? `${below.offsetHeight}px` : "0px");
      if (!floats) below.style.top = "";
    }
    if (floats) this.followText(true);
  }

  /**
   * Move a list that is over the text along with the caret.
   * @param {boolean} reveal whether to scroll the text to make room for the list
   */
  followText(reveal = false) {
    const { below, map, textarea, ghost } = this;
    if (!below.classList.contains("pd-floating")) return;
    const place = ghost.place ?? map.locate(textarea.value, textarea.selectionStart);
    if (!place) return;
    const { top, lineHeight } = map.column();
    const height = lineHeight * Math.max(1, this.linesOf(1, place.x, 0)) + 4;
    const at = () => textarea.offsetTop + top + place.y - textarea.scrollTop + height;
    const hidden = at() + below.offsetHeight - this.desk.clientHeight;
    if (reveal && hidden > 0) textarea.scrollTop += hidden;
    const style = `${Math.round(Math.min(at(), this.desk.clientHeight - below.offsetHeight))}px`;
    if (below.style.top !== style) below.style.top = style;
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
