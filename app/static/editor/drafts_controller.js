// @ts-check
/**
 * Decides when to request drafts, and receives them:
 *
 *   key ── rows that agree are shortened at once; the others stay, dimmed
 *      └── the running request is cancelled, and a new one lists the rows that stay and requests the others
 */

import { hasEnoughLeft } from "./drafting.js";
import { Requests } from "./requests.js";
import { emit } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";
import { beginAnew } from "../shared/transport.js";

/** @typedef {import("./rows.js").Row} Row */
/** @typedef {import("./requests.js").Request} Request */

const REFRESH_AFTER = 250; // ms without a key until freed rows are filled, if not every key sends a request
const MOVED_AFTER = 120; // ms after the caret has moved until drafts are requested at its new position
const GROW_AFTER = 500; // ms without a key until all drafts grow to their full length
const SETTINGS_EVERY = 16; // least ms between two requests while a slider moves

export class DraftsController {
  /**
   * @param {HTMLElement} root
   * @param {{field: import("./text_field.js").TextField, rows: import("./rows.js").Rows,
   *          view: import("./drafts_view.js").DraftsView, revisiting: import("./revisiting.js").Revisiting,
   *          notices: import("./notices.js").Notices, connection: import("./connection.js").Connection}} parts
   * @param {Record<string, number | boolean | string>} settings the settings below the text, as in requests
   */
  constructor(root, { field, rows, view, revisiting, notices, connection }, settings) {
    this.root = root;
    this.field = field;
    this.rows = rows;
    this.view = view;
    this.revisiting = revisiting;
    this.notices = notices;
    this.connection = connection;
    this.settings = settings;
    /** The settings of the sampling panel. @type {{sampling?: object}} */
    this.sampling = {};
    this.timers = new Timers();
    /** Whether the drafts must grow as soon as the running request has ended. */
    this.growWaits = false;
    /** The drafts that the latest request included, see `requestDrafts`; the request for their full length does too. */
    this.included = { all: false, wanted: false };
    this.dismissed = false;
    /** Whether the writer has paused drafting. */
    this.paused = false;
    /**
     * The server's mark of the newest answer: it differs after text was removed from a personal store.
     * @type {string | undefined}
     */
    this.removed = undefined;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    /** When drafts were last requested for changed settings. */
    this.settingsSentAt = -1e9;
    /** Whether settings have changed since the running request was sent. */
    this.settingsWait = false;
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
    field.textarea.addEventListener("input", () => this.counters.keystrokes++);
    this.requests = new Requests({
      drafts: (request, line) => this.receive(request, line),
      figures: (line) => connection.showFigures(line),
      problem: (problem) => {
        this.settingsWait = false;
        notices.notice("server", problem);
        this.settle();
      },
      lost: () => {
        this.settingsWait = false;
        connection.lost();
      },
      ended: (request) => {
        if (this.settingsWait) this.settingsChanged();
        if (request.done) view.announceLater();
        if (this.growWaits) this.grow();
      },
    });
  }

  /** The running request. */
  get request() {
    return this.requests.running;
  }

  /** The number of rows. */
  get k() {
    return Number(this.settings.k ?? 3);
  }

  /** Whether drafts are shown or requested. */
  get busy() {
    return this.rows.all.length > 0 || this.request !== null;
  }

  /** The text before the caret; null if no drafts belong there. */
  before() {
    return this.paused ? null : this.field.before();
  }

  // ---------------------------------------------------------------- following the text and the caret

