// @ts-check
/**
 * The editor: a <textarea> with a ghost text and the list of drafts below it. The browser has all state; the server only
 * receives requests for drafts. This file follows the text and the caret, and decides when to request drafts:
 *
 *   key ── rows that agree are shortened at once; the others stay, dimmed
 *      └── the running request is cancelled, and a new one lists the rows that stay and requests the others
 *
 * The interface for other parts of the page:
 *
 *   editor.text, editor.caret             the text and the position of the caret
 *   editor.setText(text, caret, ranges)   replaces the text, without a step of undo: a document is opened
 *   editor.privacy.ranges                 the ranges [start, end) of the text that were typed in incognito
 *   editor.insert(text)                   inserts at the caret, as if typed, as one step of undo
 *   editor.before()                       the text before the caret; null if no drafts belong there
 *   editor.requestDrafts(how)             requests drafts at the caret
 *   editor.abort()                        cancels the running request
 *   editor.settings, editor.sampling      the settings in requests; editor.settingsChanged() requests drafts with them
 *   editor.pause(on)                      stops or resumes drafting
 *   editor.forgetAnswers()                clears the cache of answers
 *   editor.notices.notice(kind, problem)  shows a problem until it is solved (problem: null)
 *   editor.notices.toast(message, how)    shows a sentence for a moment
 *   editor.keys.add(key)                  adds a key for the text, with its line in the key help: see keys.js
 *   editor.root                           receives these events:
 *     pd-text      the text has changed; detail: {opened: boolean}, whether by setText
 *     pd-taken     a draft was taken; detail: {before, text}
 *     pd-drafts    drafts for a new position have arrived
 *     pd-settled   the rows are final; detail: how many are worth showing
 *     pd-along     the drafts shown are valid for the new position too
 *     pd-cleared   there are no drafts
 *     pd-reset     all settings are set to their defaults
 *     pd-figures   figures of speculation; detail: the figures or null
 */

import { setUpAppearance } from "./appearance.js";
import { CaretMap } from "./caret.js";
import { setUpChances } from "./chances.js";
import { Connection } from "./connection.js";
import { setUpCounts } from "./counts.js";
import { Documents } from "./documents.js";
import { setUpDocumentsPanel } from "./documents_panel.js";
import { emit, setText } from "./dom.js";
import { firstWord, fitted, hasEnoughLeft, hasHugeParagraph, isWritingPlace, restOf, wordStem } from "./drafting.js";
import { setUpFind } from "./find.js";
import { Ghost } from "./ghost.js";
import { Keys } from "./keys.js";
import { Layout } from "./layout.js";
import { Learning } from "./learning.js";
import { isIncognito } from "./memory.js";
import { Notices } from "./notices.js";
import { Options } from "./options.js";
import { setUpSampling } from "./panel.js";
import { Places } from "./places.js";
import { ANDROID } from "./platform.js";
import { PrivateText } from "./privacy.js";
import { Requests } from "./requests.js";
import { Revisiting } from "./revisiting.js";
import { DraftList } from "./rows.js";
import { setUpModels } from "./model.js";
import { setUpTabs } from "./tabs.js";
import { insertAsTyped } from "./taking.js";
import { Timers } from "./timers.js";
import { setUpTools } from "./tools.js";
import { leave } from "./transport.js";

/** @typedef {import("./places.js").Row} Row */
/** @typedef {import("./requests.js").Request} Request */

const REFRESH_AFTER = 250; // ms without a key until freed rows are filled, if not every key sends a request
const MOVED_AFTER = 120; // ms after the caret has moved until drafts are requested at its new position
const GROW_AFTER = 500; // ms without a key until all drafts grow to their full length
const FOLLOWING = 256; // characters after the caret in requests
const SETTINGS_EVERY = 16; // least ms between two requests while a slider moves

export class Editor {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.textarea = /** @type {HTMLTextAreaElement} */ (root.querySelector("#pd-text"));
    this.map = new CaretMap(this.textarea, /** @type {HTMLElement} */ (root.querySelector(".pd-mirror")));
    this.ghost = new Ghost(this.textarea, /** @type {HTMLElement} */ (root.querySelector(".pd-ghost")), this.map);
    this.timers = new Timers();

