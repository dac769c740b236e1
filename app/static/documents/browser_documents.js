// @ts-check
/**
 * Documents in this browser's database (IndexedDB). Texts and list entries are in separate object stores, so listing
 * reads no text. A write replaces both in one transaction, if the stored revision is the expected one.
 */

import { Changed, countWords, openingOf } from "./document.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */

const NAME = "polydraft";

export class BrowserDocuments {
  /** @param {IDBDatabase} database */
  constructor(database) {
    this.where = /** @type {const} */ ("browser");
    this.database = database;
  }

  /** @returns {Promise<BrowserDocuments>} rejected if the browser's storage is switched off or its profile is damaged */
  static async open() {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("entries", { keyPath: "id" });
      request.result.createObjectStore("texts");
    };
    const database = await answer(request);
    database.onversionchange = () => database.close();
    return new BrowserDocuments(database);
  }

  /** @returns {Promise<Entry[]>} most recently changed first */
  async list() {
    const entries = await answer(this.database.transaction("entries").objectStore("entries").getAll());
    return entries.sort((a, b) => b.changed - a.changed);
  }

  /** @param {string} id @returns {Promise<Document | null>} */
  async read(id) {
    const transaction = this.database.transaction(["entries", "texts"]);
    const [entry, text] = await Promise.all([
      answer(transaction.objectStore("entries").get(id)),
      answer(transaction.objectStore("texts").get(id)),
    ]);
    return entry ? { ...entry, text: text ?? "" } : null;
  }

  /**
   * @param {Document} document
   * @param {string} base
   * @returns {Promise<Entry>}
   */
  async write({ text, ...entry }, base) {
    const written = { ...entry, opening: openingOf(text), words: await countWords(text), revision: crypto.randomUUID() };
    await this.change(entry.id, (previous, entries, texts) => {
      if ((previous?.revision ?? "") !== base) throw new Changed("The document was changed in another window.");
      entries.put(written);
      texts.put(text, entry.id);
    });
    return written;
  }

  /** @param {string} id @param {boolean} on */
  async putInBin(id, on) {
    await this.change(id, (previous, entries) => {
      if (previous) entries.put({ ...previous, binned: on ? Date.now() : null });
    });
  }

  /** @param {string} id */
  async remove(id) {
    await this.change(id, (_, entries, texts) => {
      entries.delete(id);
      texts.delete(id);
    });
  }

  /**
   * Read one entry and act on it, in one transaction.
   * @param {string} id
   * @param {(previous: Entry | undefined, entries: IDBObjectStore, texts: IDBObjectStore) => void} action an exception
   *   aborts the transaction
   * @returns {Promise<void>} resolved when the change is on disk
   */
  change(id, action) {
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(["entries", "texts"], "readwrite", { durability: "strict" });
      const entries = transaction.objectStore("entries");
      /** @type {unknown} */
      let problem = null;
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(problem ?? transaction.error);
      const reading = entries.get(id);
      reading.onsuccess = () => {
        try {
          action(reading.result, entries, transaction.objectStore("texts"));
          transaction.commit(); // from here the browser completes it even if the tab is closed
        } catch (error) {
          problem = error;
          transaction.abort();
        }
      };
    });
  }
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
