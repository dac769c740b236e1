// @ts-check
/**
 * The document that this tab has open: opened, saved automatically, and never overwritten without notice.
 *
 *   typing ─► half a second later the document is saved to its store (browser_documents.js, file_documents.js)
 *   the page closes before that ─► the unsaved text goes to localStorage (memory.js), and the next page saves it
 *   a second tab opens the same document ─► the first tab has its lock (document_lock.js); the second offers a copy
 *   the stored text was changed elsewhere ─► this tab's text is saved as a copy
 *   incognito ─► the text is stored for this tab only, until incognito is switched off
 *
 * `root` receives the event "pd-document" when another document was opened or this one has a new title, "pd-documents"
 * when the list of documents has changed in any tab, and "pd-elsewhere" with a document that another tab has open.
 */

import { BrowserDocuments } from "./browser_documents.js";
import { Changed, newDocument, openingOf, titleOf } from "./document.js";
import { lockDocument, openDocuments } from "./document_lock.js";
import { emit } from "./dom.js";
import { FileDocuments, keepIn, whereKept } from "./file_documents.js";
import {
  UNSAVED, forgetOldTexts, forgetUnsaved, keepLastDocument, keepPlace, keepUnsaved, lastDocument, oldTexts, recallPlace,
  recallUnsaved,
} from "./memory.js";
import { Timers } from "./timers.js";
import { ConnectionLost } from "./transport.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */
/** @typedef {import("./document.js").Store} Store */

const SAVE_AFTER = 500; // ms without a change until the text is saved
const SAVE_AT_LEAST = 3000; // ms from a change until it is saved even if typing continues
const LARGE = 500_000; // characters above which both times are four times as long
const AGAIN_AFTER = 5000; // ms until a failed save is tried again
const OWN_WAIT = 2000; // ms to wait until the page before a reload releases its document's lock
const MOST_LEFT = 2_000_000; // characters that fit into localStorage with certainty
const WORTH_KEEPING = 20; // least characters of a text of which the bin gets a copy when it is emptied
const MUCH = 200; // least characters of a text of which the bin gets a copy when more than half is deleted at once

export class Documents {
  /**
   * @param {HTMLElement} root
   * @param {import("./editor.js").Editor} editor
   */
  constructor(root, editor) {
    this.root = root;
    this.editor = editor;
    this.timers = new Timers();
    /** @type {Store | null} */
    this.store = null;
    /** @type {Document} `text` is the text that was saved last, and `privateRanges` are its ranges */
    this.current = newDocument();
    this.renamed = false;
    this.changedAt = 0;
    /** Releases the current document's lock; null if this tab has no lock. @type {(() => void) | null} */
    this.release = null;
    /** Stops waiting for a document that another tab has open. @type {AbortController | null} */
    this.waiting = null;
    /** The last action passed to `inTurn`. @type {Promise<any>} */
    this.queue = Promise.resolve();
    this.channel = new BroadcastChannel("polydraft.documents");
  }

  // ---------------------------------------------------------------- the first document of a page

  /** Show the document of the link, of this tab, or the last one. Text typed meanwhile is appended to it. */
  async start() {
    try {
      await this.openStore();
      await this.openFirst();
    } catch (error) {
      this.reportFailure(error);
    }
    this.root.addEventListener("pd-text", (event) => this.textChanged(/** @type {CustomEvent} */ (event).detail));
    addEventListener("pagehide", () => this.leave());
    addEventListener("visibilitychange", () => document.hidden && this.saveNow());
    // preventDefault() makes the browser show its "Leave site?" dialog.
    addEventListener("beforeunload", (event) => this.mayBeLost() && event.preventDefault());
    this.root.querySelector(".pd-incognito")?.addEventListener("click", () => this.saveNow());
    this.channel.addEventListener("message", ({ data }) => {
      if (data === "moved") this.inTurn(() => this.followMove());
      emit(this.root, "pd-documents");
    });
    addEventListener("storage", async ({ key, newValue }) => {
      // A tab was closed and left unsaved text.
      if (!key?.startsWith(UNSAVED) || !newValue || !this.store) return;
      await this.saveLeftovers({ wait: true }).catch((error) => this.reportFailure(error));
      this.listChanged();
    });
    addEventListener("hashchange", () => {
      const id = linkedDocument();
      if (id) this.open(id).catch((error) => this.editor.notices.toast(error.message, { long: true }));
    });
    this.textChanged({ opened: false });
  }

  async openStore() {
    const { where } = await whereKept();
    this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (where === "files") await this.moveFromBrowser();
    await this.migrate();
    await this.saveLeftovers();
  }

