// @ts-check
/**
 * The document that this tab has open: opened, saved by itself, and never replaced unseen.
 *
 *   typing ─► half a second later: saved where documents are kept (browser_documents.js, file_documents.js)
 *   the page goes before that ─► what is missing waits in the small storage (memory.js) and is saved by the next page
 *   the same document in a second tab ─► its lock is taken (document_lock.js): the tab says so and offers a copy
 *   the kept text is not the one that this tab began with ─► this tab's text is kept as a copy
 *   incognito ─► kept for this tab alone, until incognito is switched off
 *
 * `root` hears "pd-document" when another document is open, or this one has another title, and "pd-documents" when the
 * list has changed, in this tab or in another.
 */

import { BrowserDocuments } from "./browser_documents.js";
import { Changed, newDocument, openingOf, titleOf } from "./document.js";
import { lockDocument, openDocuments } from "./document_lock.js";
import { FileDocuments, keepIn, whereKept } from "./file_documents.js";
import {
  UNSAVED, forgetOldTexts, forgetUnsaved, isIncognito, keepLastDocument, keepPlace, keepUnsaved, lastDocument, oldTexts,
  recallPlace, recallUnsaved,
} from "./memory.js";
import { Timers } from "./timers.js";
import { ConnectionLost } from "./transport.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */
/** @typedef {import("./document.js").Store} Store */

