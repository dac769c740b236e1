// @ts-check
/** How text, drafts and window fit together: the column's place, room for the drafts, a phone's keyboard. */

const LETTERS_PER_TOKEN = 4.6; // of English, with spaces
const LETTER_WIDTH = 0.42; // of the font size, on average

export class Layout {
  /** @param {import("./editor.js").Editor} editor */
  constructor(editor) {
    this.editor = editor;
    const { root, textarea, map } = editor;
    // Where the column stands, not only how wide it is.
    new ResizeObserver(() => this.measure()).observe(textarea, { box: "border-box" });
    document.fonts?.addEventListener("loadingdone", () => map.reset());

    // The part of the window that a phone's keyboard leaves free.
    const viewport = window.visualViewport;
    const fit = () => root.style.setProperty("--height", `${viewport?.height ?? innerHeight}px`);
    viewport?.addEventListener("resize", fit);
    fit();
  }

  /** The column or its face is not what it was. */
  measure() {
    const { root, map } = this.editor;
    map.reset();
    const { left, width } = map.column();
    root.style.setProperty("--column-left", `${left}px`);
    root.style.setProperty("--column-width", `${width}px`);
    this.reserveRoom();
    this.editor.drawGhost();
  }

  /** The list keeps the height of k rows, and the text room for a ghost of that length: nothing jumps while typing. */
  reserveRoom() {
    const { map, root, settings } = this.editor;
    const { width, fontSize } = map.column();
    const { k = 3, length = 10 } = settings;
    const lines = Math.round((Number(length) * LETTERS_PER_TOKEN * LETTER_WIDTH * fontSize) / width);
    root.style.setProperty("--k", String(k));
    root.style.setProperty("--ghost-room", String(Math.max(1, lines)));
  }

  /** For browsers without `field-sizing`: as tall as the text, up to the room there is. */
  growToContent() {
    if (CSS.supports("field-sizing", "content")) return;
    const { textarea } = this.editor;
    if (textarea.textLength > 20_000) {
      textarea.style.height = "100vh";
      return;
    }
    textarea.style.height = "0";
    textarea.style.height = `${textarea.scrollHeight}px`;
  }
}
