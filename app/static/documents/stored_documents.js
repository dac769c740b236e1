// @ts-check
/**
 * All documents of this browser, in their store: browser_documents.js or file_documents.js. A stored text that was changed
 * elsewhere is never overwritten: this tab's text is stored as a copy. A text that the store refuses stays in this
 * browser's localStorage; the list shows it with the reason, and it can be opened and mended.
 *
 * `root` receives the event "pd-documents" when the list of documents has changed in any tab.
 */

import { BrowserDocuments } from "./browser_documents.js";
import { Changed, MOST_TITLE, inLines, newDocument, openingOf, titleOf } from "./document.js";
import { OWN_WAIT, lockDocument, openDocuments, withLock } from "./document_lock.js";
import { FileDocuments, keepIn, whereKept } from "./file_documents.js";
import { emit } from "../shared/dom.js";
import { forgetUnsaved, keepUnsaved, recallPlace, recallUnsaved } from "../shared/memory.js";
import { ConnectionLost } from "../shared/transport.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */
/** @typedef {import("./document.js").Store} Store */

export class StoredDocuments {
  /** @param {HTMLElement} root @param {import("../editor/start.js").Editor} editor */
  constructor(root, editor) {
    this.root = root;
    this.editor = editor;
    /** @type {Store | null} */
    this.store = null;
    /** Why the store refused an unsaved text, by its document's id. @type {Map<string, string>} */
    this.refused = new Map();
    /** What could not be moved to the store, in sentences. @type {string[]} */
    this.problems = [];
    /** The last action passed to `inTurn`. @type {Promise<any>} */
    this.queue = Promise.resolve();
    this.channel = new BroadcastChannel("polydraft.documents");
  }

  // ---------------------------------------------------------------- opening the store

  /** Open the store that the server names, and store there what earlier pages have left elsewhere. */
  async open() {
    const { where } = await whereKept();
    this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (where === "files") await this.moveFromBrowser();
    await this.saveLeftovers();
  }

  /** Save the unsaved texts that earlier pages left in localStorage. One that the store refuses stays there. */
  async saveLeftovers({ wait = false } = {}) {
    for (const document of recallUnsaved(false)) {
      const own = document.id === recallPlace()?.id;
      const release = await lockDocument(document.id, own || wait ? AbortSignal.timeout(OWN_WAIT) : null);
      if (!release) continue; // the tab that has it open saves it
      try {
        await this.writeOrCopy(document);
      } catch (error) {
        if (error instanceof ConnectionLost) throw error;
        this.refused.set(document.id, reasonOf(error));
      } finally {
        release();
      }
    }
  }

  /**
   * Keep a text that could not be stored as an unsaved one, so that another document can be shown.
   * @param {Document} document
   * @param {string} reason
   * @returns {boolean} false if the browser has no room for it
   */
  leaveRefused(document, reason) {
    if (!keepUnsaved(document, false)) return false;
    this.refused.set(document.id, reason);
    this.listChanged();
    return true;
  }

  /** Move documents that are still in the browser's database to files, if documents are kept as files. */
  async moveFromBrowser() {
    const databases = await indexedDB.databases();
    if (!databases.some(({ name }) => name === "polydraft")) return;
    try {
      const browser = await BrowserDocuments.open();
      if ((await browser.list()).length) this.problems = await moveAll(browser, this.opened());
      browser.database.close();
    } catch (error) {
      if (error instanceof ConnectionLost) throw error;
      this.problems = [`This browser's own documents cannot be read. ${reasonOf(error)}`];
    }
  }

  /** @returns {Store} throws if no store could be opened */
  opened() {
    if (!this.store) throw new Error("This browser keeps no documents.");
    return this.store;
  }