const SAVE_AFTER = 500; // ms without a change until the text is saved
const SAVE_AT_LEAST = 3000; // ms from a change until it is saved, although the typing goes on
const LARGE = 500_000; // characters from which both are four times as long
const AGAIN_AFTER = 5000; // ms until a failed save is tried again
const OWN_WAIT = 2000; // ms for the page that was here before a reload to let go of its document
const MOST_LEFT = 2_000_000; // characters that the small storage surely holds for the next page
const WORTH_KEEPING = 20; // characters of a text that is emptied: then the bin gets a copy
const MUCH = 200; // characters of a text that loses more than half at once: the same

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
    /** @type {Document} `text` is what was saved last */
    this.current = newDocument();
    this.renamed = false;
    this.changedAt = 0;
    /** Lets go of the current document's lock; null while it has none. @type {(() => void) | null} */
    this.release = null;
    /** Ends the waiting for a document that another tab has open. @type {AbortController | null} */
    this.waiting = null;
    /** One saving or opening after the other. @type {Promise<any>} */
    this.queue = Promise.resolve();
    this.channel = new BroadcastChannel("polydraft.documents");
  }

  // ---------------------------------------------------------------- the first document of a page

  /** Show the document of this tab, of the link, or the last one. What was typed meanwhile is added at its end. */
  async start() {
    try {
      await this.openStore();
      await this.openFirst();
    } catch (error) {
      this.failed(error);
    }
    this.root.addEventListener("pd-text", (event) => this.textChanged(/** @type {CustomEvent} */ (event).detail));
    addEventListener("pagehide", () => this.leave());
    addEventListener("visibilitychange", () => document.hidden && this.saveNow());
    addEventListener("beforeunload", (event) => this.mayBeLost() && event.preventDefault()); // the browser asks
    this.root.querySelector(".pd-incognito")?.addEventListener("click", () => this.saveNow());
    this.channel.addEventListener("message", ({ data }) => {
      if (data === "moved") this.inTurn(() => this.follow());
      this.tell("pd-documents");
    });
    addEventListener("storage", async ({ key, newValue }) => {
      // Another tab has gone, and has left something.
      if (!key?.startsWith(UNSAVED) || !newValue || !this.store) return;
      await this.saveLeftovers({ wait: true }).catch((error) => this.failed(error));
      this.listChanged();
    });
    addEventListener("hashchange", () => {
      const id = linkedDocument();
      if (id) this.open(id).catch((error) => this.editor.toast(error.message, { long: true }));
    });
    this.textChanged({ opened: false });
  }

  async openStore() {
    const { where } = await whereKept();
    this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (where === "files") await this.gather();
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
    if (!release) return this.offer(found);
    this.show(found, release, own ? place : null, this.editor.textarea.value);
  }

  /** Texts of versions that knew no documents become documents, once. */
  async migrate() {
    const move = async () => {
      const [first, ...others] = oldTexts();
      if (first === undefined) return;
      for (const text of [...others, first]) {
        const caret = [text.length, text.length];
        const { id } = await this.kept().write(newDocument({ text, caret }), "");
        keepLastDocument(id);
        keepPlace({ id, caret, scroll: 0 }); // the last one is shown
      }
      forgetOldTexts();
    };
    await (navigator.locks ? navigator.locks.request("polydraft.migrate", move) : move());
  }

  /** Save what earlier pages could not save before they went. */
  async saveLeftovers({ wait = false } = {}) {
    for (const document of recallUnsaved(false)) {
      const own = document.id === recallPlace()?.id;
      const release = await lockDocument(document.id, own || wait ? AbortSignal.timeout(OWN_WAIT) : null);
      if (!release) continue; // its tab is there and saves it itself
      await this.writeOrCopy(document);
      forgetUnsaved(document.id, false);
      release();
    }
  }

  /** Documents that are still in the browser's database although the writer keeps them as files. */
  async gather() {
    const databases = (await indexedDB.databases?.()) ?? [];
    if (!databases.some(({ name }) => name === "polydraft")) return;
    const browser = await BrowserDocuments.open();
    if ((await browser.list()).length) await moveAll(browser, this.kept());
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
   * @param {string} typed added at its end
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
    // Only where the text has the focus does the browser bring the caret into sight by itself.
    if (place) scrollTo(editor.textarea, place.scroll);
    else scrollToCaret(editor.textarea);
    if (document.revision) keepLastDocument(document.id);
    this.keepPlace();
    this.elsewhere(null);
    this.tell("pd-document");
  }

  /** Open a document, or say that another tab has it. @param {string} id */
  open(id) {
    return this.inTurn(async () => {
      if (id === this.current.id) return;
      const release = await lockDocument(id);
      const found = await this.find(id);
      if (!found) {
        release?.();
        throw new Error("This document is no longer there.");
      }
      if (!release) return this.offer(found);
      await this.replaceBy(found, release);
    });
  }

  /**
   * Show another document once nothing of this one can be lost.
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

  /** An empty page. The document comes into being with its first words. */
  create() {
    return this.inTurn(() => this.replaceBy(newDocument(), null));
  }

  /** Save the current document before another is shown; one without text or title is none. */
  async putAside() {
    for (let tries = 0; this.dirty() && tries < 3; tries++) await this.save(); // typing may go on meanwhile
    if (this.dirty() && this.editor.textarea.value) throw new Error("The text here could not be saved. It stays open.");
    const { id, revision, title } = this.current;
    if (!revision || title || this.editor.textarea.value) return;
    await this.kept().remove(id);
    this.current = newDocument();
    this.listChanged();
  }

  /**
   * A document of its own with this text; it is shown.
   * @param {string} title
   * @param {string} text
   */
  createFrom(title, text) {
    return this.inTurn(() => this.showNew(newDocument({ title, text })));
  }

  /**
   * @param {string} id
   * @param {string} title empty: the document is called by its first line again
   */
  rename(id, title) {
    return this.inTurn(async () => {
      if (id === this.current.id) {
        this.current.title = title;
        this.renamed = true;
        return this.save();
      }
      await this.alone(id, async () => {
        const found = await this.find(id);
        if (!found) throw new Error("This document is no longer there.");
        await this.writeOrCopy({ ...found, title });
      });
      this.listChanged();
    });
  }

  /**
   * Do something with a document that is not shown, while no tab has it open.
   * @param {string} id
   * @param {() => Promise<void>} action
   */
  async alone(id, action) {
    const release = await lockDocument(id);
    if (!release) throw new Error("This document is open in another tab. Close it there first.");
    await action().finally(release);
  }

  /**
   * Another tab has this document open. Where that tab lets go of it, it opens here.
   * @param {Document} document
   */
  offer(document) {
    this.waiting?.abort();
    const waiting = (this.waiting = new AbortController());
    this.elsewhere(document);
    lockDocument(document.id, waiting.signal).then((release) => {
      if (!release) return;
      this.inTurn(async () => {
        const found = waiting.signal.aborted ? null : await this.find(document.id);
        if (!found) return release();
        await this.replaceBy(found, release);
      });
    });
  }

  /** @param {Document | null} document that another tab has open */
  elsewhere(document) {
    if (!document) this.waiting?.abort();
    this.tell("pd-elsewhere", document);
  }

  /** @param {string} id */
  openCopy(id) {
    return this.inTurn(async () => {
      const found = await this.find(id);
      if (!found) throw new Error("This document is no longer there.");
      await this.showNew(copyOf(found));
    });
  }

  /** @param {Document} document that is kept nowhere yet */
  async showNew(document) {
    const entry = await this.keep(document);
    this.listChanged();
    await this.replaceBy({ ...document, ...entry }, await lockDocument(document.id));
  }

  // ---------------------------------------------------------------- saving

  /** @param {{opened: boolean}} how */
  textChanged({ opened }) {
    if (opened || !this.dirty()) return;
    if (this.waiting) this.elsewhere(null); // the writer has begun something else
    const slow = this.editor.text.length > LARGE ? 4 : 1;
    this.changedAt ||= performance.now();
    const latest = this.changedAt + SAVE_AT_LEAST * slow - performance.now();
    this.timers.later("save", Math.max(0, Math.min(SAVE_AFTER * slow, latest)), () => this.saveNow());
  }

  /** Whether there is anything to save. */
  dirty() {
    return this.renamed || this.editor.textarea.value !== this.current.text;
  }

  saveNow() {
    return this.inTurn(() => this.save());
  }

  /** What is written now, as a document. @returns {Document} */
  written() {
    const { value, selectionStart, selectionEnd } = this.editor.textarea;
    const privateRanges = this.editor.privacy?.ranges ?? this.current.privateRanges;
    return { ...this.current, text: value, caret: [selectionStart, selectionEnd], privateRanges, changed: Date.now() };
  }

  async save() {
    this.timers.stop("save");
    this.changedAt = 0;
    const { renamed } = this;
    try {
      if (!this.store) await this.openStore();
      const incognito = isIncognito();
      if (!incognito) await this.publish();
      if (!this.dirty()) return;
      const before = this.current;
      const document = this.written();
      if (!document.text && !before.text && !document.title) return; // an empty page is no document
      this.release ??= await lockDocument(document.id);
      this.renamed = false;
      if (incognito) {
        if (!keepUnsaved(document, true)) throw new Error("This text is too long to be kept for this tab alone.");
        this.current = { ...this.current, text: document.text };
      } else {
        if (isMuchLess(document.text, before.text)) await this.binCopy(before);
        const entry = await this.writeOrCopy(document);
        this.current = this.isNow(entry, document.text);
        if (entry.id !== document.id) {
          this.release?.();
          this.release = await lockDocument(entry.id);
        }
        forgetUnsaved(document.id, false);
        keepLastDocument(entry.id);
        this.listChanged();
      }
      this.editor.notice("storage", null);
      this.keepPlace();
      this.tell("pd-document");
    } catch (error) {
      this.renamed ||= renamed;
      this.failed(error);
      this.timers.later("save", AGAIN_AFTER, () => this.saveNow());
    }
  }

  /**
   * The current document after it was saved. What the page itself has changed meanwhile stays.
   * @param {Entry} entry
   * @param {string} text that was saved
   * @returns {Document}
   */
  isNow(entry, text) {
    const { title, keys, privateRanges } = this.current;
    return { ...entry, title: entry.id === this.current.id ? title : entry.title, keys, privateRanges, text };
  }

  /**
   * Keep a document; where the kept text is not the one it began with, as a copy.
   * @param {Document} document
   * @returns {Promise<Entry>} with another id for a copy
   */
  async writeOrCopy(document) {
    try {
      return await this.kept().write(document, document.revision);
    } catch (error) {
      if (!(error instanceof Changed)) throw error;
      const found = await this.find(document.id);
      if (found && found.text === document.text) return found;
      const copy = copyOf(document);
      const entry = await this.kept().write(copy, "");
      this.editor.toast(`This document was changed elsewhere. Your text is kept as “${titleOf(entry)}”.`, { long: true });
      return entry;
    }
  }

  /** A text that is about to be replaced by much less. @param {Document} document */
  async binCopy(document) {
    const { title, text } = document;
    const entries = await this.kept().list();
    const twin = entries.find((entry) => entry.binned && entry.title === title && entry.opening === openingOf(text));
    if (twin && (await this.kept().read(twin.id))?.text === text) return;
    await this.kept().write(newDocument({ ...document, id: crypto.randomUUID(), revision: "", binned: Date.now() }), "");
  }

  /** What was kept for this tab alone while it was incognito becomes part of the documents. */
  async publish() {
    for (const document of recallUnsaved(true)) {
      const entry = await this.writeOrCopy(document);
      forgetUnsaved(document.id, true);
      if (document.id === this.current.id) this.current = this.isNow(entry, document.text);
      this.listChanged();
    }
  }

  /** The page goes. What is not saved waits for the next page. */
  leave() {
    this.keepPlace();
    if (this.store && this.dirty() && this.written().text) keepUnsaved(this.written(), isIncognito());
  }

  /** Whether the page must not go unasked: there is more to save than the small storage holds. */
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
    const [kept, open] = await Promise.all([this.kept().list(), openDocuments()]);
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
   * @returns {Promise<Document | null>} as this tab has it
   */
  async find(id) {
    return recallUnsaved(true).find((document) => document.id === id) ?? this.kept().read(id);
  }

  /** Keep a document that is nowhere yet. @param {Document} document @returns {Promise<Entry>} */
  async keep(document) {
    if (!isIncognito()) return this.kept().write(document, "");
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
      await this.alone(id, () => this.kept().putInBin(id, on));
      this.listChanged();
    });
  }

  /** Delete documents for good. @param {string[]} ids */
  remove(ids) {
    return this.inTurn(async () => {
      for (const id of ids) await this.alone(id, () => this.kept().remove(id));
      this.listChanged();
    });
  }

  /**
   * Documents of an export. None replaces another: one that is here already is left out, one whose text differs is
   * added as a copy.
   * @param {Document[]} documents
   */
  add(documents) {
    return this.inTurn(async () => {
      let added = 0;
      for (const document of documents) {
        const found = await this.kept().read(document.id);
        if (found?.text === document.text) continue;
        await this.kept().write(found ? copyOf(document) : { ...document, revision: "" }, "");
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
      for (const { id } of await this.kept().list()) found.push(await this.kept().read(id));
      return found.filter((document) => document !== null);
    });
  }

  /**
   * Move all documents to another place, which is then the one for new documents too.
   * @param {"browser" | "files"} where
   */
  moveTo(where) {
    return this.inTurn(async () => {
      await this.save();
      const from = this.kept();
      if (from.where === where) return;
      const to = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
      if (where === "files") await keepIn("files");
      await moveAll(from, to);
      if (where === "browser") await keepIn("browser");
      await this.follow();
      this.channel.postMessage("moved");
      this.tell("pd-documents");
    });
  }

  /** Documents are kept at another place now. */
  async follow() {
    const { where } = await whereKept();
    if (this.store?.where !== where) this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (!this.current.revision) return;
    const found = await this.kept().read(this.current.id);
    // This tab holds the document's lock: what was moved is what it saved last, or older.
    this.current = this.isNow({ ...this.current, revision: "", ...found }, found?.text ?? "");
    await this.save();
  }

  // ---------------------------------------------------------------- inside

  /** @returns {Store} */
  kept() {
    if (!this.store) throw new Error("This browser keeps no documents.");
    return this.store;
  }

  /**
   * One after the other: what opens or saves must not meet half of another such step.
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
    this.tell("pd-documents");
  }

  /**
   * @param {"pd-document" | "pd-documents" | "pd-elsewhere"} event
   * @param {any} detail
   */
  tell(event, detail = undefined) {
    this.root.dispatchEvent(new CustomEvent(event, { detail }));
  }

  /** @param {unknown} error */
  failed(error) {
    if (error instanceof ConnectionLost) return this.editor.connection.lost(); // which says that the text is safe
    const reason = error instanceof Error ? error.message : String(error);
    this.editor.notice("storage", {
      message: `Your text could not be saved. ${reason}`,
      fix: "Copy it, or save it as a file, before you close the page.",
    });
  }
}

/**
 * Move every document. Each is read again at its new place before it is removed from the old one.
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
    // A file holds no half of a surrogate pair.
    if (text !== document.text && text !== document.text.toWellFormed()) {
      throw new Error(`“${titleOf(document)}” was not the same after it was moved; it stays where it was.`);
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

/** The document that the address names, which it then names no more: it is the tab that has a document. */
function linkedDocument() {
  const id = location.hash.match(/^#document=([0-9a-f-]{8,64})$/)?.[1];
  if (id) history.replaceState(null, "", location.pathname + location.search);
  return id;
}

/**
 * Now, and once more when the browser has drawn the text, where it may bring the caret into sight by itself.
 * @param {HTMLTextAreaElement} textarea
 * @param {number} top
 */
function scrollTo(textarea, top) {
  const { value, selectionStart } = textarea;
  const apply = () => {
    if (textarea.selectionStart === selectionStart && textarea.value === value) textarea.scrollTop = top;
  };
  apply();
  requestAnimationFrame(apply);
}

/** @param {HTMLTextAreaElement} textarea */
function scrollToCaret(textarea) {
  if (document.activeElement !== textarea) return;
  textarea.blur();
  textarea.focus();
}
