// @ts-check
/**
 * Decides when to request drafts, and receives them:
 *
 *   key ── rows that agree are shortened at once; the others are hidden
 *      └── the running request is cancelled, and a new one lists the rows that stay and requests the others
 *          └── each line of the answer fills rows
 *
 * While only drafts that save time are displayed (showing.js):
 *
 *   key ── rows that agree are shortened at once; the others disappear
 *      └── all drafts are requested; when they are complete, the rows that save time take the places of the others;
 *          a running request is cancelled only if its drafts disagree: otherwise the next request follows its end
 *   pause ── all drafts are displayed, with their full length, until the next key
 */

import { Answers } from "./answers.js";
import { nothingElse } from "./commands.js";
import { cropped, hasEnoughLeft, mayAgree } from "./drafting.js";
import { Looks, counters, recordTimes } from "./looks.js";
import { Others } from "./others.js";
import { Outcomes } from "./outcomes.js";
import { paying } from "./rows.js";
import { Slow } from "./slow.js";
import { emit, part } from "../shared/dom.js";
import { ANDROID } from "../shared/platform.js";
import { Timers } from "../shared/timers.js";
import { ConnectionLost, beginAnew, streamDrafts } from "../shared/transport.js";

/**
 * A request for drafts after `before`. `pressed`: when the key went down that caused it; `wanted`: whether the writer has
 * asked for drafts; `unseen`: whether they are not displayed; `decides`: whether only the rows that save time are
 * displayed, once they are complete; `freed`: how many rows it must fill, of `k`; `unasked`: whether its complete answer
 * is kept for this text and the text `after` it; `answered`, `drafts`, `done`: what has arrived; `next`: the request that
 * follows, because a key came after this one.
 * @typedef {{n: number, before: string, after: string, pressed: number | null, forSettings: boolean, wanted: boolean, unseen: boolean,
 *            unasked: boolean, decides: boolean, freed: number, k: number, answered: boolean, filled: boolean, done: boolean,
 *            drafts: import("./drafting.js").Draft[], next: {pressed: number | null} | null, controller: AbortController}} Request
 */

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
    this.looks = new Looks(rows, this.pace);
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
    /** The running request: a newer one cancels it. @type {Request | null} */
    this.request = null;
    /** The number of the newest request. */
    this.n = 0;
    /** The newest request that has been answered. @type {{n: number, before: string} | null} */
    this.answered = null;
    this.answers = new Answers();
    /** Whether answers say how drafts were made. */
    this.explains = false;
    /** When drafts were last requested for changed settings. */
    this.settingsSentAt = -1e9;
    /** Whether settings have changed since the running request was sent. */
    this.settingsWait = false;
    this.counters = counters();
    field.textarea.addEventListener("input", () => this.counters.keystrokes++);
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
    this.timers.stop("moved", "refresh", "grow", "pause");
    this.looks.stop();
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
    const known = this.requestsAtKeys ? this.answers.recall(before, this.field.after()) : undefined;
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
    const after = this.field.after();
    this.send(before, this.others.seeded(before, this.setting.request()), {
      ...this.documentFields(),
      ...this.others.requestFields(before),
      ...kept,
      show: { ...this.pace.costs, offset: this.pace.offset, only: decides, shown: this.rows.shown },
      merge_alike: true,
      ...(grow ? { grow } : {}),
      ...(after ? { after } : {}),
      ...(after && wanted ? { all: true } : {}),
      ...(wanted ? {} : { unasked: true }),
      ...(this.explains ? { explain: true } : {}),
      ...(ANDROID ? {} : { corrects: true }), // its keyboards correct slips themselves
    }, { pressed, forSettings, wanted, decides, unasked: !wanted, after, freed: this.rows.freed, k: this.k });
    if (!this.waits) this.slow.waits();
  }

  /**
   * Request drafts after `before` from the server.
   * @param {string} before
   * @param {object} settings
   * @param {object} fields the others of `DraftRequest` (app/service/requests.py)
   * @param {Partial<Request>} how
   */
  send(before, settings, fields, how) {
    this.request?.controller.abort();
    /** @type {Request} */
    const request = {
      pressed: null, forSettings: false, wanted: false, unseen: false, unasked: false, decides: false, after: "", freed: 0, k: 1,
      ...how, n: this.number(), before, filled: !how.freed, answered: false, done: false, drafts: [], next: null,
      controller: new AbortController(),
    };
    this.request = request;
    const body = { n: request.n, before: cropped(before), settings, ...fields };
    streamDrafts(body, (line) => this.receive(request, line), request.controller.signal).then((failed) => this.ended(request, failed));
  }

  /** The number of a request that is newer than all others of this tab. */
  number() {
    return ++this.n;
  }

  abort() {
    this.slow.ends();
    this.request?.controller.abort();
    this.request = null;
  }

  /** The writer has paused: display all drafts with their full length. */
  paused() {
    const before = this.before();
    if (this.dismissed || before === null) return;
    this.pausing = true;
    const known = this.answers.recall(before, this.field.after());
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

  /** Clear the cache of answers, because stores or settings have changed. */
  forgetAnswers() {
    this.answers.clear();
  }

  // ---------------------------------------------------------------- responses

  /**
   * Handle one line of the answer.
   * @param {Request} request
   * @param {any} line
   */
  receive(request, line) {
    if (request !== this.request || line.n !== request.n) return;
    if (line.type === "error") this.refused(line);
    else if (line.type === "stats") {
      this.connection.showFigures(line);
      emit(this.root, "pd-stats", { ...line, before: request.before });
    } else if (line.type === "drafts") {
      request.done = line.done;
      request.drafts = line.drafts;
      if (line.done && request.unasked) this.answers.keep(request, line);
      this.show(request, line);
      request.answered = true;
    }
  }

  /**
   * Show the drafts of a line.
   * @param {Request} request
   * @param {import("./answers.js").Answer & {done: boolean, settled: boolean, removed?: string, speculation?: object,
   *          foreign?: boolean, explained?: object}} line
   */
  show(request, line) {
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
    if (line.done) this.counters.newRows += this.looks.count(before);
    if (line.done && this.others.at && !this.rows.open && before === this.others.before) nothingElse(this);
    if (line.explained) emit(this.root, "pd-made", line);
    recordTimes(this.counters, request, this.rows, settled);
    if (settled) emit(this.root, "pd-settled", line.drafts.length);
  }

  /**
   * Put an answer's drafts into the rows: only those that save time, if the others are not displayed.
   * @param {string} anchor the text before the caret in the request
   * @param {string} before
   * @param {import("./answers.js").Answer} answer
   * @param {{settled: boolean, shortens?: boolean}} how see `Rows.receive`
   */
  place(anchor, before, answer, { settled, shortens = false }) {
    const { drafts, pays, ghost } = answer;
    if (this.decides && pays) {
      const typed = (before.length - anchor.length) * this.pace.costs.key_ms;
      this.rows.decide(anchor, before, paying(answer, typed));
      if (typed) return; // the chance of a row that already came true in part says too little
      for (const { draft } of this.rows.all) if (draft && !draft.replace) this.outcomes.displayed(draft);
      return;
    }
    this.rows.receive(anchor, before, { drafts, settled, shortens });
    // After a pause the row that was shown because it saves time stays the ghost.
    if (ghost !== undefined) this.rows.prefer(this.showing.when === "time" && pays?.length ? pays[0].id : ghost);
  }

  draw() {
    this.view.draw({ decides: this.decides });
    const before = this.before();
    if (before !== null && this.rows.open) this.others.note(before, this.rows.all);
    part(this.root, "[data-do=earlier]").hidden = !this.others.at;
    emit(this.root, "pd-rows");
  }

  /**
   * @param {Request} request
   * @param {import("../shared/transport.js").RequestFailed | null} failed why its answer is not complete
   */
  ended(request, failed) {
    if (request !== this.request) return;
    this.request = null;
    this.slow.ends();
    if (failed instanceof ConnectionLost) {
      this.settingsWait = false;
      this.connection.lost();
      return;
    }
    if (failed) {
      this.refused(failed);
      return;
    }
    if (this.settingsWait) this.settingsChanged();
    if (request.done && request.wanted) this.view.announceLater();
    if (request.next) this.requestDrafts(request.next);
    if (this.growWaits) this.grow();
  }

  /** @param {any} problem */
  refused(problem) {
    this.settingsWait = false;
    this.slow.ends();
    if (problem.setting) emit(this.root, "pd-refused", problem);
    else this.notices.notice("server", problem);
    this.settle();
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
    this.timers.stop("refresh", "grow", "pause");
    this.looks.stop();
    this.growWaits = false;
    this.close();
    emit(this.root, "pd-cleared");
  }

  /** Remove all drafts. */
  close() {
    this.rows.clear();
    this.looks.forget();
    this.view.seen.forget();
    this.draw();
  }

  /** Another choice of when to show drafts is in force. */
  showingChanged() {
    this.clear();
    this.requestDrafts({});
  }

  /** Stop or resume drafting; on demand there are drafts in any case. @param {boolean} on */
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
}