    /** The rows of the list. */
    this.places = new Places();
    /** Whether the tab is incognito now. */
    this.incognito = isIncognito();
    /** Tracks the text typed in incognito. */
    this.privacy = new PrivateText(this.textarea, () => this.incognito);
    /** The place of the draft that Tab takes, or -1. */
    this.active = -1;
    /** The lineage of that draft. */
    this.lineage = 0;
    /** Whether the writer has selected it by key. */
    this.chosen = false;
    /** Whether Tab takes drafts: after typing, a click or Alt and an arrow; otherwise Tab moves the focus. */
    this.engaged = false;
    /** The caret after the last change of the text. */
    this.edited = -1;
    /** Whether the drafts must grow as soon as the running request has ended. */
    this.growWaits = false;
    /** The drafts that the latest request included, see `requestDrafts`; the request for their full length does too. */
    this.included = { all: false, wanted: false };
    this.dismissed = false;
    /** Whether the writer has paused drafting. */
    this.paused = false;
    this.composing = false;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    this.text = "";
    this.caret = 0;
    /** The time of the key down event before the next input event. @type {number | null} */
    this.pressed = null;
    this.lastInput = -1e9;
    /** Whether the first word of a draft, or any text, is being inserted. */
    this.takingWord = false;
    this.inserting = false;
    /** The last ghost text and its position. @type {{text: string, caret: number} | null} */
    this.lastGhost = null;
    this.announced = "";
    /** For benchmarks; times in ms. */
    this.counters = {
      keystrokes: 0,
      requests: 0,
      avoided: 0,
      /** Key down to the first draft in the page, for keys that no draft agreed with. @type {number[]} */
      firstMs: [],
      /** Key down to the last freed row filled, for keys that some drafts agreed with. @type {number[]} */
      fillMs: [],
      /** Key down to all drafts complete. @type {number[]} */
      doneMs: [],
      /** Key down to the shortened drafts in the page. @type {number[]} */
      alongMs: [],
    };

