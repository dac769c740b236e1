// @ts-check
/**
 * Saves this tab's document while the writer types:
 *
 *   typing ─► half a second later the document is saved to its store
 *   the page closes before that ─► the unsaved text goes to localStorage (memory.js), and the next page saves it
 *   incognito ─► the text is stored for this tab only, until incognito is switched off
 *
 * `root` receives the event "pd-document" when the document was saved, because its title may be new.
 */

import { newDocument } from "./document.js";
import { reasonOf } from "./stored_documents.js";
import { emit, on } from "../shared/dom.js";
import { forgetUnsaved, keepLastDocument, keepPlace, keepUnsaved, recallUnsaved } from "../shared/memory.js";
import { Timers } from "../shared/timers.js";
import { ConnectionLost } from "../shared/transport.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */

/** @typedef {import("../editor/start.js").Editor} Editor */

const SAVE_AFTER = 500; // ms without a change until the text is saved
const SAVE_AT_LEAST = 3000; // ms from a change until it is saved even if typing continues
const LARGE = 500_000; // characters above which both times are four times as long
const AGAIN_AFTER = 5000; // ms until a failed save is tried again
const MOST_LEFT = 2_000_000; // characters that fit into localStorage with certainty
const WORTH_KEEPING = 20; // least characters of a text of which the bin gets a copy when it is emptied
const MUCH = 200; // least characters of a text of which the bin gets a copy when more than half is deleted at once

export class Saving {
  /**
   * @param {HTMLElement} root
   * @param {Editor} editor
   * @param {import("./stored_documents.js").StoredDocuments} stored
   * @param {import("./document_lock.js").TabLock} lock
   */
  constructor(root, editor, stored, lock) {
    this.root = root;
    this.editor = editor;
    this.stored = stored;
    this.lock = lock;
    this.timers = new Timers();
    /** @type {Document} `text` is the text that was saved last, and `privateRanges` are its ranges */
    this.current = newDocument();
    /** Whether the document has unsaved changes beside its text. */
    this.amended = false;
    this.changedAt = 0;
    /** Why the last save failed. */
    this.failure = "";
  }

  /** Save from now on. */
  start() {
    on(this.root, "pd-text", (how) => this.textChanged(how));
    addEventListener("pagehide", () => this.leave());
    addEventListener("visibilitychange", () => document.hidden && this.saveNow());
    // preventDefault() makes the browser show its "Leave site?" dialog.
    addEventListener("beforeunload", (event) => this.mayBeLost() && event.preventDefault());
    this.root.querySelector(".pd-incognito")?.addEventListener("click", () => this.saveNow());
    this.textChanged({ opened: false });
  }

  /** Another document is shown. @param {Document} document */
  begin(document) {
    this.current = { ...document };
    this.amended = this.stored.refused.has(document.id);
    if (this.amended) this.textChanged({ opened: false });
    else this.editor.notices.notice("storage", null); // it was about another document
  }

  /** @param {{opened: boolean}} how */
  textChanged({ opened }) {
    if (opened || !this.dirty()) return;
    if (this.lock.waiting) this.lock.showElsewhere(null); // the writer has begun another text
    const slow = this.editor.textarea.textLength > LARGE ? 4 : 1;
    this.changedAt ||= performance.now();
    const latest = this.changedAt + SAVE_AT_LEAST * slow - performance.now();
    this.timers.later("save", Math.max(0, Math.min(SAVE_AFTER * slow, latest)), () => this.saveNow());
  }

  /** Whether the document has unsaved changes. */
  dirty() {
    return this.amended || this.editor.textarea.value !== this.current.text;
  }

  saveNow() {
    return this.stored.inTurn(() => this.save());
  }

  /** The current document with the editor's present text. @returns {Document} */
  written() {
    const { textarea, privacy } = this.editor;
    const { value: text, selectionStart, selectionEnd } = textarea;
    return {
      ...this.current, text, caret: [selectionStart, selectionEnd], privateRanges: privacy.ranges, changed: Date.now(),
    };
  }

  async save() {
    this.timers.stop("save");
    this.changedAt = 0;
    const { amended } = this;
    try {
      if (!this.stored.store) await this.stored.open();
      const { on: incognito } = this.editor.incognito;
      if (!incognito) await this.publish();
      if (!this.dirty()) return;
      const before = this.current;
      const document = this.written();
      if (!document.text && !before.text && !document.title) return; // an empty page is not a document
      await this.lock.acquire(document.id);
      this.amended = false;
      if (incognito) {
        if (!keepUnsaved(document, true)) throw new Error("This text is too long to be kept for this tab alone.");
        this.current = { ...this.current, text: document.text, privateRanges: document.privateRanges };
      } else {
        if (isMuchLess(document.text, before.text)) await this.stored.binCopy(before);
        const entry = await this.stored.writeOrCopy(document);
        this.current = this.saved(entry, document.text);
        if (entry.id !== document.id) await this.lock.moveTo(entry.id);
        keepLastDocument(entry.id);
        this.stored.listChanged();
      }
      this.failure = "";
      this.editor.notices.notice("storage", null);
      this.keepPlace();
      emit(this.root, "pd-document");
    } catch (error) {
      this.amended ||= amended;
      this.reportFailure(error);
      this.timers.later("save", AGAIN_AFTER, () => this.saveNow());
    }
  }

  /**
   * The current document after it was saved, with the changes that the page has made meanwhile.
   * @param {Entry} entry
   * @param {string} text that was saved
   * @returns {Document}
   */
  saved(entry, text) {
    const { title, keys, stores, background, never } = this.current;
    return { ...entry, title: entry.id === this.current.id ? title : entry.title, keys, stores, background, never, text };
  }

  /** Store the documents that this tab wrote in incognito. */
  async publish() {
    for (const document of recallUnsaved(true)) {
      const entry = await this.stored.writeOrCopy(document);
      forgetUnsaved(document.id, true);
      if (document.id === this.current.id) this.current = this.saved(entry, document.text);
      this.stored.listChanged();
    }
  }

  /** The page is being closed: leave unsaved text for the next page. */
  leave() {
    this.keepPlace();
    if (this.stored.store && this.dirty() && this.written().text) keepUnsaved(this.written(), this.editor.incognito.on);
  }

  /**
   * Whether closing the page could lose text: it is for this tab only, or more is unsaved than the browser has room for.
   * If it has room, keep it.
   */
  mayBeLost() {
    const unsaved = this.dirty();
    const fits = !unsaved || (this.editor.textarea.textLength <= MOST_LEFT && keepUnsaved(this.written(), this.editor.incognito.on));
    return !fits || recallUnsaved(true).some(({ text }) => text);
  }

  keepPlace() {
    const { selectionStart, selectionEnd, scrollTop } = this.editor.textarea;
    keepPlace({ id: this.current.id, caret: [selectionStart, selectionEnd], scroll: scrollTop });
  }

  /** @param {unknown} error */
  reportFailure(error) {
    if (error instanceof ConnectionLost) return this.editor.connection.lost(); // its notice says that the text is safe
    this.failure = reasonOf(error);
    const full = error instanceof DOMException && error.name === "QuotaExceededError";
    const more = full ? "Delete other documents for good, or keep documents as files. Otherwise copy" : "Copy";
    this.editor.notices.notice("storage", {
      message: `Your text could not be saved. ${this.failure}`,
      fix: `${more} it, or save it as a file, before you close the page.`,
    });
  }
}

/** @param {string} text @param {string} before */
function isMuchLess(text, before) {
  return text ? before.length > MUCH && text.length < before.length / 2 : before.length >= WORTH_KEEPING;
}