  async openFirst() {
    const place = recallPlace();
    const linked = linkedDocument();
    const id = linked ?? place?.id ?? lastDocument();
    if (!id) return;
    const own = id === place?.id;
    const release = await lockDocument(id, own ? AbortSignal.timeout(OWN_WAIT) : null);
    const found = await this.find(id);
    if (!found || found.binned !== null) return release?.();
    if (!release) return this.waitFor(found);
    this.show(found, release, own ? place : null, this.editor.textarea.value);
  }

  /** Create documents from the texts of versions without documents, once. */
  async migrate() {
    const move = async () => {
      const [first, ...others] = oldTexts();
      if (first === undefined) return;
      for (const text of [...others, first]) {
        const caret = [text.length, text.length];
        const { id } = await this.opened().write(newDocument({ text, caret }), "");
        keepLastDocument(id);
        keepPlace({ id, caret, scroll: 0 }); // the last of them is shown
      }
      forgetOldTexts();
    };
    await (navigator.locks ? navigator.locks.request("polydraft.migrate", move) : move());
  }

  /** Save the unsaved texts that earlier pages left in localStorage. */
  async saveLeftovers({ wait = false } = {}) {
    for (const document of recallUnsaved(false)) {
      const own = document.id === recallPlace()?.id;
      const release = await lockDocument(document.id, own || wait ? AbortSignal.timeout(OWN_WAIT) : null);
      if (!release) continue; // the tab that has it open saves it
      await this.writeOrCopy(document);
      forgetUnsaved(document.id, false);
      release();
    }
  }

  /** Move documents that are still in the browser's database to files, if documents are kept as files. */
  async moveFromBrowser() {
    const databases = (await indexedDB.databases?.()) ?? [];
    if (!databases.some(({ name }) => name === "polydraft")) return;
    const browser = await BrowserDocuments.open();
    if ((await browser.list()).length) await moveAll(browser, this.opened());
    browser.database.close();
  }

  // ---------------------------------------------------------------- this tab's document

  get title() {
    const { title } = this.current;
    return titleOf({ title, opening: openingOf(this.editor.text) });
  }

  /**
   * @param {Document} document
   * @param {(() => void) | null} release
   * @param {{caret: number[], scroll: number} | null} place
   * @param {string} typed appended to the document's text
   */
  show(document, release, place = null, typed = "") {
    this.waiting?.abort();
    this.release?.();
    this.release = release;
    this.current = document;
    this.renamed = false;
    const { editor } = this;
    const text = document.text + typed;
    const [start, end] = typed ? [text.length, text.length] : place?.caret ?? document.caret;
    /** @type {number[][]} */
    const typedPrivately = editor.incognito ? [[document.text.length, text.length]] : [];
    editor.setText(text, start, [...document.privateRanges, ...typedPrivately]);
    if (end !== start) editor.textarea.setSelectionRange(start, end);
    // The browser scrolls to the caret by itself only if the text has the focus.
    if (place) scrollTo(editor.textarea, place.scroll);
    else scrollToCaret(editor.textarea);
    if (document.revision) keepLastDocument(document.id);
    this.keepPlace();
    this.showElsewhere(null);
    emit(this.root, "pd-document");
  }

  /** Open a document, or show that another tab has it open. @param {string} id */
  open(id) {
    return this.inTurn(async () => {
      if (id === this.current.id) return;
      const release = await lockDocument(id);
      const found = await this.find(id);
      if (!found) {
        release?.();
        throw new Error("This document is no longer there.");
      }
      if (!release) return this.waitFor(found);
      await this.replaceBy(found, release);
    });
  }

  /**
   * Save the current document, then show another.
   * @param {Document} document
   * @param {(() => void) | null} release
   */
  async replaceBy(document, release) {
    try {
      await this.putAside();
    } catch (error) {
      release?.();
      throw error;
    }
    this.show(document, release);
  }

  /** Show an empty page. The document is created when it is first saved. */
  create() {
    return this.inTurn(() => this.replaceBy(newDocument(), null));
  }

  /** Save the current document before another is shown. One without text and title is deleted. */
  async putAside() {
    for (let tries = 0; this.dirty() && tries < 3; tries++) await this.save(); // typing may continue meanwhile
    if (this.dirty() && this.editor.textarea.value) throw new Error("The text here could not be saved. It stays open.");
    const { id, revision, title } = this.current;
    if (!revision || title || this.editor.textarea.value) return;
    await this.opened().remove(id);
    this.current = newDocument();
    this.listChanged();
  }

