// @ts-check
/**
 * The editor: a <textarea> with a ghost text and the list of drafts below it. All state lives here in the browser; the
 * server only ever sees a request for drafts. This file follows the text and the caret and decides when to ask:
 *
 *   key ── the text still follows a shown draft? ── yes: trim it, no request
 *                                                └─ no:  stop the running request, send a new one
 *
 * What other parts of the page use of it:
 *
 *   editor.text, editor.caret             the text and where the caret stands in it
 *   editor.setText(text, caret)           another text, without a step of undo: a document is opened
 *   editor.insert(text)                   at the caret, as if typed; one step of undo
 *   editor.before()                       the text before the caret; null where no drafts belong
 *   editor.ask(how), editor.abort()       drafts for this place now; none, until something changes
 *   editor.settings, editor.sampling      what requests carry; editor.settingsChanged() asks with them
 *   editor.pause(on)                      no drafts for now; or go on
 *   editor.forgetAnswers()                answers kept for going back count no longer
 *   editor.notice(kind, problem)          a problem in words, until it is solved (problem: null)
 *   editor.toast(message, options)        a sentence for a moment
 *   editor.addKey(key)                    a key of the text's, with its line in the key help: see keys.js
 *   editor.root                           hears these events:
 *     pd-text      the text has changed; detail: {opened: boolean}, whether by setText
 *     pd-taken     a draft was taken; detail: {before, text}
 *     pd-drafts    drafts for a new place have arrived
 *     pd-along     those shown serve a new place as well
 *     pd-cleared   there are none
 *     pd-reset     all settings go back to their defaults
 *     pd-figures   figures of speculation; detail: the figures or null
 */

import { setUpAppearance } from "./appearance.js";
import { CaretMap } from "./caret.js";
import { Connection } from "./connection.js";
import { setUpCounts } from "./counts.js";
import { Documents } from "./documents.js";
import { setUpDocumentsPanel } from "./documents_panel.js";
import { agreeing, firstWord, hasEnoughLeft, hasHugeParagraph, wordStem } from "./drafting.js";
import { setUpFind } from "./find.js";
import { Ghost } from "./ghost.js";
import { Keys } from "./keys.js";
import { Layout } from "./layout.js";
import { Learning } from "./learning.js";
import { Notices } from "./notices.js";
import { setUpSampling } from "./panel.js";
import { ANDROID } from "./platform.js";
import { Requests } from "./requests.js";
import { DraftList } from "./rows.js";
import { SettingsBar } from "./settings_bar.js";
import { setUpTabs } from "./tabs.js";
import { insertAsTyped } from "./taking.js";
import { Timers } from "./timers.js";
import { setUpTools } from "./tools.js";
import { leave } from "./transport.js";

/** @typedef {import("./drafting.js").DraftSet} DraftSet */
/** @typedef {import("./drafting.js").Row} Row */
/** @typedef {import("./requests.js").Request} Request */

const REFRESH_AFTER = 250; // ms without a key until dropped drafts are replaced by new ones
const MOVED_AFTER = 120; // ms after the caret has moved until drafts are asked for at its new place
const SETTINGS_EVERY = 16; // ms at least between two requests while a slider moves

export class Editor {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.textarea = /** @type {HTMLTextAreaElement} */ (root.querySelector("#pd-text"));
    this.map = new CaretMap(this.textarea, /** @type {HTMLElement} */ (root.querySelector(".pd-mirror")));
    this.ghost = new Ghost(this.textarea, /** @type {HTMLElement} */ (root.querySelector(".pd-ghost")), this.map);
    this.timers = new Timers();

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
    /** Whether the writer wants no drafts for now. */
    this.paused = false;
    this.composing = false;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    this.text = "";
    this.caret = 0;
    /** When the key that is about to change the text went down. @type {number | null} */
    this.pressed = null;
    this.lastInput = -1e9;
    /** While a draft is being inserted: a word of it, and at all. */
    this.takingWord = false;
    this.inserting = false;
    this.announced = "";
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

