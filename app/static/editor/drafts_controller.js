// @ts-check
/**
 * Decides when to request drafts, and receives them:
 *
 *   key ── rows that agree are shortened at once; the others are hidden
 *      └── the running request is cancelled, and a new one lists the rows that stay and requests the others
 *
 * While only drafts that save time are displayed (showing.js):
 *
 *   key ── rows that agree are shortened at once; the others disappear
 *      └── all drafts are requested; when they are complete, the rows that save time take the places of the others;
 *          a running request is cancelled only if its drafts disagree: otherwise the next request follows its end
 *   pause ── all drafts are displayed, with their full length, until the next key
 */

import { hasEnoughLeft, isNew, mayAgree, restOf } from "./drafting.js";
import { Others } from "./others.js";
import { Outcomes } from "./outcomes.js";
import { Requests } from "./requests.js";
import { Slow } from "./slow.js";
import { emit } from "../shared/dom.js";
import { ANDROID } from "../shared/platform.js";
import { Timers } from "../shared/timers.js";
import { beginAnew } from "../shared/transport.js";

/** @typedef {import("./rows.js").Row} Row */
/** @typedef {import("./requests.js").Request} Request */

const REFRESH_AFTER = 250; // ms without a key until freed rows are filled, if not every key sends a request
const MOVED_AFTER = 120; // ms after the caret has moved until drafts are requested at its new position
const GROW_AFTER = 500; // ms without a key until all drafts grow to their full length
const MOST_LATE = 8; // characters typed after a request whose drafts are still displayed
const SETTINGS_EVERY = 16; // least ms between two requests while a slider moves

