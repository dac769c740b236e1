// @ts-check
/**
 * The editor: a <textarea> with a ghost text, the list of drafts below it, keys, buttons and settings. All state
 * lives here in the browser; the server only ever sees a request for drafts.
 *
 *   key ── the text still follows a shown draft? ── yes: trim it, no request
 *                                                └─ no:  stop the running request, send a new one
 */

import { CaretMap } from "./caret.js";
import {
  agreeing, branches, cropped, firstWord, grouped, hasEnoughLeft, hasHugeParagraph, percent, wordStem,
} from "./drafting.js";
import { Ghost } from "./ghost.js";
import { Learning } from "./learning.js";
import { drawMarked, marks, tokens } from "./marks.js";
import { keepSettings, keepText, recallSettings, recallText } from "./memory.js";
import { setUpSampling } from "./panel.js";
import { setUpTabs } from "./tabs.js";
import { ConnectionLost, ServerError, leave, serverStatus, streamDrafts } from "./transport.js";

/** @typedef {import("./drafting.js").Draft} Draft */
/** @typedef {import("./drafting.js").DraftSet} DraftSet */
/** @typedef {import("./drafting.js").Row} Row */

/**
 * A request under way. `quiet`: what is shown stays until the answer has something longer to say.
 * `steady`: drafts whose ends stay in sight until the answer has grown as long: settings change, the text does not.
 * @typedef {{n: number, before: string, key: string, set: DraftSet, quiet: boolean, pressed: number | null,
 *            controller: AbortController, forSettings: boolean, steady: Draft[], told: boolean}} Request
 */

const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
const ANDROID = /Android/.test(navigator.userAgent);

/** What each key does, for the handler's reader and for the key help. */
const KEYS = [
  { keys: ["Tab"], does: "Take the best draft, or the highlighted one" },
  { keys: MAC ? ["⌥", "1…9"] : ["Alt", "1…9"], does: "Take the draft with that number" },
  { keys: MAC ? ["⌥", "↑ ↓"] : ["Alt", "↑ ↓"], does: "Move through the drafts" },
  { keys: MAC ? ["⌥", "→"] : ["Ctrl", "→"], does: "Take one word" },
  { keys: ["Esc"], does: "Dismiss the drafts; then Tab leaves the editor" },
  { keys: MAC ? ["⌘", "Z"] : ["Ctrl", "Z"], does: "Undo what was taken" },
];
const HINTS = [
  { keys: ["Tab"], does: "take" },
  { keys: MAC ? ["⌥", "→"] : ["Ctrl", "→"], does: "a word" },
  { keys: MAC ? ["⌥", "1…9"] : ["Alt", "1…9"], does: "that one" },
  { keys: MAC ? ["⌥", "↑ ↓"] : ["Alt", "↑ ↓"], does: "choose" },
  { keys: ["Esc"], does: "dismiss" },
];

const REFRESH_AFTER = 250; // ms without a key until dropped drafts are replaced by new ones
const MOVED_AFTER = 120; // ms after the caret has moved until drafts are asked for at its new place
const SETTINGS_EVERY = 16; // ms at least between two requests while a slider moves
const SAVE_AFTER = 500; // ms without a change until the text is stored
const LETTERS_PER_TOKEN = 4.6; // of English, with spaces
const LETTER_WIDTH = 0.42; // of the font size, on average
const REMEMBERED = 16; // finished draft sets kept, for going back by backspace and undo
const LOADING = 500; // ms until a model that was being loaded is asked after again