  /**
   * Move all documents to the other store. New documents are stored there too. What cannot become a file stays in this
   * browser, where each start looks for it; if a file cannot be moved into the browser, all stay files.
   * @param {"browser" | "files"} where
   */
  async moveTo(where) {
    const from = this.opened();
    const to = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (where === "files") await keepIn("files");
    const problems = await moveAll(from, to);
    if (where === "browser" && problems.length) {
      this.problems = await moveAll(to, from);
      throw new Error(problems.join(" "));
    }
    this.problems = problems;
    if (where === "browser") await keepIn("browser");
  }

  /** Use the store to which all documents were moved. */
  async followMove() {
    const { where } = await whereKept();
    if (this.store?.where !== where) this.store = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
  }

  // ---------------------------------------------------------------- one document

  /**
   * @param {string} id
   * @returns {Promise<Document | null>} this tab's incognito version, or the one that could not be stored, else the
   *   stored one
   */
  async find(id) {
    const unsaved = [...recallUnsaved(true), ...this.refusedDocuments()];
    return unsaved.find((document) => document.id === id) ?? this.opened().read(id);
  }

  /** The same; throws if there is none. @param {string} id */
  async found(id) {
    const document = await this.find(id);
    if (!document) throw new Error("This document is no longer there.");
    return document;
  }

  refusedDocuments() {
    return recallUnsaved(false).filter(({ id }) => this.refused.has(id));
  }

  /** Store a new document. @param {Document} document @returns {Promise<Entry>} */
  async keep(document) {
    if (!this.editor.incognito.on) return this.opened().write(document, "");
    if (!keepUnsaved(document, true)) throw new Error("This text is too long to be kept for this tab alone.");
    return document;
  }

  /**
   * Store new documents, all or none.
   * @param {Document[]} documents
   * @returns {Promise<Entry>} of the first
   */
  async keepAll(documents) {
    /** @type {Entry[]} */
    const kept = [];
    try {
      for (const document of documents) kept.push(await this.keep(document));
    } catch (error) {
      for (const { id } of kept) {
        if (this.editor.incognito.on) forgetUnsaved(id, true);
        else await this.opened().remove(id);
      }
      throw error;
    }
    return kept[0];
  }

  /**
   * Store a document; if the stored text was changed elsewhere, as a copy. An unsaved text that an earlier page left is
   * forgotten then.
   * @param {Document} document
   * @returns {Promise<Entry>} with another id for a copy
   */
  async writeOrCopy(document) {
    const entry = await this.writtenOrCopied(document);
    forgetUnsaved(document.id, false);
    this.refused.delete(document.id);
    return entry;
  }