    this.notices = new Notices(root, this.textarea);
    this.connection = new Connection(root, this.notices, {
      lost: () => this.close(),
      found: () => !this.request && this.requestDrafts({}),
    });
    this.requests = new Requests({
      drafts: (request, line) => this.receive(request, line),
      figures: (line) => this.connection.showFigures(line),
      problem: (problem) => {
        this.settingsWait = false;
        this.notices.notice("server", problem);
        this.settle();
      },
      lost: () => {
        this.settingsWait = false;
        this.connection.lost();
      },
      ended: (request) => {
        if (this.settingsWait) this.settingsChanged();
        if (request.done) this.announceLater();
        if (this.growWaits) this.grow();
      },
    });
    this.list = new DraftList(root, this.textarea, (i, length, event) => {
      this.pressed = event.timeStamp;
      this.take(i, length);
    });
    this.revisiting = new Revisiting(this);
    this.keys = new Keys(root, this);
    /** The settings of the sampling panel. @type {{sampling?: object}} */
    this.sampling = {};
    /** When drafts were last requested for changed settings. */
    this.settingsSentAt = -1e9;
    /** Whether settings have changed since the running request was sent. */
    this.settingsWait = false;
    this.options = new Options(root, () => {
      this.map.reset();
      this.layout.reserveRoom();
      this.settingsChanged();
    });
    this.setUpText();
    this.layout = new Layout(this);
    this.layout.reserveRoom();
    setUpTools(root, this);
    setUpChances(root);
    addEventListener("pagehide", leave);
    this.connection.check();
    this.textChanged();
  }

  /** The running request. */
  get request() {
    return this.requests.running;
  }

  get settings() {
    return this.options.values;
  }

  /** @returns {Row[]} */
  get rows() {
    return this.places.rows;
  }

  /** Whether a draft is shown for the present position. */
  get open() {
    return this.active >= 0;
  }

  // ---------------------------------------------------------------- the text

  setUpText() {
    const { textarea } = this;
    // On a touch screen, focusing would open the keyboard over the page at once.
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
    textarea.addEventListener("pointerdown", () => this.engage(true));
    document.addEventListener("keydown", (event) => event.key === "Tab" && !event.defaultPrevented && this.engage(false));
    // If the ghost redraws text after the caret, hide it, so that the pointer finds the text at its true position.
    for (const event of ["pointermove", "pointerdown"]) {
      textarea.addEventListener(event, () => this.ghost.covers && this.ghost.hide());
    }
  }

  /**
   * Replace the text, without a step of undo.
   * @param {string} text
   * @param {number} caret
   * @param {number[][]} privateRanges the ranges of it that were typed in incognito
   */
  setText(text, caret = text.length, privateRanges = []) {
    this.clear();
    this.textarea.value = text;
    this.textarea.setSelectionRange(caret, caret);
    this.privacy.open(privateRanges);
    this.textChanged({ opened: true });
  }

  /**
   * Set whether Tab takes a draft or moves the focus.
   * @param {boolean} on
   */
  engage(on) {
    this.engaged = on;
    this.root.toggleAttribute("data-engaged", on);
  }

  /** @param {InputEvent} event */
  input(event) {
    this.privacy.edited(event);
    this.counters.keystrokes++;
    this.engage(true);
    const now = performance.now();
    const burst = now - this.lastInput < 1;
    this.lastInput = now;
    if (this.composing && event.isComposing && !isPlainTyping(event)) {
      if (this.rows.length || this.request) this.clear();
      return;
    }
    // If a program types several lines within one task, drafts are requested once, at their end.
    if (burst && !this.inserting) this.timers.later("burst", 0, () => this.textChanged());
    else this.textChanged();
  }

  /** The text has changed: shorten the rows that agree, and request the others. */
  textChanged({ opened = false } = {}) {
    const { textarea } = this;
    this.text = textarea.value;
    this.caret = this.edited = textarea.selectionStart;
    // If the last key is long ago, something else changed the text: a menu, a drop, a voice.
    const pressed = this.pressed !== null && performance.now() - this.pressed < 1000 ? this.pressed : null;
    this.pressed = null;
    this.dismissed = false;
    this.revisiting.end();
    emit(this.root, "pd-text", { opened });
    this.map.oneDirection = hasHugeParagraph(this.text);
    textarea.classList.toggle("pd-one-direction", this.map.oneDirection);
    /** @type {HTMLElement} */ (this.root.querySelector(".pd-invite")).hidden = this.text !== "";
    this.layout.growToContent();
    this.timers.stop("moved", "refresh", "burst", "grow");
    this.growWaits = false;

    const before = this.before();
    if (before === null) {
      this.clear();
      return;
    }
    this.places.resize(this.k);
    this.places.follow(before);
    const known = this.requests.recall(before, this.after());
    if (known) {
      this.abort();
      this.places.receive(before, before, { drafts: known, settled: true, growing: false });
    }
    this.draw();
    if (this.settings.refill) this.timers.later("grow", GROW_AFTER, () => this.grow());
    if (this.places.open && pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
    if (known) this.along();
    else if (this.settings.refill) this.requestDrafts({ pressed, keep: true });
    else this.requestIfNoneAgrees(before, pressed);
  }

  /**
   * If not every key sends a request: request drafts only when those shown end, and for freed rows after a pause.
   * @param {string} before
   * @param {number | null} pressed
   */
  requestIfNoneAgrees(before, pressed) {
    const streaming = this.request !== null && before.startsWith(this.request.before) && this.places.open;
    const enough = this.rows.some(({ live, rest }) => live && hasEnoughLeft(rest));
    if (!this.places.open || !(streaming || this.takingWord || enough)) {
      this.requestDrafts({ pressed, keep: true });
      return;
    }
    if (!streaming) this.abort();
    this.along();
    if (this.rows.some(({ draft, live }) => draft && !live) && !this.takingWord) {
      this.timers.later("refresh", REFRESH_AFTER, () => this.requestDrafts({ keep: true }));
    }
  }

  /** The drafts shown are valid for the new position, without a request. */
  along() {
    this.counters.avoided++;
    emit(this.root, "pd-along");
  }

  /** The number of rows. */
  get k() {
    return Number(this.settings.k ?? 3);
  }

  /** The text before the caret; null if no drafts belong there: an empty text, a selection, a composition. */
  before() {
    const { textarea } = this;
    if (this.paused || this.composing && !ANDROID) return null;
    if (textarea.selectionStart !== textarea.selectionEnd) return null;
    const before = this.text.slice(0, textarea.selectionStart);
    return before.trim() ? before : null;
  }

  /** The beginning of the text after the caret, for requests; "" if it is only white space. */
  after() {
    const { selectionEnd } = this.textarea;
    const after = this.text.slice(selectionEnd, selectionEnd + FOLLOWING);
    return after.trim() ? after : "";
  }

  selectionChanged() {
    const { textarea } = this;
    if (document.activeElement !== textarea || this.composing) return;
    if (textarea.selectionStart === this.caret && textarea.selectionEnd === this.caret) return;
    // A selection event may come before the input event of the same key; then the text differs, and that event follows.
    if (textarea.value !== this.text || this.revisiting.here()) return;
    this.revisiting.end();
    this.caret = textarea.selectionStart;
    this.timers.stop("moved", "grow");
    const before = this.before();
    if (before === null || !this.isWritingHere()) {
      this.clear();
      return;
    }
    if (this.dismissed) return;
    this.abort();
    this.places.resize(this.k);
    this.places.follow(before);
    this.draw();
    this.timers.later("moved", MOVED_AFTER, () => this.requestDrafts({ keep: true }));
  }

  /** Whether drafts belong at the caret: it is at the end of a line, or after a word that was just typed. */
  isWritingHere() {
    const inWord = this.caret === this.edited && /[\p{L}\p{N}]$/u.test(this.text.slice(Math.max(0, this.caret - 2), this.caret));
    return inWord || isWritingPlace(this.text.slice(this.caret, this.caret + 2000));
  }

  /**
   * Stop or resume drafting.
   * @param {boolean} on
   */
  pause(on) {
    this.paused = on;
    if (on) this.clear();
    else this.requestDrafts({});
  }

  // ---------------------------------------------------------------- requests

  /**
   * Request drafts at the caret. `keep`: rows that agree stay, and only the others are requested; `grow`: rows stay, and
   * their full length is requested; `wanted`: also drafts that do not fit the text after the caret; `all`: these, and
   * improbable ones.
   * @param {{pressed?: number | null, forSettings?: boolean, keep?: boolean, grow?: boolean, wanted?: boolean,
   *          all?: boolean}} how
   */
  requestDrafts({ pressed = null, forSettings = false, keep = false, grow = false, all = false, wanted = all }) {
    const before = this.before();
    if (before === null || this.dismissed) return;
    this.settingsWait = false;
    this.growWaits = false;
    this.included = { all, wanted };
    this.counters.requests++;
    this.places.resize(this.k);
    this.list.below.removeAttribute("data-unlikely");
    const { refill } = this.settings;
    const settings = { ...this.settings, ...this.sampling, ...(all ? { min_confidence: 0 } : {}) };
    const kept = refill && (keep || grow) ? { kept: this.places.kept() } : {};
    const freed = this.rows.filter(({ live }) => !live).length;
    const after = this.after();
    const extra = { ...kept, ...(grow ? { grow } : {}), ...(after ? { after } : {}), ...(after && wanted ? { all: true } : {}) };
    this.requests.send(before, settings, extra, {
      pressed, forSettings, all, freed, k: this.k, keeps: keep || grow,
    });
  }

  /** After half a second without a key: request the full length of every draft. */
  grow() {
    this.growWaits = this.request !== null;
    if (!this.growWaits && this.places.open) this.requestDrafts({ grow: true, ...this.included });
  }

  abort() {
    this.requests.abort();
  }

  /** Clear the cache of answers, because stores or settings have changed. */
  forgetAnswers() {
    this.requests.remembered.clear();
  }

  /**
   * Show the drafts of one line of the answer.
   * @param {Request} request
   * @param {{done: boolean, settled: boolean, hidden: number, drafts: import("./drafting.js").Draft[],
   *          speculation?: object}} line
   */
  receive(request, line) {
    this.notices.notice("server", null);
    this.connection.found();
    emit(this.root, "pd-figures", line.speculation ?? null);
    if (!request.answered) {
      this.answered = request;
      emit(this.root, "pd-drafts");
    }
    if (this.settingsWait) this.settingsChanged();

    const before = this.before();
    if (before === null) return;
    const { settled } = line;
    const growing = !line.done && !request.keeps;
    this.places.receive(request.before, before, { drafts: line.drafts, settled, growing });
    this.draw();
    const hidden = line.done && !this.places.open && !request.all && line.hidden > 0;
    this.list.below.toggleAttribute("data-unlikely", hidden);
    if (hidden) setText(this.list.below.querySelector(".pd-unlikely span"), `${Math.round(100 * Number(this.settings.min_confidence))} %`);
    this.recordTimes(request, line.done, settled);
    if (settled) emit(this.root, "pd-settled", line.drafts.length);
  }

  /**
   * Record the times in `counters`.
   * @param {Request} request
   * @param {boolean} done
   * @param {boolean} settled
   */
  recordTimes(request, done, settled) {
    if (request.pressed === null) return;
    const elapsed = performance.now() - request.pressed;
    const { firstMs, fillMs, doneMs } = this.counters;
    if (!request.answered && request.freed === request.k && this.places.open) firstMs.push(elapsed);
    if (!request.filled && (settled || this.rows.every(({ live }) => live))) {
      request.filled = true;
      if (request.freed < request.k) fillMs.push(elapsed);
    }
    if (done) doneMs.push(elapsed);
  }

  // ---------------------------------------------------------------- drawing

  /** Cancel the running request and remove all drafts. */
  clear() {
    this.abort();
    this.timers.stop("refresh", "grow");
    this.growWaits = false;
    this.close();
    emit(this.root, "pd-cleared");
  }

  /** Remove all drafts. */
  close() {
    this.places.clear();
    this.list.below.removeAttribute("data-unlikely");
    this.draw();
  }

  /** Remove the freed rows, because no answer will fill them. */
  settle() {
    this.places.dropFreed();
    if (this.places.open) this.draw();
    else this.close();
  }

  draw() {
    const { places } = this;
    // The draft that Tab takes stays the same while it is shown, identified by its lineage.
    const row = this.rows[this.active];
    if (!row?.live || row.draft?.lineage !== this.lineage) {
      this.active = places.likeliest();
      this.lineage = this.rows[this.active]?.draft?.lineage ?? 0;
      this.chosen = false;
    }
    this.drawList();
    this.drawGhost();
    this.layout.placeDrafts();
  }

  drawGhost() {
    const row = this.rows[this.active];
    if (this.rows.length === 0 || (this.composing && !ANDROID)) {
      this.lastGhost = null;
      this.ghost.hide();
      return;
    }
    if (this.revisiting.here()) this.ghost.hide(); // it would cover the selection
    else if (row) {
      const after = this.text.slice(this.textarea.selectionEnd);
      this.lastGhost = { text: fitted(row.rest, after), caret: this.caret };
      this.ghost.show(this.lastGhost.text, this.text, this.caret);
    } else if (this.lastGhost && this.rows.some(({ draft }) => draft)) {
      // No draft agrees, and new ones are requested: until they arrive, the letters stay in place, paler.
      const typed = Math.max(0, this.caret - this.lastGhost.caret);
      this.ghost.show(this.lastGhost.text.slice(typed), this.text, this.caret, true);
    } else this.ghost.hide();
    if (this.caret === this.text.length) {
      // At the end of the text, scroll so that the ghost's last line is visible too.
      const hidden = this.ghost.bottom() + 4 - this.textarea.scrollTop - this.textarea.clientHeight;
      if (hidden > 0) this.textarea.scrollTop += hidden;
    }
  }

  drawList() {
    const stem = wordStem(this.text.slice(Math.max(0, this.caret - 40), this.caret));
    this.list.draw(this.rows, { active: this.active, chosen: this.chosen, stem });
  }

  /** Announce the best draft to screen readers when the writer pauses, unless it was the last announcement. */
  announceLater() {
    this.timers.later("announce", 900, () => {
      const best = this.rows[this.active]?.rest.trim();
      if (!best || best === this.announced || document.activeElement !== this.textarea) return;
      this.announced = best;
      const live = this.rows.filter((row) => row.live).length;
      this.notices.announce(`${live === 1 ? "One draft" : `${live} drafts`}. Best: ${best}.`);
    });
  }

  /** Remove all drafts after incognito was switched, because earlier ones may repeat private text. */
  forgetDrafts() {
    const shown = this.places.open;
    this.forgetAnswers();
    this.revisiting.forget();
    this.clear();
    if (shown) this.requestDrafts({});
  }

  // ---------------------------------------------------------------- taking drafts

  /**
   * Take a draft, or its first `length` characters. Every key, click and tap calls this, and only this checks that the
   * draft continues the present text.
   * @param {number} i
   * @param {number} length
   * @returns {boolean} whether it was taken
   */
  take(i, length = Infinity) {
    const { textarea } = this;
    const row = this.rows[i];
    if (!row?.live || !row.draft || (this.composing && !ANDROID)) return false;
    const { value, selectionStart, selectionEnd } = textarea;
    if (selectionStart !== selectionEnd && !this.revisiting.here()) return false;
    const before = value.slice(0, selectionStart);
    if (restOf(row.draft, before) !== row.rest) return false;
    const text = fitted(row.rest.slice(0, length), value.slice(selectionEnd));
    if (!text) return false;
    this.revisiting.taken(before, text);
    this.insert(text);
    if (length >= row.rest.length) emit(this.root, "pd-taken", { before, text });
    return true;
  }

  /**
   * Take the first word of a draft; its rest stays in the list.
   * @param {number} i
   */
  takeWord(i = this.active) {
    const row = this.rows[i];
    if (!row) return false;
    this.takingWord = true;
    const taken = this.take(i, firstWord(row.rest).length);
    this.takingWord = false;
    return taken;
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

  /** Request drafts on the writer's command, also where none appear automatically, and improbable ones. */
  requestHere() {
    this.caret = this.textarea.selectionStart; // the event of the last move of the caret may come after this
    this.timers.stop("moved"); // its request would replace this one, and keep what it has shown so far
    this.dismissed = false;
    this.requestDrafts({ wanted: true, all: this.list.below.hasAttribute("data-unlikely") });
    this.draw();
  }

  /**
   * Show the rows from which a draft was taken, and select that draft in the text.
   * @param {number} start
   * @param {number} end
   * @param {Row[]} rows
   */
  showAgain(start, end, rows) {
    this.abort();
    this.timers.stop("moved", "refresh", "grow");
    this.textarea.setSelectionRange(start, end);
    this.caret = start;
    this.dismissed = false;
    this.places.rows = rows.map((row) => ({ ...row }));
    this.engage(true);
    this.draw();
  }

  dismiss() {
    if (this.revisiting.here()) this.textarea.setSelectionRange(this.textarea.selectionEnd, this.textarea.selectionEnd);
    this.clear();
    this.timers.stop("moved");
    this.dismissed = true;
    this.notices.announce("Drafts dismissed.");
  }

  /** @param {number} by */
  move(by) {
    do this.active = (this.active + by + this.rows.length) % this.rows.length;
    while (!this.rows[this.active].live);
    this.lineage = this.rows[this.active].draft?.lineage ?? 0;
    this.chosen = true;
    this.drawList();
    this.drawGhost();
    this.list.show(this.active);
  }

  // ---------------------------------------------------------------- settings

  /** Request drafts for new settings, at once or when the drafts for the earlier settings have arrived. */
  settingsChanged() {
    this.forgetAnswers();
    const { request } = this;
    this.settingsWait = request !== null && request.forSettings && !request.answered;
    if (this.settingsWait) return;
    this.timers.later("settings", Math.max(0, this.settingsSentAt + SETTINGS_EVERY - performance.now()), () => {
      this.settingsSentAt = performance.now();
      this.requestDrafts({ forSettings: true });
    });
  }

  resetSettings() {
    emit(this.root, "pd-reset");
    this.options.reset();
  }
}

/**
 * Whether an input event composes plain text: Android keyboards compose every word, and drafts need not disappear then.
 * @param {InputEvent} event
 */
function isPlainTyping(event) {
  return ANDROID && /^[\p{Script=Latin}\p{Script=Cyrillic}\p{Script=Greek}\p{N}'’-]*$/u.test(event.data ?? "");
}

/**
 * Start the editor inside `element`, once.
 * @param {HTMLElement} element
 */
export function mount(element) {
  const root = /** @type {HTMLElement} */ (element.querySelector(".polydraft"));
  if (root.dataset.mounted) return;
  root.dataset.mounted = "true";
  // Let a phone's keyboard shrink the page instead of covering the drafts.
  const viewport = document.querySelector("meta[name=viewport]");
  viewport?.setAttribute("content", "width=device-width, initial-scale=1, interactive-widget=resizes-content");
  const editor = new Editor(root);
  const documents = new Documents(root, editor);
  const learning = new Learning(root, editor);
  setUpTabs(root, editor, learning);
  setUpModels(root, editor);
  setUpSampling(root, editor);
  setUpDocumentsPanel(root, editor, documents);
  setUpFind(root, editor);
  setUpAppearance(root, editor);
  setUpCounts(root, editor, documents);
  documents.start().then(() => Object.assign(window, { polydraft: { counters: editor.counters, editor, documents } }));
}