export class Editor {
  /** @param {HTMLElement} root */
  constructor(root) {
    /** @type {<T extends HTMLElement>(selector: string) => T} */
    const find = (selector) => /** @type {any} */ (root.querySelector(selector));
    this.root = root;
    this.find = find;
    /** @type {HTMLTextAreaElement} */
    this.textarea = find("#pd-text");
    this.list = find(".pd-list");
    this.map = new CaretMap(this.textarea, find(".pd-mirror"));
    this.ghost = new Ghost(this.textarea, find(".pd-ghost"), this.map);

    /** The drafts on the page. @type {DraftSet | null} */
    this.set = null;
    /** What is left of them at the caret. @type {Row[]} */
    this.rows = [];
    /** The set that `rows` come from. @type {DraftSet | null} */
    this.drawn = null;
    this.active = 0;
    /** Whether the reader has moved to a draft by hand. */
    this.chosen = false;
    this.dismissed = false;
    this.composing = false;
    /** @type {Request | null} */
    this.request = null;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    this.n = 0;
    this.text = "";
    this.caret = 0;
    /** When the key that is about to change the text went down. @type {number | null} */
    this.pressed = null;
    this.lastInput = -1e9;
    /** While a draft is being inserted: a word of it, and at all. */
    this.takingWord = false;
    this.inserting = false;
    /** Finished answers by the text sent. @type {Map<string, Draft[]>} */
    this.remembered = new Map();
    this.offline = false;
    this.announced = "";
    /** Timers by name: setting one again replaces it. @type {Record<string, number | undefined>} */
    this.timers = {};
    /** What benchmarks read; times in ms. */
    this.counters = {
      keystrokes: 0,
      requests: 0,
      avoided: 0,
      /** Key down to the first draft in the page, for keys that needed a request. @type {number[]} */
      firstMs: [],
      /** The same to all drafts complete. @type {number[]} */
      doneMs: [],
      /** Key down to the trimmed drafts in the page, for keys that needed none. @type {number[]} */
      alongMs: [],
    };

    /** @type {Record<string, number | boolean>} */
    this.settings = {};
    /** What the sampling panel adds to them. @type {{sampling?: object}} */
    this.sampling = {};
    this.settingsAsked = -1e9;
    /** Whether settings have changed since the request under way. */
    this.settingsWait = false;
    this.setUpSettings();
    this.setUpText();
    this.setUpButtons();
    this.setUpKeyHelp();
    this.setUpWindow();
    this.checkStatus();
    this.textChanged();
  }

  // ---------------------------------------------------------------- the text

  setUpText() {
    const { textarea } = this;
    // What somebody quick has typed before this script arrived is not lost.
    textarea.value = recallText() + textarea.value;
    textarea.setSelectionRange(textarea.value.length, textarea.value.length);
    this.stored = textarea.value;
    // On a touch screen focusing would open the keyboard over a page nobody has seen yet.
    if (matchMedia("(pointer: fine)").matches) textarea.focus({ preventScroll: true });

    textarea.addEventListener("keydown", (event) => this.keyDown(event));
    textarea.addEventListener("input", (event) => this.input(/** @type {InputEvent} */ (event)));
    textarea.addEventListener("compositionstart", () => {
      this.composing = true;
      if (!ANDROID) this.clear();
    });
    textarea.addEventListener("compositionend", () => {
      this.composing = false;
      if (!ANDROID || textarea.value !== this.text) this.textChanged();
    });
    document.addEventListener("selectionchange", () => this.selectionChanged());
    // Where text after the caret is redrawn, the pointer must find the text where the textarea has it.
    for (const event of ["pointermove", "pointerdown"]) {
      textarea.addEventListener(event, () => this.ghost.covers && this.ghost.hide());
    }
  }

  /** @param {InputEvent} event */
  input(event) {
    this.counters.keystrokes++;
    const now = performance.now();
    const burst = now - this.lastInput < 1;
    this.lastInput = now;
    if (this.composing && event.isComposing && !isPlainTyping(event)) {
      if (this.rows.length || this.request) this.clear();
      return;
    }
    // Text that a program types, line by line within one task, is drawn and drafted once, at its end.
    if (burst && !this.inserting) this.later("burst", 0, () => this.textChanged());
    else this.textChanged();
  }

