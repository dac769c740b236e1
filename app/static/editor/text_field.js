// @ts-check
/**
 * The text, its caret and its selection: follows what the writer does in the <textarea>, and inserts text for other parts
 * of the page. It knows nothing of drafts.
 *
 * A browser lays out the whole text of a <textarea> at every key. So a text of more than `MOST_EDITED` characters is
 * read-only, and an insertion that would make the text so long is refused. An input method's text cannot be refused: it
 * stays, and the text is read-only from then on.
 */

import { MOST_EDITED, inLines } from "../documents/document.js";
import { following, hasHugeParagraph, isWritingPlace } from "./drafting.js";
import { insertAsTyped } from "./inserting.js";
import { emit, part } from "../shared/dom.js";
import { ANDROID } from "../shared/platform.js";
import { Timers } from "../shared/timers.js";

const CAUSED_WITHIN = 1000; // ms from a key to the change that it causes

export class TextField {
  /**
   * @param {HTMLElement} root
   * @param {HTMLTextAreaElement} textarea
   * @param {import("./caret.js").CaretMap} map
   * @param {import("./privacy.js").PrivateText} privacy
   * @param {{changed: (pressed: number | null) => void, moved: () => void, compositionStarted: () => void,
   *          compositionChanged: () => void, refused: () => void}} on
   *   `changed`: the text has changed, by the key that was pressed at that time; `moved`: only the caret or the selection
   *   has changed; `compositionStarted`, `compositionChanged`: an input method writes a word that is not finished;
   *   `refused`: an insertion was refused, because the text would be too long to be edited
   */
  constructor(root, textarea, map, privacy, on) {
    this.root = root;
    this.textarea = textarea;
    this.map = map;
    this.privacy = privacy;
    this.on = on;
    this.timers = new Timers();
    this.text = "";
    this.caret = 0;
    /** The text before the caret as of the last call of `before`, which of a long text takes time. */
    this.latest = { text: "", caret: 0, before: /** @type {string | null} */ (null) };
    /** The caret after the last change of the text. */
    this.edited = -1;
    this.composing = false;
    /** What `insert` is inserting: a text, or only the first word of a draft. @type {"text" | "word" | null} */
    this.inserting = null;
    /** Whether Tab takes drafts: after typing, a click or Alt and an arrow; otherwise Tab moves the focus. */
    this.engaged = false;
    /** The time of the key down event before the next input event. @type {number | null} */
    this.pressed = null;
    this.lastInput = -1e9;
    /** When the key of the last input event was pressed, or that event itself came. */
    this.typedAt = -1e9;

    // On a touch screen, focusing would open the keyboard over the page at once, and there is no Tab. In somebody else's
    // page the focus is not the editor's to take.
    if (!matchMedia("(pointer: fine)").matches) textarea.placeholder = textarea.dataset.touch ?? textarea.placeholder;
    else if (!root.hasAttribute("data-embedded")) textarea.focus({ preventScroll: true });
    textarea.addEventListener("input", (event) => this.input(/** @type {InputEvent} */ (event)));
    textarea.addEventListener("beforeinput", (event) => this.refuseTooMuch(event));
    textarea.addEventListener("compositionstart", () => {
      this.composing = true;
      if (!ANDROID) on.compositionStarted();
    });
    textarea.addEventListener("compositionend", () => {
      this.composing = false;
      if (!ANDROID || textarea.value !== this.text) this.changed();
      else this.limit();
    });
    document.addEventListener("selectionchange", () => this.selectionChanged());
    textarea.addEventListener("pointerdown", () => this.engage(true));
    document.addEventListener("keydown", (event) => event.key === "Tab" && !event.defaultPrevented && this.engage(false));
  }

  /** Set whether Tab takes a draft or moves the focus. @param {boolean} on */
  engage(on) {
    this.engaged = on;
    this.root.toggleAttribute("data-engaged", on);
  }

  // ---------------------------------------------------------------- changes

  /** @param {number} time of a key down event in the text */
  keyDown(time) {
    this.selectionChanged(); // the event of the last move of the caret may come after this one
    this.pressed = time;
  }

  /** @param {InputEvent} event */
  input(event) {
    const now = performance.now();
    const burst = now - this.lastInput < 1;
    this.privacy.edited(event);
    this.engage(true);
    this.lastInput = now;
    this.typedAt = this.cause ?? now;
    if (this.composing && event.isComposing && !isPlainTyping(event)) {
      this.on.compositionChanged();
      return;
    }
    // If a program types several lines within one task, drafts are requested once, at their end.
    if (burst && !this.inserting) this.timers.later("burst", 0, () => this.changed());
    else this.changed();
  }