  /**
   * Create a document with this text and show it.
   * @param {string} title
   * @param {string} text
   */
  createFrom(title, text) {
    return this.inTurn(() => this.showNew(newDocument({ title, text })));
  }

  /**
   * @param {string} id
   * @param {string} title empty: the first line is shown as title again
   */
  rename(id, title) {
    return this.inTurn(async () => {
      if (id === this.current.id) {
        this.current.title = title;
        this.renamed = true;
        return this.save();
      }
      await this.withLock(id, async () => {
        const found = await this.find(id);
        if (!found) throw new Error("This document is no longer there.");
        await this.writeOrCopy({ ...found, title });
      });
      this.listChanged();
    });
  }

  /**
   * Run an action on a document that is not shown, with its lock. Throws if a tab has the document open.
   * @param {string} id
   * @param {() => Promise<void>} action
   */
  async withLock(id, action) {
    const release = await lockDocument(id);
    if (!release) throw new Error("This document is open in another tab. Close it there first.");
    await action().finally(release);
  }

  /**
   * Another tab has this document open: open it here once that tab releases its lock.
   * @param {Document} document
   */
  waitFor(document) {
    this.waiting?.abort();
    const waiting = (this.waiting = new AbortController());
    this.showElsewhere(document);
    lockDocument(document.id, waiting.signal).then((release) => {
      if (!release) return;
      this.inTurn(async () => {
        const found = waiting.signal.aborted ? null : await this.find(document.id);
        if (!found) return release();
        await this.replaceBy(found, release);
      });
    });
  }

  /** @param {Document | null} document that another tab has open; null: stop waiting for it */
  showElsewhere(document) {
    if (!document) this.waiting?.abort();
    emit(this.root, "pd-elsewhere", document);
  }

  /** @param {string} id */
  openCopy(id) {
    return this.inTurn(async () => {
      const found = await this.find(id);
      if (!found) throw new Error("This document is no longer there.");
      await this.showNew(copyOf(found));
    });
  }

  /** @param {Document} document that is not stored yet */
  async showNew(document) {
    const entry = await this.keep(document);
    this.listChanged();
    await this.replaceBy({ ...document, ...entry }, await lockDocument(document.id));
  }

  // ---------------------------------------------------------------- saving

  /** @param {{opened: boolean}} how */
  textChanged({ opened }) {
    if (opened || !this.dirty()) return;
    if (this.waiting) this.showElsewhere(null); // the writer has begun another text
    const slow = this.editor.text.length > LARGE ? 4 : 1;
    this.changedAt ||= performance.now();
    const latest = this.changedAt + SAVE_AT_LEAST * slow - performance.now();
    this.timers.later("save", Math.max(0, Math.min(SAVE_AFTER * slow, latest)), () => this.saveNow());
  }

  /** Whether the document has unsaved changes. */
  dirty() {
    return this.renamed || this.editor.textarea.value !== this.current.text;
  }

  saveNow() {
    return this.inTurn(() => this.save());
  }

  /** The current document with the editor's present text. @returns {Document} */
  written() {
    const { value, selectionStart, selectionEnd } = this.editor.textarea;
    const { ranges } = this.editor.privacy;
    return { ...this.current, text: value, caret: [selectionStart, selectionEnd], privateRanges: ranges, changed: Date.now() };
  }