  /** The text or the caret is not what it was: serve drafts from what is shown, or ask for new ones. */
  textChanged() {
    const { textarea } = this;
    this.text = textarea.value;
    this.caret = textarea.selectionStart;
    // A key long before is not what changed the text: that was a menu, a drop, a voice.
    const pressed = this.pressed !== null && performance.now() - this.pressed < 1000 ? this.pressed : null;
    this.pressed = null;
    this.dismissed = false;
    this.save();
    this.map.oneDirection = hasHugeParagraph(this.text);
    textarea.classList.toggle("pd-one-direction", this.map.oneDirection);
    this.find(".pd-invite").hidden = this.text !== "";
    if (!CSS.supports("field-sizing", "content")) this.growToContent();
    this.stop("moved");
    this.stop("refresh");
    this.stop("burst");

    const before = this.before();
    if (before === null) {
      this.clear();
      return;
    }
    const rows = agreeing(this.set, before);
    const streaming = this.set !== null && this.request?.set === this.set;
    if (rows.length && (streaming || this.takingWord || rows.some((row) => hasEnoughLeft(row.rest)))) {
      if (this.request && !before.startsWith(this.request.before)) this.abort();
      this.counters.avoided++;
      this.draw(rows);
      this.tell("pd-along");
      if (pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
      if (rows.length < /** @type {DraftSet} */ (this.set).drafts.length && !this.takingWord) {
        this.later("refresh", REFRESH_AFTER, () => this.ask({ quiet: true }));
      }
      return;
    }
    const known = this.remembered.get(cropped(before));
    if (known) {
      this.abort();
      this.counters.avoided++;
      this.set = { before, drafts: known, done: true };
      this.draw(agreeing(this.set, before));
      this.tell("pd-along");
      if (pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
      return;
    }
    this.draw(rows);
    this.ask({ quiet: rows.length > 0, pressed: rows.length ? null : pressed });
  }

  /** The text before the caret, or null where no drafts belong: nothing written, a selection, a composition. */
  before() {
    const { textarea } = this;
    if (this.composing && !ANDROID) return null;
    if (textarea.selectionStart !== textarea.selectionEnd) return null;
    const before = this.text.slice(0, textarea.selectionStart);
    return before.trim() ? before : null;
  }

  selectionChanged() {
    const { textarea } = this;
    if (document.activeElement !== textarea || this.composing) return;
    if (textarea.selectionStart === this.caret && textarea.selectionEnd === this.caret) return;
    // A selection event can come before the input event of the same key: then the text has changed as well.
    if (textarea.value !== this.text) return;
    this.caret = textarea.selectionStart;
    this.clear();
    if (this.dismissed) return;
    this.later("moved", MOVED_AFTER, () => {
      if (this.before() !== null) this.ask({});
    });
  }

  save() {
    this.later("save", SAVE_AFTER, () => this.saveNow());
  }

  saveNow() {
    this.stop("save");
    const text = this.textarea.value;
    if (text === this.stored) return;
    this.stored = text;
    if (keepText(text)) this.notice("storage", null);
    else {
      this.notice("storage", {
        message: "This text is too long for the browser to remember.",
        fix: "Download it before you close the page.",
      });
    }
  }

  /** For browsers without `field-sizing`: as tall as the text, up to the room there is. */
  growToContent() {
    const { style } = this.textarea;
    if (this.text.length > 20_000) {
      style.height = "100vh";
      return;
    }
    style.height = "0";
    style.height = `${this.textarea.scrollHeight}px`;
  }

  // ---------------------------------------------------------------- asking

  /**
   * Ask the server for drafts at the caret.
   * @param {{quiet?: boolean, pressed?: number | null, forSettings?: boolean}} how
   */
  ask({ quiet = false, pressed = null, forSettings = false }) {
    const before = this.before();
    if (before === null || this.dismissed) return;
    this.abort();
    const controller = new AbortController();
    const window = cropped(before);
    const request = {
      n: ++this.n, before, key: window, quiet, pressed, controller, forSettings, told: false,
      steady: forSettings && this.set?.before === before ? this.set.drafts : [],
      set: /** @type {DraftSet} */ ({ before, drafts: [], done: false }),
    };
    this.request = request;
    this.settingsWait = false;
    this.counters.requests++;
    const body = { n: request.n, before: window, settings: { ...this.settings, ...this.sampling } };
    streamDrafts(body, (line) => this.receive(request, line), controller.signal)
      .then(() => this.finish(request))
      .catch((error) => this.failed(request, error));
  }

  abort() {
    this.request?.controller.abort();
    this.request = null;
  }

  /**
   * One line of the answer.
   * @param {Request} request
   * @param {any} line
   */
  receive(request, line) {
    if (request !== this.request || line.n !== request.n) return;
    if (line.type === "error") {
      this.notice("server", line);
      return;
    }
    if (line.type === "stats") {
      this.showFigures(line);
      return;
    }
    if (line.type !== "drafts") return;
    this.notice("server", null);
    if (this.offline) this.reconnected();

    const { set } = request;
    const first = set.drafts.length === 0;
    set.done = line.done;
    set.drafts = inOrder(set.drafts, line.drafts, line.done);
    this.root.dispatchEvent(new CustomEvent("pd-figures", { detail: line.speculation ?? null }));
    if (!line.done) set.drafts = set.drafts.map((draft) => withKnownEnd(draft, request.steady));
    if (!request.told) {
      this.answered = request;
      this.tell("pd-drafts");
    }
    request.told = true;
    if (this.settingsWait) this.settingsChanged();
    if (line.done) this.remember(request);

    const before = this.before();
    if (before === null) return;
    const rows = agreeing(set, before);
    if (request.quiet && this.rows.length) {
      // Swap when the new best says at least as much as the old one; never blank out what still fits.
      const saysMore = (rows[0]?.rest.length ?? 0) >= this.rows[0].rest.length;
      if (!rows.length || !(line.done || saysMore)) return;
    }
    this.set = set;
    this.draw(rows);
    if (request.pressed !== null) {
      const elapsed = performance.now() - request.pressed;
      if (first && rows.length) this.counters.firstMs.push(elapsed);
      if (line.done) this.counters.doneMs.push(elapsed);
    }
  }

  /** @param {Request} request */
  finish(request) {
    if (request !== this.request) return;
    this.request = null;
    if (this.settingsWait) this.settingsChanged();
    if (!request.set.done) return;
    this.announceLater();
  }

  /**
   * @param {Request} request
   * @param {unknown} error
   */
  failed(request, error) {
    if (request.controller.signal.aborted || request !== this.request) return;
    this.request = null;
    this.settingsWait = false;
    if (error instanceof ConnectionLost) this.disconnected();
    else if (error instanceof ServerError) this.notice("server", error);
    else throw error;
  }

  /** @param {Request} request */
  remember(request) {
    this.remembered.set(request.key, request.set.drafts);
    if (this.remembered.size > REMEMBERED) {
      this.remembered.delete(/** @type {string} */ (this.remembered.keys().next().value));
    }
  }

  // ---------------------------------------------------------------- drawing

  /** Nothing to show and nothing under way. */
  clear() {
    this.abort();
    this.stop("refresh");
    this.set = null;
    this.draw([]);
    this.tell("pd-cleared");
  }

  /**
   * For whoever looks on: drafts for a new position have arrived (pd-drafts), those shown serve a new position as well
   * (pd-along), there are none (pd-cleared), all settings go back to their defaults (pd-reset).
   * @param {"pd-drafts" | "pd-along" | "pd-cleared" | "pd-reset"} event
   */
  tell(event) {
    this.root.dispatchEvent(new CustomEvent(event));
  }

  /** @param {Row[]} rows */
  draw(rows) {
    // The draft chosen by hand stays chosen while it is there; ids mean nothing beyond one answer.
    const sameAnswer = this.chosen && this.drawn === this.set;
    const kept = sameAnswer ? rows.findIndex((row) => row.draft.id === this.rows[this.active].draft.id) : -1;
    this.drawn = this.set;
    this.active = Math.max(0, kept);
    this.chosen = kept >= 0;
    this.rows = rows;
    this.drawList();
    this.drawGhost();
  }

  drawGhost() {
    const row = this.rows[this.active];
    if (!row || this.composing && !ANDROID) {
      this.ghost.hide();
      return;
    }
    this.ghost.show(row.rest, this.text, this.caret);
    if (this.caret === this.text.length) {
      // Typing at the end: the ghost's last line stays in sight too.
      const hidden = this.ghost.bottom() + 4 - this.textarea.scrollTop - this.textarea.clientHeight;
      if (hidden > 0) this.textarea.scrollTop += hidden;
    }
  }

  drawList() {
    const { list, rows } = this;
    const open = rows.length > 0;
    list.hidden = !open;
    this.find(".pd-hints").hidden = !open;
    this.textarea.setAttribute("aria-expanded", String(open));
    while (list.children.length > rows.length) list.lastElementChild?.remove();
    while (list.children.length < rows.length) list.append(this.newOption(list.children.length));

    const stem = wordStem(this.text.slice(Math.max(0, this.caret - 40), this.caret));
    const parts = branches(rows.map((row) => row.rest));
    let marked = false;
    rows.forEach(({ draft, rest }, i) => {
      const option = /** @type {HTMLElement} */ (list.children[i]);
      const { shared, parent } = parts[i];
      const selected = i === this.active;
      const mine = marks(draft, rest);
      const drawn = this.root.hasAttribute("data-coloured") ? tokens(draft, rest) : mine;
      marked ||= mine.length > 0;
      option.setAttribute("aria-selected", String(selected));
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
    this.find(".pd-below").toggleAttribute("data-marked", marked);
    if (open && this.chosen) this.textarea.setAttribute("aria-activedescendant", `pd-draft-${this.active + 1}`);
    else this.textarea.removeAttribute("aria-activedescendant");
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
    option.addEventListener("click", (event) => {
      this.pressed = event.timeStamp;
      this.take(i);
    });
    return option;
  }

  // ---------------------------------------------------------------- taking drafts

  /** @param {number} i */
  take(i) {
    const row = this.rows[i];
    if (!row) return;
    const before = this.before() ?? "";
    this.insert(row.rest);
    this.root.dispatchEvent(new CustomEvent("pd-taken", { detail: { before, text: row.rest } }));
  }

  takeWord() {
    const row = this.rows[this.active];
    if (!row) return;
    // The rest of the draft stays as it is, so no fresh drafts are fetched behind the reader's back.
    this.takingWord = true;
    this.insert(firstWord(row.rest));
    this.takingWord = false;
  }

  /**
   * Insert at the caret as if typed, so that the browser's own undo and redo know about it.
   * @param {string} text
   */
  insert(text) {
    const { textarea } = this;
    textarea.focus({ preventScroll: true });
    separateUndo(textarea);
    this.inserting = true;
    if (!document.execCommand("insertText", false, text)) {
      textarea.setRangeText(text, textarea.selectionStart, textarea.selectionEnd, "end");
      textarea.dispatchEvent(new InputEvent("input", { inputType: "insertText", data: text, bubbles: true }));
    }
    this.inserting = false;
    separateUndo(textarea);
  }

  dismiss() {
    this.clear();
    this.stop("moved");
    this.dismissed = true;
    this.find(".pd-live").textContent = "Drafts dismissed.";
  }

  /** @param {number} by */
  move(by) {
    this.active = (this.active + by + this.rows.length) % this.rows.length;
    this.chosen = true;
    this.drawList();
    this.drawGhost();
    this.list.children[this.active].scrollIntoView({ block: "nearest" });
  }

  // ---------------------------------------------------------------- keys

  /** @param {KeyboardEvent} event */
  keyDown(event) {
    if (event.isComposing || event.keyCode === 229) return;
    this.pressed = event.timeStamp;
    if (this.handledKey(event)) event.preventDefault();
  }

  /**
   * @param {KeyboardEvent} event
   * @returns {boolean} whether the key was ours
   */
  handledKey({ key, code, altKey, ctrlKey, metaKey, shiftKey }) {
    const open = this.rows.length > 0;
    const plain = !altKey && !ctrlKey && !metaKey && !shiftKey;
    const onlyAlt = altKey && !ctrlKey && !metaKey && !shiftKey;
    const onlyCtrl = ctrlKey && !altKey && !metaKey && !shiftKey;

    if (key === "Tab" && plain) {
      if (open) this.take(this.active);
      // Tab pressed for a ghost that vanished a moment ago must not throw the writer out of the text.
      return open || (this.request !== null && performance.now() - this.lastInput < 600);
    }
    if (key === "Escape" && plain) {
      const busy = open || this.request !== null;
      if (busy) this.dismiss();
      return busy;
    }
    // `code`, not `key`: with Option, a Mac's digit keys type other characters.
    const digit = onlyAlt ? code.match(/^(?:Digit|Numpad)([1-9])$/)?.[1] : undefined;
    if (digit && open) {
      this.take(Number(digit) - 1);
      return true;
    }
    if (onlyAlt && (key === "ArrowDown" || key === "ArrowUp")) {
      if (open) this.move(key === "ArrowDown" ? 1 : -1);
      else if (key === "ArrowDown") {
        this.dismissed = false;
        this.ask({});
      }
      return open || key === "ArrowDown";
    }
    const forward = this.ghost.line.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    if ((MAC ? onlyAlt : onlyCtrl) && key === forward && open) {
      this.takeWord();
      return true;
    }
    return false;
  }

  setUpKeyHelp() {
    this.find(".pd-keys dl").innerHTML = KEYS.map(
      ({ keys, does }) => `<div><dt>${keyCaps(keys)}</dt><dd>${does}</dd></div>`,
    ).join("");
    this.find(".pd-hints").innerHTML =
      HINTS.map(({ keys, does }) => `<span>${keyCaps(keys)} ${does}</span>`).join("") +
      `<span class="pd-legend"><span class="pd-mine">underlined</span>: yours</span>`;
    this.find("#pd-how").textContent =
      `Drafts appear while you write. ${KEYS.map(({ keys, does }) => `${keys.join(" ")}: ${does}.`).join(" ")}`;
  }

  // ---------------------------------------------------------------- buttons

  setUpButtons() {
    /** @type {Record<string, (button: HTMLButtonElement) => void>} */
    const actions = {
      copy: () => this.copy(),
      download: () => this.download(),
      clear: () => this.clearText(),
      keys: () => /** @type {HTMLDialogElement} */ (this.find(".pd-keys")).showModal(),
      settings: (button) => disclose(button),
      more: (button) => disclose(button),
      reset: () => this.resetSettings(),
    };
    for (const button of this.root.querySelectorAll("button[data-do]")) {
      const name = /** @type {HTMLElement} */ (button).dataset.do ?? "";
      button.addEventListener("click", () => actions[name](/** @type {HTMLButtonElement} */ (button)));
    }
    for (const button of this.root.querySelectorAll(".pd-invite button")) {
      button.addEventListener("click", () => this.insert(button.textContent ?? ""));
    }
    this.find(".pd-toast button").addEventListener("click", () => {
      this.textarea.focus();
      document.execCommand("undo");
      this.find(".pd-toast").hidden = true;
    });
    // A click beside the dialog closes it.
    const dialog = /** @type {HTMLDialogElement} */ (this.find(".pd-keys"));
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => this.textarea.focus());
    // The room below the text belongs to the page: a click there goes on writing.
    this.find(".pd-desk").addEventListener("click", (event) => {
      if (event.target === event.currentTarget) this.textarea.focus();
    });
  }

  async copy() {
    const text = this.textarea.value;
    if (!text) return this.toast("There is nothing to copy yet.");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // No permission, or no clipboard interface: the old way needs a selection.
      const { selectionStart, selectionEnd } = this.textarea;
      this.textarea.focus();
      this.textarea.select();
      const copied = document.execCommand("copy");
      this.textarea.setSelectionRange(selectionStart, selectionEnd);
      if (!copied) return this.toast("The browser did not allow copying. Select the text and copy it by hand.");
    }
    return this.toast("Copied.");
  }

  download() {
    const text = this.textarea.value;
    if (!text) return this.toast("There is nothing to download yet.");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
    link.download = "polydraft.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    return this.toast("Saved as polydraft.txt.");
  }

  clearText() {
    if (!this.textarea.value) return this.toast("The page is empty already.");
    this.textarea.focus();
    this.textarea.select();
    document.execCommand("delete");
    return this.toast("Cleared.", { undo: true });
  }

  /**
   * @param {string} message
   * @param {{undo?: boolean}} options
   */
  toast(message, { undo = false } = {}) {
    const toast = this.find(".pd-toast");
    toast.hidden = false;
    /** @type {HTMLElement} */ (toast.firstElementChild).textContent = message;
    /** @type {HTMLElement} */ (toast.lastElementChild).hidden = !undo;
    this.later("toast", undo ? 8000 : 2500, () => (toast.hidden = true));
  }

  // ---------------------------------------------------------------- settings

  setUpSettings() {
    const kept = recallSettings();
    /** @type {NodeListOf<HTMLInputElement>} */
    const inputs = this.root.querySelectorAll(".pd-options input");
    for (const input of inputs) {
      const value = kept[input.name];
      if (input.type === "checkbox") {
        if (typeof value === "boolean") input.checked = value;
      } else if (typeof value === "number" && value >= Number(input.min) && value <= Number(input.max)) {
        input.value = String(value);
      }
      this.readSetting(input);
      input.addEventListener("input", () => {
        this.readSetting(input);
        keepSettings(this.settings);
        this.map.reset();
        this.settingsChanged();
      });
    }
    // Open where there is room for it, closed on a phone, until the reader decides otherwise.
    const roomy = matchMedia("(min-width: 720px) and (min-height: 600px)").matches;
    disclose(/** @type {HTMLButtonElement} */ (this.find("[data-do=settings]")), roomy);
  }

  /** Drafts for new settings: at once, or as soon as the drafts for those before are there; so the server's pace counts. */
  settingsChanged() {
    this.remembered.clear();
    const { request } = this;
    this.settingsWait = request !== null && request.forSettings && !request.told;
    if (this.settingsWait) return;
    this.later("settings", Math.max(0, this.settingsAsked + SETTINGS_EVERY - performance.now()), () => {
      this.settingsAsked = performance.now();
      this.ask({ forSettings: true });
    });
  }

  resetSettings() {
    this.tell("pd-reset");
    /** @type {NodeListOf<HTMLInputElement>} */
    const inputs = this.root.querySelectorAll(".pd-options input");
    for (const input of inputs) {
      if (input.type === "checkbox") input.checked = input.defaultChecked;
      else input.value = input.defaultValue;
      input.dispatchEvent(new Event("input"));
    }
  }

  /** @param {HTMLInputElement} input */
  readSetting(input) {
    this.settings[input.name] = input.type === "checkbox" ? input.checked : Number(input.value);
    if (input.type === "checkbox") return;
    const value = Number(input.value);
    const { format = "0" } = input.dataset;
    const shown = format === "%" ? `${Math.round(value * 100)}%` : value.toFixed(Number(format));
    this.find(`output[for="${input.id}"]`).textContent = shown;
    input.setAttribute("aria-valuetext", shown);
    const fraction = (value - Number(input.min)) / (Number(input.max) - Number(input.min));
    input.style.setProperty("--filled", `${fraction * 100}%`);
    this.reserveRoom();
  }

  /** The list keeps the height of k rows, and the text room for a ghost of that length: nothing jumps while typing. */
  reserveRoom() {
    const { width, fontSize } = this.map.column();
    const { k = 3, length = 10 } = this.settings;
    const lines = Math.round((Number(length) * LETTERS_PER_TOKEN * LETTER_WIDTH * fontSize) / width);
    this.root.style.setProperty("--k", String(k));
    this.root.style.setProperty("--ghost-room", String(Math.max(1, lines)));
  }

  // ---------------------------------------------------------------- server and window

  async checkStatus() {
    try {
      const { model, backend, device, notice } = await serverStatus();
      const where = device && device !== "cpu" ? `${backend} on ${device}` : backend;
      this.find(".pd-model").textContent = `${model} · ${where}`;
      this.find(".pd-remark").textContent = notice ?? "";
      if (this.offline) this.reconnected();
      if (backend === "loading") setTimeout(() => this.checkStatus(), LOADING);
    } catch (error) {
      if (error instanceof ConnectionLost) this.disconnected();
      else if (error instanceof ServerError) this.notice("server", error);
      else throw error;
    }
  }

  /** @param {{model: string, backend: string, first_ms: number, per_token_ms: number, reused: number, fed: number}} s */
  showFigures({ model, backend, first_ms, per_token_ms, reused, fed }) {
    if (!this.find(".pd-model").textContent?.startsWith(model)) {
      this.find(".pd-model").textContent = `${model} · ${backend}`;
    }
    const figures = [
      ["first draft", `${first_ms.toFixed(0)} ms`],
      ["per token", `${per_token_ms.toFixed(1)} ms`],
      ["reused", `${reused} of ${reused + fed} tokens`],
    ];
    this.find(".pd-figures").innerHTML = figures
      .map(([name, value]) => `<span><span class="pd-name">${name}</span> <b>${value}</b></span>`)
      .join("");
  }

  disconnected() {
    this.draw([]);
    if (this.offline) return;
    this.offline = true;
    this.notice("connection", {
      message: "The connection to Polydraft is lost. Your text is safe here.",
      fix: "If you have closed it, start it again; this page finds it by itself.",
    });
    this.retry(1000);
  }

  /** @param {number} delay */
  retry(delay) {
    this.later("retry", delay, async () => {
      await this.checkStatus();
      if (this.offline) this.retry(Math.min(delay * 1.5, 5000));
    });
  }

  reconnected() {
    this.offline = false;
    this.stop("retry");
    this.notice("connection", null);
    this.toast("Connected again.");
    if (!this.request) this.ask({});
  }

  /**
   * Show a problem in words, or take it away. Each kind has one place, so a problem never stands twice.
   * @param {"server" | "connection" | "storage"} kind
   * @param {{message: string, fix?: string} | null} problem
   */
  notice(kind, problem) {
    const box = this.find(".pd-notice");
    let line = box.querySelector(`[data-kind=${kind}]`);
    if (!problem) line?.remove();
    else {
      if (!line) {
        line = document.createElement("p");
        line.setAttribute("data-kind", kind);
        line.append(document.createElement("b"), " ", document.createElement("span"));
        box.append(line);
      }
      setText(/** @type {HTMLElement} */ (line.firstElementChild), problem.message);
      setText(/** @type {HTMLElement} */ (line.lastElementChild), problem.fix ?? "");
    }
    box.hidden = !box.childElementCount;
  }

  /** Tell a screen reader about the best draft, once the writer pauses, and not twice the same. */
  announceLater() {
    this.later("announce", 900, () => {
      const best = this.rows[0]?.rest.trim();
      if (!best || best === this.announced || document.activeElement !== this.textarea) return;
      this.announced = best;
      const count = this.rows.length === 1 ? "One draft" : `${this.rows.length} drafts`;
      this.find(".pd-live").textContent = `${count}. Best: ${best}.`;
    });
  }

  setUpWindow() {
    new ResizeObserver(() => {
      this.map.reset();
      const { left, width } = this.map.column();
      this.root.style.setProperty("--column-left", `${left}px`);
      this.root.style.setProperty("--column-width", `${width}px`);
      this.reserveRoom();
      this.drawGhost();
    }).observe(this.textarea, { box: "border-box" }); // where the column stands, not only how wide it is
    document.fonts?.addEventListener("loadingdone", () => this.map.reset());

    // The part of the window that a phone's keyboard leaves free.
    const viewport = window.visualViewport;
    const fit = () => this.root.style.setProperty("--height", `${viewport?.height ?? innerHeight}px`);
    viewport?.addEventListener("resize", fit);
    fit();

    addEventListener("pagehide", () => {
      this.saveNow();
      leave();
    });
    addEventListener("visibilitychange", () => document.hidden && this.saveNow());
    addEventListener("online", () => this.offline && this.checkStatus());
    addEventListener("focus", () => this.offline && this.checkStatus());
  }

  /**
   * @param {string} name
   * @param {number} ms
   * @param {() => void} action
   */
  later(name, ms, action) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(() => {
      this.timers[name] = undefined;
      action();
    }, ms);
  }

  /** @param {string} name */
  stop(name) {
    clearTimeout(this.timers[name]);
    this.timers[name] = undefined;
  }
}

/**
 * The new state of the drafts in the order in which the reader first saw them. Only a finished answer may move rows,
 * and only to bring those together that share a beginning.
 * @param {Draft[]} shown
 * @param {Draft[]} fresh best first
 * @param {boolean} done
 */
function inOrder(shown, fresh, done) {
  const place = new Map(shown.map((draft, i) => [draft.id, i]));
  const ordered = [...fresh].sort((a, b) => (place.get(a.id) ?? Infinity) - (place.get(b.id) ?? Infinity) || 0);
  return done ? grouped(ordered) : ordered;
}

/**
 * The draft with the end that one of `known` has and it has not yet.
 * @param {Draft} draft
 * @param {Draft[]} known
 */
function withKnownEnd(draft, known) {
  const longer = known.find(({ text }) => text.length > draft.text.length && text.startsWith(draft.text));
  return longer ? { ...draft, text: longer.text } : draft;
}

/**
 * Android keyboards compose every word, plain Latin typing too; that is no composition a draft would disturb.
 * @param {InputEvent} event
 */
function isPlainTyping(event) {
  return ANDROID && /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}\p{N}'’-]*$/u.test(event.data ?? "");
}