  /** Refuse an insertion that would make the text too long to be edited. @param {InputEvent} event */
  refuseTooMuch(event) {
    const { data, dataTransfer, inputType, cancelable } = event;
    const inserted = data ?? dataTransfer?.getData("text/plain") ?? (/^insert(LineBreak|Paragraph)$/.test(inputType) ? "\n" : "");
    if (inserted && cancelable && !this.hasRoomFor(inLines(inserted))) event.preventDefault();
  }

  /**
   * Whether the text can be edited, and still could if this replaced the selection. If not, the writer is told.
   * @param {string} text
   */
  hasRoomFor(text) {
    const { selectionStart, selectionEnd, textLength, readOnly } = this.textarea;
    const fits = !readOnly && textLength - (selectionEnd - selectionStart) + text.length <= MOST_EDITED;
    if (!fits) this.on.refused();
    return fits;
  }

  /** When the key was pressed that changes the text; null if that is long ago: then a menu, a drop or a voice does. */
  get cause() {
    return this.pressed !== null && performance.now() - this.pressed < CAUSED_WITHIN ? this.pressed : null;
  }

  /** The text has changed. */
  changed({ opened = false } = {}) {
    this.read();
    this.edited = this.caret;
    const pressed = this.cause;
    this.pressed = null;
    this.timers.stop("burst");
    emit(this.root, "pd-text", { opened });
    this.on.changed(pressed);
  }

  /** Read what the field contains now. */
  read() {
    const { textarea } = this;
    this.text = textarea.value;
    this.caret = textarea.selectionStart;
    this.map.oneDirection = hasHugeParagraph(this.text);
    textarea.classList.toggle("pd-one-direction", this.map.oneDirection);
    this.limit();
    part(this.root, ".pd-invite").hidden = this.text !== "";
  }

  /** A text that is too long is read-only, once no input method writes into it. */
  limit() {
    this.textarea.readOnly = this.textarea.textLength > MOST_EDITED && !this.composing;
  }

  selectionChanged() {
    const { textarea } = this;
    if (document.activeElement !== textarea || this.composing) return;
    if (textarea.selectionStart === this.caret && textarea.selectionEnd === this.caret) return;
    // A selection event may come before the input event of the same key; then the text differs, and that event follows.
    if (textarea.value === this.text) this.on.moved();
  }

  /** Follow the caret at once, because its event may come later. */
  readCaret() {
    this.caret = this.textarea.selectionStart;
  }

  /**
   * Replace the text, without a step of undo.
   * @param {string} text
   * @param {number} caret
   * @param {number[][]} privateRanges the ranges of it that were typed in incognito
   * @param {{opened?: boolean}} how whether it is that of another document
   */
  open(text, caret, privateRanges, { opened = true } = {}) {
    const { textarea } = this;
    textarea.value = text;
    textarea.setSelectionRange(caret, caret);
    this.privacy.open(privateRanges);
    this.latest = { text: "", caret: -1, before: null }; // the other text may be equal
    this.changed({ opened });
  }

  /**
   * Insert at the caret as if typed, as one step of undo, if there is room for it.
   * @param {string} text
   * @param {"text" | "word"} what whether it is only the first word of a draft
   */
  insert(text, what = "text") {
    if (!this.hasRoomFor(text)) return;
    this.inserting = what;
    insertAsTyped(this.textarea, text);
    this.inserting = null;
  }

  // ---------------------------------------------------------------- where drafts belong

  /** The text before the caret; null if no drafts belong there: an empty or a read-only text, a selection, a composition. */
  before() {
    const { selectionStart, selectionEnd, readOnly } = this.textarea;
    if (readOnly || (this.composing && !ANDROID)) return null;
    if (selectionStart !== selectionEnd) return null;
    const { text, latest } = this;
    if (text !== latest.text || selectionStart !== latest.caret) {
      const before = text.slice(0, selectionStart);
      this.latest = { text, caret: selectionStart, before: /\S/.test(before) ? before : null };
    }
    return this.latest.before;
  }

  /** The text before the caret, or before what is selected. */
  get head() {
    return this.before() ?? this.text.slice(0, this.textarea.selectionStart);
  }

  /** The beginning of the text after the caret, for requests; "" if it is only white space. */
  after() {
    return following(this.text.slice(this.textarea.selectionEnd));
  }

  /** Whether drafts belong at the caret: it is at the end of a line, or after a word that was just typed. */
  isWritingHere() {
    const inWord = this.caret === this.edited && /[\p{L}\p{N}]$/u.test(this.text.slice(Math.max(0, this.caret - 2), this.caret));
    return inWord || isWritingPlace(this.text.slice(this.caret, this.caret + 2000));
  }
}

/**
 * Whether an input event composes plain text: Android keyboards compose every word, and drafts need not disappear then.
 * @param {InputEvent} event
 */
function isPlainTyping(event) {
  return ANDROID && /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}\p{N}'’-]*$/u.test(event.data ?? "");
}
