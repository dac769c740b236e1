// @ts-check
/**
 * All documents of this browser, in their store: browser_documents.js or file_documents.js. A stored text that was changed
 * elsewhere is never overwritten: this tab's text is stored as a copy.
 *
 * `root` receives the event "pd-documents" when the list of documents has changed in any tab.
 */

import { BrowserDocuments } from "./browser_documents.js";
import { Changed, newDocument, openingOf, titleOf } from "./document.js";
import { OWN_WAIT, lockDocument, openDocuments, withLock } from "./document_lock.js";
import { FileDocuments, keepIn, whereKept } from "./file_documents.js";
import { emit } from "../shared/dom.js";
import {
  forgetOldTexts, forgetUnsaved, keepLastDocument, keepPlace, keepUnsaved, oldTexts, recallPlace, recallUnsaved,
} from "../shared/memory.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */
/** @typedef {import("./document.js").Store} Store */

export class StoredDocuments {
  /**
   * @param {HTMLElement} root
   * @param {{readonly incognito: boolean, notices: import("../editor/notices.js").Notices}} editor
   */
  constructor(root, editor) {
    this.root = root;
    this.editor = editor;
    /** @type {Store | null} */
    this.store = null;
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
    await this.migrate();
    await this.saveLeftovers();
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

  /** @returns {Store} throws if no store could be opened */
  opened() {
    if (!this.store) throw new Error("This browser keeps no documents.");
    return this.store;
  }

  /**
   * Move all documents to the other store. New documents are stored there too.
   * @param {"browser" | "files"} where
   */
  async moveTo(where) {
    const from = this.opened();
    const to = where === "files" ? new FileDocuments() : await BrowserDocuments.open();
    if (where === "files") await keepIn("files");
    await moveAll(from, to);
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
   * Store a document; if the stored text was changed elsewhere, as a copy.
   * @param {Document} document
   * @returns {Promise<Entry>} with another id for a copy
   */
  async writeOrCopy(document) {
    try {
      return await this.opened().write(document, document.revision);
    } catch (error) {
      if (!(error instanceof Changed)) throw error;
      const storedDocument = await this.find(document.id);
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
   * @returns {Promise<(Entry & {here: boolean, elsewhere: boolean, forTab: boolean})[]>}
   */
  async list(here) {
    const [kept, open] = await Promise.all([this.opened().list(), openDocuments()]);
    const forTab = recallUnsaved(true);
    const hidden = new Set(forTab.map(({ id }) => id));
    const own = forTab.map(({ text, ...entry }) => ({ ...entry, opening: openingOf(text) }));
    return [...own, ...kept.filter(({ id }) => !hidden.has(id))].map((entry) => ({
      ...entry, here: entry.id === here, elsewhere: entry.id !== here && open.has(entry.id), forTab: hidden.has(entry.id),
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
   * text is added as a copy.
   * @param {Document[]} documents
   */
  add(documents) {
    return this.inTurn(async () => {
      let added = 0;
      for (const document of documents) {
        const storedDocument = await this.opened().read(document.id);
        if (storedDocument?.text === document.text) continue;
        await this.opened().write(storedDocument ? copyOf(document) : { ...document, revision: "" }, "");
        added++;
      }
      this.listChanged();
      return { added, present: documents.length - added };
    });
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

/** @param {Document} document */
export function copyOf(document) {
  const title = `${titleOf({ ...document, opening: openingOf(document.text) })} (copy)`;
  return newDocument({ ...document, id: crypto.randomUUID(), title, revision: "", changed: Date.now() });
}