    this.notices = new Notices(root, this.textarea);
    this.connection = new Connection(root, this.notices, {
      lost: () => this.draw([]),
      found: () => !this.request && this.ask({}),
    });
    this.requests = new Requests({
      settings: () => ({ ...this.settings, ...this.sampling }),
      drafts: (request, line, first) => this.answer(request, line, first),
      figures: (line) => this.connection.showFigures(line),
      problem: (problem) => {
        this.settingsWait = false;
        this.notice("server", problem);
      },
      lost: () => {
        this.settingsWait = false;
        this.connection.lost();
      },
      ended: (request) => {
        if (this.settingsWait) this.settingsChanged();
        if (request.set.done) this.announceLater();
      },
    });
    this.list = new DraftList(root, this.textarea, (i, event) => {
      this.pressed = event.timeStamp;
      this.take(i);
    });
    this.keys = new Keys(root, this);
    /** What the sampling panel adds to the settings. @type {{sampling?: object}} */
    this.sampling = {};
    this.settingsAsked = -1e9;
    /** Whether settings have changed since the request under way. */
    this.settingsWait = false;
    this.bar = new SettingsBar(root, () => {
      this.map.reset();
      this.layout.reserveRoom();
      this.settingsChanged();
    });
    this.setUpText();
    this.layout = new Layout(this);
    this.layout.reserveRoom();
    setUpTools(root, this);
    addEventListener("pagehide", leave);
    this.connection.check();
    this.textChanged();
  }

  /** The request under way. */
  get request() {
    return this.requests.running;
  }

  get settings() {
    return this.bar.values;
  }

  // ---------------------------------------------------------------- the text

  setUpText() {
    const { textarea } = this;
    // On a touch screen focusing would open the keyboard over a page nobody has seen yet.
    if (matchMedia("(pointer: fine)").matches) textarea.focus({ preventScroll: true });

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

  /**
   * Another text in place of this one, which the browser's undo knows nothing of.
   * @param {string} text
   * @param {number} caret
   */
  setText(text, caret = text.length) {
    this.clear();
    this.textarea.value = text;
    this.textarea.setSelectionRange(caret, caret);
    this.textChanged({ opened: true });
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
    if (burst && !this.inserting) this.timers.later("burst", 0, () => this.textChanged());
    else this.textChanged();
  }

  /** The text or the caret is not what it was: serve drafts from what is shown, or ask for new ones. */
  textChanged({ opened = false } = {}) {
    const { textarea } = this;
    this.text = textarea.value;
    this.caret = textarea.selectionStart;
    // A key long before is not what changed the text: that was a menu, a drop, a voice.
    const pressed = this.pressed !== null && performance.now() - this.pressed < 1000 ? this.pressed : null;
    this.pressed = null;
    this.dismissed = false;
    this.tell("pd-text", { opened });
    this.map.oneDirection = hasHugeParagraph(this.text);
    textarea.classList.toggle("pd-one-direction", this.map.oneDirection);
    /** @type {HTMLElement} */ (this.root.querySelector(".pd-invite")).hidden = this.text !== "";
    this.layout.growToContent();
    this.timers.stop("moved");
    this.timers.stop("refresh");
    this.timers.stop("burst");

    const before = this.before();
    if (before === null) {
      this.clear();
      return;
    }
    const rows = agreeing(this.set, before);
    const streaming = this.set !== null && this.request?.set === this.set;
    if (rows.length && (streaming || this.takingWord || rows.some((row) => hasEnoughLeft(row.rest)))) {
      if (this.request && !before.startsWith(this.request.before)) this.abort();
      this.along(rows, pressed);
      if (rows.length < /** @type {DraftSet} */ (this.set).drafts.length && !this.takingWord) {
        this.timers.later("refresh", REFRESH_AFTER, () => this.ask({ quiet: true }));
      }
      return;
    }
    const known = this.requests.recall(before);
    if (known) {
      this.abort();
      this.set = { before, drafts: known, done: true };
      this.along(agreeing(this.set, before), pressed);
      return;
    }
    this.draw(rows);
    this.ask({ quiet: rows.length > 0, pressed: rows.length ? null : pressed });
  }

  /**
   * Drafts that are here already serve the new place.
   * @param {Row[]} rows
   * @param {number | null} pressed
   */
  along(rows, pressed) {
    this.counters.avoided++;
    this.draw(rows);
    this.tell("pd-along");
    if (pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
  }

  /** The text before the caret, or null where no drafts belong: nothing written, a selection, a composition. */
  before() {
    const { textarea } = this;
    if (this.paused || this.composing && !ANDROID) return null;
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
    this.timers.later("moved", MOVED_AFTER, () => {
      if (this.before() !== null) this.ask({});
    });
  }

  /**
   * Stop drafting, or go on.
   * @param {boolean} on
   */
  pause(on) {
    this.paused = on;
    if (on) this.clear();
    else this.ask({});
  }

  // ---------------------------------------------------------------- asking

  /**
   * Ask the server for drafts at the caret.
   * @param {{quiet?: boolean, pressed?: number | null, forSettings?: boolean}} how
   */
  ask({ quiet = false, pressed = null, forSettings = false }) {
    const before = this.before();
    if (before === null || this.dismissed) return;
    this.settingsWait = false;
    this.counters.requests++;
    const steady = forSettings && this.set?.before === before ? this.set.drafts : [];
    this.requests.send(before, { quiet, pressed, forSettings, steady });
  }

  abort() {
    this.requests.abort();
  }

  /** What was drafted before counts no longer: stores or settings are not what they were. */
  forgetAnswers() {
    this.requests.remembered.clear();
  }

  /**
   * The request's drafts have come, or grown.
   * @param {Request} request
   * @param {{done: boolean, speculation?: object}} line
   * @param {boolean} first
   */
  answer(request, line, first) {
    this.notice("server", null);
    this.connection.found();
    this.tell("pd-figures", line.speculation ?? null);
    if (!request.told) {
      this.answered = request;
      this.tell("pd-drafts");
    }
    request.told = true;
    if (this.settingsWait) this.settingsChanged();

    const before = this.before();
    if (before === null) return;
    const { set } = request;
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

  // ---------------------------------------------------------------- drawing

  /** Nothing to show and nothing under way. */
  clear() {
    this.abort();
    this.timers.stop("refresh");
    this.set = null;
    this.draw([]);
    this.tell("pd-cleared");
  }

  /**
   * @param {"pd-text" | "pd-drafts" | "pd-along" | "pd-cleared" | "pd-reset" | "pd-taken" | "pd-figures"} event
   * @param {any} detail
   */
  tell(event, detail = undefined) {
    this.root.dispatchEvent(new CustomEvent(event, { detail }));
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
    const stem = wordStem(this.text.slice(Math.max(0, this.caret - 40), this.caret));
    this.list.draw(this.rows, { active: this.active, chosen: this.chosen, stem });
  }

  /** Tell a screen reader about the best draft, once the writer pauses, and not twice the same. */
  announceLater() {
    this.timers.later("announce", 900, () => {
      const best = this.rows[0]?.rest.trim();
      if (!best || best === this.announced || document.activeElement !== this.textarea) return;
      this.announced = best;
      const count = this.rows.length === 1 ? "One draft" : `${this.rows.length} drafts`;
      this.notices.say(`${count}. Best: ${best}.`);
    });
  }

  // ---------------------------------------------------------------- taking drafts

  /** @param {number} i */
  take(i) {
    const row = this.rows[i];
    if (!row) return;
    const before = this.before() ?? "";
    this.insert(row.rest);
    this.tell("pd-taken", { before, text: row.rest });
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
   * Insert at the caret as if typed.
   * @param {string} text
   */
  insert(text) {
    this.inserting = true;
    insertAsTyped(this.textarea, text);
    this.inserting = false;
  }

  dismiss() {
    this.clear();
    this.timers.stop("moved");
    this.dismissed = true;
    this.notices.say("Drafts dismissed.");
  }

  /** @param {number} by */
  move(by) {
    this.active = (this.active + by + this.rows.length) % this.rows.length;
    this.chosen = true;
    this.drawList();
    this.drawGhost();
    this.list.show(this.active);
  }

  // ---------------------------------------------------------------- keys, settings, words to the writer

  /** @param {import("./keys.js").Key} key */
  addKey(key) {
    this.keys.add(key);
  }

  /** Drafts for new settings: at once, or as soon as the drafts for those before are there; so the server's pace counts. */
  settingsChanged() {
    this.forgetAnswers();
    const { request } = this;
    this.settingsWait = request !== null && request.forSettings && !request.told;
    if (this.settingsWait) return;
    this.timers.later("settings", Math.max(0, this.settingsAsked + SETTINGS_EVERY - performance.now()), () => {
      this.settingsAsked = performance.now();
      this.ask({ forSettings: true });
    });
  }

  resetSettings() {
    this.tell("pd-reset");
    this.bar.reset();
  }

  /**
   * Show a problem in words, or take it away.
   * @param {"server" | "connection" | "storage"} kind
   * @param {{message: string, fix?: string} | null} problem
   */
  notice(kind, problem) {
    this.notices.notice(kind, problem);
  }

  /**
   * @param {string} message
   * @param {{undo?: () => void, long?: boolean}} options
   */
  toast(message, options = {}) {
    this.notices.toast(message, options);
  }
}

/**
 * Android keyboards compose every word, plain Latin typing too; that is no composition a draft would disturb.
 * @param {InputEvent} event
 */
function isPlainTyping(event) {
  return ANDROID && /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}\p{N}'’-]*$/u.test(event.data ?? "");
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
  const documents = new Documents(root, editor);
  const learning = new Learning(root, editor);
  setUpTabs(root, editor, learning);
  setUpSampling(root, editor);
  setUpDocumentsPanel(root, editor, documents);
  setUpFind(root, editor);
  setUpAppearance(root, editor);
  setUpCounts(root, editor, documents);
  documents.start().then(() => Object.assign(window, { polydraft: { counters: editor.counters, editor, documents } }));
}