  /**
   * The text has changed: shorten the rows that agree, and request the others.
   * @param {number | null} pressed when the key was pressed that has changed it
   */
  textChanged(pressed) {
    this.dismissed = false;
    this.revisiting.end();
    this.timers.stop("moved", "refresh", "grow");
    this.growWaits = false;

    const before = this.before();
    if (before === null) {
      this.clear();
      return;
    }
    this.rows.resize(this.k);
    this.rows.follow(before);
    const known = this.requests.recall(before, this.field.after());
    if (known) {
      this.abort();
      this.rows.receive(before, before, { drafts: known, settled: true, growing: false });
    }
    this.view.draw();
    if (this.settings.refill) this.timers.later("grow", GROW_AFTER, () => this.grow());
    if (this.rows.open && pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
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
    const takingWord = this.field.inserting === "word";
    const streaming = this.request !== null && before.startsWith(this.request.before) && this.rows.open;
    const enough = this.rows.all.some(({ live, rest }) => live && hasEnoughLeft(rest));
    if (!this.rows.open || !(streaming || takingWord || enough)) {
      this.requestDrafts({ pressed, keep: true });
      return;
    }
    if (!streaming) this.abort();
    this.along();
    if (this.rows.all.some(({ draft, live }) => draft && !live) && !takingWord) {
      this.timers.later("refresh", REFRESH_AFTER, () => this.requestDrafts({ keep: true }));
    }
  }

  /** The drafts shown are valid for the new position, without a request. */
  along() {
    this.counters.avoided++;
    emit(this.root, "pd-along");
  }

  /** The caret or the selection has moved, and the text is unchanged. */
  caretMoved() {
    if (this.revisiting.here()) return;
    this.revisiting.end();
    this.field.readCaret();
    this.timers.stop("moved", "grow");
    const before = this.before();
    if (before === null || !this.field.isWritingHere()) {
      this.clear();
      return;
    }
    if (this.dismissed) return;
    this.abort();
    this.rows.resize(this.k);
    this.rows.follow(before);
    this.view.draw();
    this.timers.later("moved", MOVED_AFTER, () => this.requestDrafts({ keep: true }));
  }

  /**
   * Show another text, without a step of undo: a document is opened.
   * @param {string} text
   * @param {number} caret
   * @param {number[][]} privateRanges the ranges of it that were typed in incognito
   */
  openText(text, caret, privateRanges) {
    this.clear();
    const { privacy } = this.field;
    if (privacy.isOn() || privacy.ranges.length) this.forgetText();
    this.field.open(text, caret, privateRanges);
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
    this.rows.resize(this.k);
    this.view.offerImprobable(null);
    const { refill } = this.settings;
    const settings = { ...this.settings, ...this.sampling, ...(all ? { min_confidence: 0 } : {}) };
    const kept = refill && (keep || grow) ? { kept: this.rows.kept(), removed: this.removed } : {};
    const freed = this.rows.all.filter(({ live }) => !live).length;
    const after = this.field.after();
    const extra = { ...kept, ...(grow ? { grow } : {}), ...(after ? { after } : {}), ...(after && wanted ? { all: true } : {}) };
    this.requests.send(before, settings, extra, {
      pressed, forSettings, all, freed, k: this.k, keeps: keep || grow,
    });
  }

  /** Request drafts on the writer's command, also where none appear automatically, and improbable ones. */
  requestHere() {
    this.field.readCaret();
    this.timers.stop("moved"); // its request would replace this one, and keep what it has shown so far
    this.dismissed = false;
    this.requestDrafts({ wanted: true, all: this.view.offersImprobable });
    this.view.draw();
  }

  /** After half a second without a key: request the full length of every draft. */
  grow() {
    this.growWaits = this.request !== null;
    if (!this.growWaits && this.rows.open) this.requestDrafts({ grow: true, ...this.included });
  }

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

  abort() {
    this.requests.abort();
  }

  /** Clear the cache of answers, because stores or settings have changed. */
  forgetAnswers() {
    this.requests.remembered.clear();
  }

  // ---------------------------------------------------------------- responses

  /**
   * Show the drafts of one line of the answer.
   * @param {Request} request
   * @param {{done: boolean, settled: boolean, hidden: number, drafts: import("./drafting.js").Draft[],
   *          removed?: string, speculation?: object}} line
   */
  receive(request, line) {
    if (this.removed !== undefined && line.removed !== this.removed) this.dropDrafts();
    this.removed = line.removed;
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
    this.rows.receive(request.before, before, { drafts: line.drafts, settled, growing });
    this.view.draw();
    const hidden = line.done && !this.rows.open && !request.all && line.hidden > 0;
    this.view.offerImprobable(hidden ? Number(this.settings.min_confidence) : null);
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
    if (!request.answered && request.freed === request.k && this.rows.open) firstMs.push(elapsed);
    if (!request.filled && (settled || this.rows.all.every(({ live }) => live))) {
      request.filled = true;
      if (request.freed < request.k) fillMs.push(elapsed);
    }
    if (done) doneMs.push(elapsed);
  }

  /** Remove the freed rows, because no answer will fill them. */
  settle() {
    this.rows.dropFreed();
    if (this.rows.open) this.view.draw();
    else this.close();
  }

  // ---------------------------------------------------------------- showing and removing drafts

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
    this.rows.clear();
    this.view.offerImprobable(null);
    this.view.draw();
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

  /** Drop the drafts that this tab holds, shown or not. */
  dropDrafts() {
    this.forgetAnswers();
    this.revisiting.forget();
    this.rows.clear();
    this.rows.resize(this.k);
    this.view.lastGhost = null;
    this.view.announced = "";
    emit(this.root, "pd-dropped");
  }

  /** Forget everything that was drafted so far, and what it was drafted from, here and in the server. */
  forgetText() {
    this.abort();
    this.dropDrafts();
    this.answered = null;
    beginAnew();
  }

  /**
   * Remove all drafts and request new ones, because text was removed from a personal store and they may repeat it.
   * @param {() => void} drop what is dropped with them
   */
  forgetDrafts(drop = () => this.dropDrafts()) {
    const wanted = this.rows.open || this.request !== null;
    this.clear();
    drop();
    if (wanted) this.requestDrafts({});
  }

  /** The same after incognito was switched: the server forgets the text of this tab, too. */
  forgetTab() {
    this.forgetDrafts(() => this.forgetText());
  }

  dismiss() {
    const { textarea } = this.field;
    if (this.revisiting.here()) textarea.setSelectionRange(textarea.selectionEnd, textarea.selectionEnd);
    this.clear();
    this.timers.stop("moved");
    this.dismissed = true;
    this.notices.announce("Drafts dismissed.");
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
    this.field.textarea.setSelectionRange(start, end);
    this.field.readCaret();
    this.dismissed = false;
    this.rows.all = rows.map((row) => ({ ...row }));
    this.field.engage(true);
    this.view.draw();
  }
}