/**
 * Browsers undo a run of typing at once; moving the caret ends the run, so that undo takes back just the draft.
 * @param {HTMLTextAreaElement} textarea
 */
function separateUndo(textarea) {
  const { selectionStart, selectionEnd } = textarea;
  if (selectionStart !== selectionEnd) return;
  const aside = selectionStart > 0 ? selectionStart - 1 : Math.min(1, textarea.textLength);
  textarea.setSelectionRange(aside, aside);
  textarea.setSelectionRange(selectionStart, selectionStart);
}

/**
 * Writing the same text again would still cost a layout.
 * @param {HTMLElement} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Open or close what a button controls.
 * @param {HTMLButtonElement} button
 */
function disclose(button, open = button.getAttribute("aria-expanded") !== "true") {
  button.setAttribute("aria-expanded", String(open));
  const controlled = document.getElementById(button.getAttribute("aria-controls") ?? "");
  if (controlled) controlled.hidden = !open;
}

/** @param {string[]} keys */
function keyCaps(keys) {
  return keys.map((key) => `<kbd>${key}</kbd>`).join(" ");
}

/**
 * Bring the editor to life inside `element`, once.
 * @param {HTMLElement} element
 */
export function mount(element) {
  const root = /** @type {HTMLElement} */ (element.querySelector(".polydraft"));
  if (root.dataset.mounted) return;
  root.dataset.mounted = "true";
  // A phone's keyboard shall shrink the page, not lie over the drafts.
  const viewport = document.querySelector("meta[name=viewport]");
  viewport?.setAttribute("content", "width=device-width, initial-scale=1, interactive-widget=resizes-content");
  const editor = new Editor(root);
  const learning = new Learning(root, editor);
  setUpTabs(root, editor, learning);
  setUpSampling(root, editor);
  Object.assign(window, { polydraft: { counters: editor.counters, editor } });
}