  async save() {
    this.timers.stop("save");
    this.changedAt = 0;
    const { renamed } = this;
    try {
      if (!this.store) await this.openStore();
      const { incognito } = this.editor;
      if (!incognito) await this.publish();
      if (!this.dirty()) return;
      const before = this.current;
      const document = this.written();
      if (!document.text && !before.text && !document.title) return; // an empty page is not a document
      this.release ??= await lockDocument(document.id);
      this.renamed = false;
      if (incognito) {
        if (!keepUnsaved(document, true)) throw new Error("This text is too long to be kept for this tab alone.");
        this.current = { ...this.current, text: document.text, privateRanges: document.privateRanges };
      } else {
        if (isMuchLess(document.text, before.text)) await this.binCopy(before);
        const entry = await this.writeOrCopy(document);
        this.current = this.saved(entry, document.text);
        if (entry.id !== document.id) {
          this.release?.();
          this.release = await lockDocument(entry.id);
        }
        forgetUnsaved(document.id, false);
        keepLastDocument(entry.id);
        this.listChanged();
      }
      this.editor.notices.notice("storage", null);
      this.keepPlace();
      emit(this.root, "pd-document");
    } catch (error) {
      this.renamed ||= renamed;
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
    const { title, keys } = this.current;
    return { ...entry, title: entry.id === this.current.id ? title : entry.title, keys, text };
  }

  /**
   * Store a document; if the stored text was changed elsewhere, as a copy.
   * @param {Document} document
   * @returns {Promise<Entry>} with another id for a copy
   */
  async writeOrCopy(document) {
    try {
      return await this.opened().write(document, document.revision);
    } catch (error) {
      if (!(error instanceof Changed)) throw error;
      const found = await this.find(document.id);
      if (found && found.text === document.text) return found;
      const copy = copyOf(document);
      const entry = await this.opened().write(copy, "");
      this.editor.notices.toast(`This document was changed elsewhere. Your text is kept as “${titleOf(entry)}”.`, { long: true });
      return entry;
    }
  }

  /** Put a copy of a text that is about to be replaced by a much shorter one into the bin. @param {Document} document */
  async binCopy(document) {
    const { title, text } = document;
    const entries = await this.opened().list();
    const twin = entries.find((entry) => entry.binned && entry.title === title && entry.opening === openingOf(text));
    if (twin && (await this.opened().read(twin.id))?.text === text) return;
    await this.opened().write(newDocument({ ...document, id: crypto.randomUUID(), revision: "", binned: Date.now() }), "");
  }

  /** Store the documents that this tab wrote in incognito. */
  async publish() {
    for (const document of recallUnsaved(true)) {
      const entry = await this.writeOrCopy(document);
      forgetUnsaved(document.id, true);
      if (document.id === this.current.id) this.current = this.saved(entry, document.text);
      this.listChanged();
    }
  }

  /** The page is being closed: leave unsaved text for the next page. */
  leave() {
    this.keepPlace();
    if (this.store && this.dirty() && this.written().text) keepUnsaved(this.written(), this.editor.incognito);
  }

  /** Whether closing the page could lose text: more is unsaved than fits into localStorage. */
  mayBeLost() {
    return this.dirty() && this.editor.text.length > MOST_LEFT;
  }

  keepPlace() {
    const { selectionStart, selectionEnd, scrollTop } = this.editor.textarea;
    keepPlace({ id: this.current.id, caret: [selectionStart, selectionEnd], scroll: scrollTop });
  }

  // ---------------------------------------------------------------- all documents

  /** @returns {Promise<(Entry & {here: boolean, elsewhere: boolean, forTab: boolean})[]>} */
  async list() {
    const [kept, open] = await Promise.all([this.opened().list(), openDocuments()]);
    const forTab = recallUnsaved(true);
    const hidden = new Set(forTab.map(({ id }) => id));
    const own = forTab.map(({ text, ...entry }) => ({ ...entry, opening: openingOf(text) }));
    const here = this.current.id;
    return [...own, ...kept.filter(({ id }) => !hidden.has(id))].map((entry) => ({
      ...entry, here: entry.id === here, elsewhere: entry.id !== here && open.has(entry.id), forTab: hidden.has(entry.id),
    }));
  }

  /**
   * @param {string} id
   * @returns {Promise<Document | null>} this tab's incognito version, else the stored one
   */
  async find(id) {
    return recallUnsaved(true).find((document) => document.id === id) ?? this.opened().read(id);
  }

  /** Store a new document. @param {Document} document @returns {Promise<Entry>} */
  async keep(document) {
    if (!this.editor.incognito) return this.opened().write(document, "");
    if (!keepUnsaved(document, true)) throw new Error("This text is too long to be kept for this tab alone.");
    return document;
  }

  /**
   * Put a document into the bin, or take it out again.
   * @param {string} id
   * @param {boolean} on
   */
  putInBin(id, on) {
    return this.inTurn(async () => {
      if (id === this.current.id) await this.replaceBy(newDocument(), null);
      await this.withLock(id, () => this.opened().putInBin(id, on));
      this.listChanged();
    });
  }

  /** Delete documents for good. @param {string[]} ids */
  remove(ids) {
    return this.inTurn(async () => {
      for (const id of ids) await this.withLock(id, () => this.opened().remove(id));
      this.listChanged();
    });
  }

  /**
   * Add the documents of an export. No stored document is replaced: an equal one is skipped, and one with a different
   * text is added as a copy.
   * @param {Document[]} documents
   */
  add(documents) {
    return this.inTurn(async () => {
      let added = 0;
      for (const document of documents) {
        const found = await this.opened().read(document.id);
        if (found?.text === document.text) continue;
        await this.opened().write(found ? copyOf(document) : { ...document, revision: "" }, "");
        added++;
      }
      this.listChanged();
      return { added, present: documents.length - added };
    });
  }

  /** Every document with its text. @returns {Promise<Document[]>} */
  all() {
    return this.inTurn(async () => {
      await this.save();
      const found = [];
      for (const { id } of await this.opened().list()) found.push(await this.opened().read(id));
      return found.filter((document) => document !== null);
    });
  }

  /**
   * Move all documents to the other store. New documents are stored there too.
   * @param {"browser" | "files"} where
   */
  moveTo(where) {
    return this.inTurn(async () => {
      await this.save();
      const from = this.opened();
      if (from.where === where) return;
      const to = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
      if (where === "files") await keepIn("files");
      await moveAll(from, to);
      if (where === "browser") await keepIn("browser");
      await this.followMove();
      this.channel.postMessage("moved");
      emit(this.root, "pd-documents");
    });
  }

  /** Use the store to which all documents were moved. */
  async followMove() {
    const { where } = await whereKept();
    if (this.store?.where !== where) this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (!this.current.revision) return;
    const found = await this.opened().read(this.current.id);
    // This tab has the document's lock, so the moved text is the one it saved last, or an older one.
    this.current = this.saved({ ...this.current, revision: "", ...found }, found?.text ?? "");
    await this.save();
  }

  // ---------------------------------------------------------------- inside

  /** @returns {Store} throws if no store could be opened */
  opened() {
    if (!this.store) throw new Error("This browser keeps no documents.");
    return this.store;
  }

  /**
   * Run an action after all earlier ones have ended, because opening and saving must not interleave.
   * @template T
   * @param {() => Promise<T>} action
   * @returns {Promise<T>}
   */
  inTurn(action) {
    const done = this.queue.then(action);
    this.queue = done.catch(() => {});
    return done;
  }

  listChanged() {
    this.channel.postMessage("changed");
    emit(this.root, "pd-documents");
  }

  /** @param {unknown} error */
  reportFailure(error) {
    if (error instanceof ConnectionLost) return this.editor.connection.lost(); // its notice says that the text is safe
    const reason = error instanceof Error ? error.message : String(error);
    this.editor.notices.notice("storage", {
      message: `Your text could not be saved. ${reason}`,
      fix: "Copy it, or save it as a file, before you close the page.",
    });
  }
}

/**
 * Move every document. Each is read back from the new store before it is removed from the old one.
 * @param {Store} from
 * @param {Store} to
 */
async function moveAll(from, to) {
  for (const { id } of await from.list()) {
    const document = await from.read(id);
    if (!document) continue;
    const there = await to.read(id);
    const moved = there && there.text !== document.text ? copyOf(document) : { ...document, revision: "" };
    if (!there || there.text !== document.text) await to.write(moved, "");
    const text = (await to.read(moved.id))?.text;
    // A file cannot contain half of a surrogate pair.
    if (text !== document.text && text !== document.text.toWellFormed()) {
      throw new Error(`“${titleOf(document)}” differed after it was moved, so it was not removed from its old place.`);
    }
    await from.remove(id);
  }
}

/**
 * @param {string} text
 * @param {string} before
 */
function isMuchLess(text, before) {
  return text ? before.length > MUCH && text.length < before.length / 2 : before.length >= WORTH_KEEPING;
}

/** @param {Document} document */
function copyOf(document) {
  const title = `${titleOf({ ...document, opening: openingOf(document.text) })} (copy)`;
  return newDocument({ ...document, id: crypto.randomUUID(), title, revision: "", changed: Date.now() });
}

/** The id of the document in the address, which is then removed from it: `recallPlace` keeps the tab's document. */
function linkedDocument() {
  const id = location.hash.match(/^#document=([0-9a-f-]{8,64})$/)?.[1];
  if (id) history.replaceState(null, "", location.pathname + location.search);
  return id;
}

/**
 * Scroll now, and again in the next two frames, because the browser may scroll to the caret when it draws the text.
 * @param {HTMLTextAreaElement} textarea
 * @param {number} top
 */
function scrollTo(textarea, top) {
  const { value, selectionStart } = textarea;
  const apply = () => {
    if (textarea.selectionStart === selectionStart && textarea.value === value) textarea.scrollTop = top;
  };
  apply();
  requestAnimationFrame(() => {
    apply();
    requestAnimationFrame(apply);
  });
}

/** @param {HTMLTextAreaElement} textarea */
function scrollToCaret(textarea) {
  if (document.activeElement !== textarea) return;
  textarea.blur();
  textarea.focus();
}