  /** @param {Document} document @returns {Promise<Entry>} */
  async writtenOrCopied(document) {
    try {
      return await this.opened().write(document, document.revision);
    } catch (error) {
      if (!(error instanceof Changed)) throw error;
      const storedDocument = await this.opened().read(document.id);
      if (storedDocument && storedDocument.text === document.text) return storedDocument;
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

  // ---------------------------------------------------------------- several documents

  /**
   * @param {string} here the id of this tab's document
   * @returns {Promise<(Entry & {here: boolean, elsewhere: boolean, forTab: boolean, refused: string})[]>} `refused`: why
   *   the text could not be stored
   */
  async list(here) {
    const [kept, open] = await Promise.all([this.opened().list(), openDocuments()]);
    const forTab = new Set(recallUnsaved(true).map(({ id }) => id));
    const unsaved = [...recallUnsaved(true), ...this.refusedDocuments().filter(({ id }) => !forTab.has(id))];
    const hidden = new Set(unsaved.map(({ id }) => id));
    const own = unsaved.map(({ text, ...entry }) => ({ ...entry, opening: openingOf(text) }));
    return [...own, ...kept.filter(({ id }) => !hidden.has(id))].map((entry) => ({
      ...entry, here: entry.id === here, elsewhere: entry.id !== here && open.has(entry.id), forTab: forTab.has(entry.id),
      refused: this.refused.get(entry.id) ?? "",
    }));
  }

  /** Delete documents for good. @param {string[]} ids */
  remove(ids) {
    return this.inTurn(async () => {
      for (const id of ids) await withLock(id, () => this.opened().remove(id));
      this.listChanged();
    });
  }

  /**
   * Add the documents of an export. No stored document is replaced: an equal one is skipped, and one with a different
   * text is added as a copy. One that the store refuses keeps no other from being added.
   * @param {Document[]} documents
   */
  add(documents) {
    return this.inTurn(async () => {
      const known = new Set((await this.opened().list()).map(({ id }) => id));
      const problems = [];
      let added = 0;
      for (const document of documents) {
        try {
          const storedDocument = known.has(document.id) ? await this.opened().read(document.id) : null;
          if (storedDocument && isSame(storedDocument.text, document.text)) continue;
          await this.opened().write(storedDocument ? copyOf(document) : { ...document, revision: "" }, "");
          added++;
        } catch (error) {
          if (error instanceof ConnectionLost) throw error;
          problems.push(`“${titleOf(document)}” could not be added. ${reasonOf(error)}`);
        }
      }
      this.listChanged();
      return { added, present: documents.length - added - problems.length, problems };
    });
  }

  /**
   * Every document with its text, but for those of this tab alone, and what is wrong with those that cannot be read.
   * @returns {Promise<{documents: Document[], problems: string[]}>}
   */
  async all() {
    const documents = [];
    const problems = [];
    for (const entry of await this.list("")) {
      try {
        const document = await (entry.forTab ? this.opened().read(entry.id) : this.find(entry.id));
        if (document) documents.push(document);
      } catch (error) {
        if (error instanceof ConnectionLost) throw error;
        problems.push(`“${titleOf(entry)}” could not be read. ${reasonOf(error)}`);
      }
    }
    return { documents, problems };
  }

  // ---------------------------------------------------------------- one after the other

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
}

/**
 * Move every document. Each is read back from the new store before it is removed from the old one. One that cannot be
 * moved stays, and keeps no other from moving.
 * @param {Store} from
 * @param {Store} to
 * @returns {Promise<string[]>} what could not be moved, in sentences
 */
async function moveAll(from, to) {
  const there = new Set((await to.list()).map(({ id }) => id));
  const problems = [];
  for (const entry of await from.list()) {
    try {
      await move(entry.id, from, to, there.has(entry.id));
    } catch (error) {
      if (error instanceof ConnectionLost) throw error;
      const place = from.where === "browser" ? "still in this browser" : "still a file";
      problems.push(`“${titleOf(entry)}” could not be moved, and is ${place}. ${reasonOf(error)}`);
    }
  }
  return problems;
}

/**
 * @param {string} id
 * @param {Store} from
 * @param {Store} to
 * @param {boolean} known whether the new store has a document with this id
 */
async function move(id, from, to, known) {
  const document = await from.read(id);
  if (!document) return;
  const there = known ? await to.read(id) : null;
  if (!there || !isSame(there.text, document.text)) {
    const moved = there ? copyOf(document) : { ...document, revision: "" };
    await to.write(moved, "");
    const text = (await to.read(moved.id))?.text;
    if (text === undefined || !isSame(text, document.text)) {
      await to.remove(moved.id); // or every try would leave another one
      throw new Error("Its text differed after it was moved.");
    }
  }
  await from.remove(id);
}

/**
 * Whether two texts are the same in a file, which has no halves of surrogate pairs, and in a field.
 * @param {string} a
 * @param {string} b
 */
function isSame(a, b) {
  return a === b || inLines(a.toWellFormed()) === inLines(b.toWellFormed());
}

/** @param {unknown} error */
export function reasonOf(error) {
  // The browser's own error for this has no text.
  if (error instanceof DOMException && error.name === "QuotaExceededError") return "This browser has no more room for documents.";
  return error instanceof Error ? error.message : String(error);
}

/** @param {Document} document */
export function copyOf(document) {
  const ending = " (copy)";
  const title = titleOf({ ...document, opening: openingOf(document.text) }).slice(0, MOST_TITLE - ending.length) + ending;
  return newDocument({ ...document, id: crypto.randomUUID(), title, revision: "", changed: Date.now() });
}