export class DraftsController {
  /**
   * @param {HTMLElement} root
   * @param {{field: import("./text_field.js").TextField, rows: import("./rows.js").Rows,
   *          view: import("./drafts_view.js").DraftsView, revisiting: import("./revisiting.js").Revisiting,
   *          notices: import("./notices.js").Notices, connection: import("./connection.js").Connection,
   *          showing: import("./showing.js").Showing}} parts
   * @param {import("../panel/setting.js").Setting} setting
   */
  constructor(root, { field, rows, view, revisiting, notices, connection, showing }, setting) {
    this.root = root;
    this.showing = showing;
    this.pace = showing.pace;
    this.others = new Others();
    this.outcomes = new Outcomes((chance, right) => this.pace.judge(chance, right));
    this.field = field;
    this.rows = rows;
    this.view = view;
    this.revisiting = revisiting;
    this.notices = notices;
    this.connection = connection;
    this.setting = setting;
    /** What the document decides in every request. @type {() => {base_stores?: string[], background?: string, never?: string[]}} */
    this.documentFields = () => ({});
    this.timers = new Timers();
    /** Whether the drafts must grow as soon as the running request has ended. */
    this.growWaits = false;
    /** The drafts of the rows when looks were last counted. @type {import("./drafting.js").PlacedDraft[]} */
    this.appeared = [];
    this.slow = new Slow(root, () => view.layout.placeNotes());
    /** The drafts that the latest request included, see `requestDrafts`; the request for their full length does too. */
    this.included = { wanted: false };
    this.dismissed = false;
    /** Whether the writer has typed nothing for so long that all drafts are displayed, also those that save no time. */
    this.pausing = false;
    /**
     * The server's mark of the newest answer: it differs after text was removed from a personal store.
     * @type {string | undefined}
     */
    this.removed = undefined;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    /** Whether answers say how drafts were made. */
    this.explains = false;
    /** When drafts were last requested for changed settings. */
    this.settingsSentAt = -1e9;
    /** Whether settings have changed since the running request was sent. */
    this.settingsWait = false;
    /** For benchmarks; times in ms. */
    this.counters = {
      keystrokes: 0,
      requests: 0,
      avoided: 0,
      /** Rows that had to be read: displayed, and not as far before. */
      newRows: 0,
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
    for (const [name, by] of /** @type {["others" | "earlier", 1 | -1][]} */ ([["others", 1], ["earlier", -1]])) {
      root.querySelector(`[data-do=${name}]`)?.addEventListener("click", () => {
        this.showOthers(by);
        field.textarea.focus();
      });
    }
    this.requests = new Requests({
      drafts: (request, line) => this.receive(request, line),
      figures: (line, { before }) => {
        connection.showFigures(line);
        emit(root, "pd-stats", { ...line, before });
      },
      problem: (problem) => {
        this.settingsWait = false;
        this.slow.ends();
        if (problem.setting) emit(root, "pd-refused", problem);
        else notices.notice("server", problem);
        this.settle();
      },
      lost: () => {
        this.settingsWait = false;
        this.slow.ends();
        connection.lost();
      },
      ended: (request) => {
        this.slow.ends();
        if (this.settingsWait) this.settingsChanged();
        if (request.done && request.wanted) view.announceLater();
        if (request.next) this.requestDrafts(request.next);
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
    return Number(this.setting.options.k);
  }

  /** Whether drafts are shown or requested. */
  get busy() {
    return this.rows.all.length > 0 || this.request !== null;
  }

  /** The text before the caret; null if no drafts belong there. */
  before() {
    return this.field.before();
  }

  /** Whether only the rows that save time are displayed. */
  get decides() {
    return this.showing.when === "time" && !this.pausing && !this.root.hasAttribute("data-comparing");
  }

  /** Whether every key requests drafts. */
  get requestsAtKeys() {
    return this.showing.when !== "demand";
  }

  /** Whether drafts are computed, and displayed only after a pause. */
  get waits() {
    return this.showing.when === "pause" && !this.pausing;
  }

  // ---------------------------------------------------------------- following the text and the caret

  /**
   * The text has changed: shorten the rows that agree, and request the others.
   * @param {number | null} pressed when the key was pressed that has changed it
   */
  textChanged(pressed) {
    this.dismissed = this.pausing = this.view.asked = false;
    this.revisiting.end();
    this.timers.stop("moved", "refresh", "grow", "pause", "read");
    this.growWaits = false;

    const before = this.before();
    if (before === null) {
      this.clear();
      return;
    }
    this.outcomes.follow(before);
    this.rows.resize(this.k);
    this.rows.follow(before);
    if (this.showing.when !== "always") {
      this.rows.dropFreed();
      if (this.showing.when !== "demand") this.timers.later("pause", this.pace.pause, () => this.paused());
    }
    const known = this.requestsAtKeys ? this.requests.recall(before, this.field.after()) : undefined;
    if (known) {
      this.abort();
      if (!this.waits) this.place(before, before, known, { settled: true });
    }
    this.draw();
    if (this.setting.options.refill && this.showing.when === "always") this.timers.later("grow", GROW_AFTER, () => this.grow());
    if (this.rows.open && pressed !== null) this.counters.alongMs.push(performance.now() - pressed);
    if (!this.requestsAtKeys) {
      this.abort();
      if (!this.rows.open) this.close();
    } else if (known) this.along();
    else if (this.decides && this.isUseful(before)) /** @type {Request} */ (this.request).next = { pressed };
    else if (this.decides || this.waits) this.requestDrafts({ pressed });
    else if (this.setting.options.refill) this.requestDrafts({ pressed, keep: true });
    else this.requestIfNoneAgrees(before, pressed);
  }

  /**
   * Whether the running request may still show rows that save time although keys came after it. On a machine where a
   * decision takes longer than the next key, a typist would see none if every key replaced the request.
   * @param {string} before
   */
  isUseful(before) {
    const { request } = this;
    if (!request?.decides || request.done || !before.startsWith(request.before)) return false;
    const typed = before.slice(request.before.length);
    return typed.length <= MOST_LATE && (!request.answered || mayAgree(request.drafts, typed));
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
    this.view.asked = false;
    this.field.readCaret();
    this.timers.stop("moved", "grow");
    const before = this.before();
    if (before === null || !this.field.isWritingHere()) {
      this.clear();
      return;
    }
    if (this.dismissed) {
      emit(this.root, "pd-cleared");
      return;
    }
    this.abort();
    this.rows.resize(this.k);
    this.rows.follow(before);
    this.draw();
    if (this.requestsAtKeys) this.timers.later("moved", MOVED_AFTER, () => this.requestDrafts({ keep: true }));
    else if (!this.rows.open) this.close();
  }

  /**
   * Show another text, without a step of undo: a document is opened.
   * @param {string} text
   * @param {number} caret
   * @param {number[][]} privateRanges the ranges of it that were typed in incognito
   */
  openText(text, caret, privateRanges) {
    this.outcomes.forget();
    this.clear();
    this.forgetAnswers(); // the document may use other stores
    const { privacy } = this.field;
    if (privacy.isOn() || privacy.ranges.length) this.forgetText();
    this.field.open(text, caret, privateRanges);
  }

  // ---------------------------------------------------------------- requests

  /**
   * Request drafts at the caret. `keep`: rows that agree stay, and only the others are requested; `grow`: rows stay, and
   * their full length is requested; `wanted`: also drafts that do not fit the text after the caret.
   * Without `wanted` and `grow`, none are requested where the setting *Show drafts* does not show them by itself.
   * @param {{pressed?: number | null, forSettings?: boolean, keep?: boolean, grow?: boolean, wanted?: boolean}} how
   */
  requestDrafts({ pressed = null, forSettings = false, keep = false, grow = false, wanted = false }) {
    const before = this.before();
    if (before === null || this.dismissed) return;
    if (!this.requestsAtKeys && !wanted && !grow && !this.rows.open) return;
    if (wanted) this.pausing = true; // the writer wants to see drafts, also those that save no time
    const { decides } = this;
    this.settingsWait = false;
    this.growWaits = false;
    this.included = { wanted };
    this.counters.requests++;
    this.rows.resize(this.k);
    const { refill } = this.setting.options;
    const stay = refill && (keep || grow) && !decides;
    const kept = stay ? { kept: this.rows.kept(), removed: this.removed } : {};
    const show = { ...this.pace.costs, offset: this.pace.offset, only: decides, shown: this.rows.shown };
    const freed = this.rows.all.filter(({ live }) => !live).length;
    const after = this.field.after();
    const extra = {
      show, ...this.documentFields(), ...this.others.requestFields(before), ...kept, ...(grow ? { grow } : {}), ...(after ? { after } : {}), ...(after && wanted ? { all: true } : {}),
      ...(wanted ? {} : { unasked: true }), merge_alike: true, ...(this.explains ? { explain: true } : {}),
      ...(ANDROID ? {} : { corrects: true }), // its keyboards correct slips themselves
    };
    const settings = this.others.seeded(before, this.setting.request());
    this.requests.send(before, settings, extra, { pressed, forSettings, wanted, freed, decides, k: this.k });
    if (!this.waits) this.slow.waits();
  }

  /**
   * Compute the next word for the charts, where the writer sees no drafts of it.
   * @param {string} part of a draft, after which it stands; "" for the caret
   */
  look(part) {
    const caret = this.before();
    if (caret === null) return;
    const before = caret + part;
    const settings = { ...this.setting.request(), k: 1, length: 1 };
    const how = { pressed: null, forSettings: false, wanted: false, freed: 0, decides: false, k: 1, unseen: true };
    this.requests.send(before, settings, this.documentFields(), how);
  }

  /** Let answers say how drafts were made, from now on. @param {boolean} on */
  explain(on) {
    if (on === this.explains) return;
    this.explains = on;
    if (on) this.settingsChanged();
  }

  /**
   * Start a draft with a text that the writer chose: in a free row, or in the lowest one that was not chosen so. It stays
   * until the next key.
   * @param {string} chosen a token, which may begin with letters that are typed already, after a part of a draft
   */
  startWith(chosen) {
    const before = this.before();
    const text = before === null ? "" : withoutTyped(before, chosen);
    if (before === null || !text) return;
    this.dismissed = false;
    this.rows.resize(this.k);
    this.rows.begin(before, text);
    this.draw();
    this.requestDrafts({ wanted: true, keep: true });
  }

  /** Request drafts on the writer's command, also where none appear automatically. */
  requestHere() {
    this.field.readCaret();
    this.view.asked = true;
    this.timers.stop("moved"); // its request would replace this one, and keep what it has shown so far
    this.dismissed = false;
    this.requestDrafts({ wanted: true });
    this.draw();
  }

  /**
   * Show drafts that begin differently from all that were shown for this text, or with `by` -1 the ones before.
   * @param {1 | -1} by
   * @returns {boolean} whether there is a place for drafts
   */
  showOthers(by) {
    this.field.readCaret();
    const before = this.before();
    if (before === null) return false;
    if (!this.others.knows(before)) {
      if (by > 0) this.requestHere();
      return true;
    }
    this.timers.stop("moved", "refresh", "grow", "pause");
    this.growWaits = this.dismissed = false;
    this.pausing = this.view.asked = true;
    const rows = by > 0 ? this.others.next() : this.others.back();
    if (rows) {
      this.abort();
      this.rows.all = rows.map((row) => ({ ...row }));
      this.draw();
    } else if (by > 0) {
      this.rows.clear();
      this.requestDrafts({ wanted: true });
      this.draw();
    }
    return true;
  }

  /** The writer has paused: display all drafts with their full length. */
  paused() {
    const before = this.before();
    if (this.dismissed || before === null) return;
    this.pausing = true;
    const known = this.requests.recall(before, this.field.after());
    if (known && this.showing.when === "pause") {
      this.place(before, before, known, { settled: true });
      this.draw();
    }
    this.requestDrafts({ grow: true, ...this.included });
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
      if (this.showing.when !== "demand") this.timers.later("pause", this.pace.pause, () => this.paused());
    });
  }

  abort() {
    this.slow.ends();
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
   * @param {import("./requests.js").Answer & {done: boolean, settled: boolean, hidden: number, removed?: string,
   *          speculation?: object, foreign?: boolean, explained?: object}} line
   */
  receive(request, line) {
    if (this.removed !== undefined && line.removed !== this.removed) this.dropDrafts();
    this.removed = line.removed;
    this.slow.ends();
    this.notices.notice("server", null);
    this.connection.found();
    if (line.foreign) this.notices.foreign();
    emit(this.root, "pd-figures", line.speculation ?? null);
    if (!request.answered) {
      this.answered = request;
      emit(this.root, "pd-drafts");
    }
    if (this.settingsWait) this.settingsChanged();
    if (request.unseen) return;

    const before = this.before();
    if (before === null || this.waits) return;
    if (request.next && !mayAgree(line.drafts, before.slice(request.before.length))) {
      this.requestDrafts(request.next);
      return;
    }
    const { settled } = line;
    const shortens = request.forSettings && line.done;
    if (line.done || !request.decides) this.place(request.before, before, line, { settled, shortens });
    this.draw();
    if (line.done) this.countLooks(before);
    if (line.done && this.others.at && !this.rows.open && before === this.others.before) this.nothingElse();
    if (line.explained) emit(this.root, "pd-made", line);
    this.recordTimes(request, line.done, settled);
    if (settled) emit(this.root, "pd-settled", line.drafts.length);
  }

  /**
   * Put an answer's drafts into the rows: only those that save time, if the others are not displayed.
   * @param {string} anchor the text before the caret in the request
   * @param {string} before
   * @param {import("./requests.js").Answer} answer
   * @param {{settled: boolean, shortens?: boolean}} how see `Rows.receive`
   */
  place(anchor, before, { drafts, pays, ghost }, { settled, shortens = false }) {
    if (this.decides && pays) {
      // After further keys, less of each row is left. Its chance has risen with each; at least the old one is left.
      const typed = (before.length - anchor.length) * this.pace.costs.key_ms;
      const paying = pays.flatMap(({ id, text, chance, saved_ms }) => {
        if (typed && saved_ms <= chance * typed) return [];
        const draft = drafts.find((candidate) => candidate.id === id);
        // A draft that appears unasked may end before it saves most time: at the next punctuation.
        const shown = draft?.text.startsWith(text) ? text : draft?.text ?? "";
        return draft ? [{ ...draft, text: shown, chance, best: pays[0].id === id }] : [];
      });
      this.rows.decide(anchor, before, paying);
      if (typed) return; // the chance of a row that already came true in part says too little
      for (const { draft } of this.rows.all) if (draft && !draft.replace) this.outcomes.displayed(draft);
      return;
    }
    this.rows.receive(anchor, before, { drafts, settled, shortens });
    // After a pause the row that was shown because it saves time stays the ghost.
    if (ghost !== undefined) this.rows.prefer(this.showing.when === "time" && pays?.length ? pays[0].id : ghost);
  }

  /** No other drafts are likely: say so, and show the earlier ones again. */
  nothingElse() {
    this.notices.toast("Nothing else is likely here. These are the drafts before.");
    this.notices.announce("Nothing else is likely here.");
    this.showOthers(-1);
  }

  draw() {
    this.view.draw({ decides: this.decides });
    const before = this.before();
    if (before !== null && this.rows.open) this.others.note(before, this.rows.all);
    /** @type {HTMLElement} */ (this.root.querySelector("[data-do=earlier]")).hidden = !this.others.at;
    emit(this.root, "pd-rows");
  }

  /**
   * Count the looks at rows that have appeared or grown, and later the rows that were probably read.
   * @param {string} before
   */
  countLooks(before) {
    const seen = this.appeared.flatMap((draft) => restOf(draft, before) || []);
    const looks = this.rows.shown.filter((rest) => isNew(rest, seen)).length;
    const drafts = this.rows.all.flatMap(({ draft, live }) => (draft && live ? [draft] : []));
    const fresh = drafts.filter(({ lineage }) => !this.appeared.some((other) => other.lineage === lineage)).length;
    this.appeared = drafts;
    this.pace.looked(looks);
    this.counters.newRows += looks;
    this.timers.later("read", this.pace.readAfter, () => this.pace.read(fresh));
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
    if (this.rows.open) this.draw();
    else this.close();
  }

  // ---------------------------------------------------------------- showing and removing drafts

  /** Cancel the running request and remove all drafts. */
  clear() {
    this.abort();
    this.timers.stop("refresh", "grow", "pause", "read");
    this.growWaits = false;
    this.close();
    emit(this.root, "pd-cleared");
  }

  /** Remove all drafts. */
  close() {
    this.rows.clear();
    this.appeared = [];
    this.view.seen.forget();
    this.draw();
  }

  /** Another choice of when to show drafts is in force. */
  showingChanged() {
    this.clear();
    this.requestDrafts({});
  }

  /**
   * Stop or resume drafting; on demand there are drafts in any case.
   * @param {boolean} on
   */
  pause(on) {
    this.showing.paused = on;
    this.showingChanged();
  }

  /** Drop the drafts that this tab holds, shown or not. */
  dropDrafts() {
    this.forgetAnswers();
    this.revisiting.forget();
    this.rows.clear();
    this.rows.resize(this.k);
    this.view.seen.forget();
    this.view.unsay();
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
    if (wanted) this.requestDrafts({ wanted: !this.requestsAtKeys || this.waits });
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
    this.view.asked = true;
    this.rows.all = rows.map((row) => ({ ...row }));
    this.field.engage(true);
    this.pausing = true;
    this.view.draw({ decides: this.decides, since: -Infinity }); // the writer has read them when they stood here
  }
}

/**
 * A text without its beginning that is typed already.
 * @param {string} before
 * @param {string} text
 */
function withoutTyped(before, text) {
  let typed = Math.min(before.length, text.length - 1);
  while (typed > 0 && !before.endsWith(text.slice(0, typed))) typed--;
  return text.slice(typed);
}
