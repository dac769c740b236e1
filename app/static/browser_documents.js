// @ts-check
/**
 * Documents in this browser's database (IndexedDB). Texts lie apart from what a list shows of them, so that a list
 * reads no text. Every write replaces both in one transaction, and only where the revision is the expected one.
 */

import { Changed, openingOf } from "./document.js";
import { countWords } from "./counting.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */

const NAME = "polydraft";

export class BrowserDocuments {
  /** @param {IDBDatabase} database */
  constructor(database) {
    this.where = /** @type {const} */ ("browser");
    this.database = database;
  }

  /** @returns {Promise<BrowserDocuments>} rejected where the browser keeps nothing: switched off, or a damaged profile */
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

  /** @returns {Promise<Entry[]>} the last changed first */
  async list() {
    const entries = await answer(this.database.transaction("entries").objectStore("entries").getAll());
    return entries.sort((a, b) => b.changed - a.changed);
  }

  /**
   * @param {string} id
   * @returns {Promise<Document | null>}
   */
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
    await this.change(entry.id, (found, entries, texts) => {
      if ((found?.revision ?? "") !== base) throw new Changed("The document was changed in another window.");
      entries.put(written);
      texts.put(text, entry.id);
    });
    return written;
  }

  /**
   * @param {string} id
   * @param {boolean} on
   */
  async putInBin(id, on) {
    await this.change(id, (found, entries) => {
      if (found) entries.put({ ...found, binned: on ? Date.now() : null });
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
   * @param {(found: Entry | undefined, entries: IDBObjectStore, texts: IDBObjectStore) => void} action what it throws
   *   undoes the whole
   * @returns {Promise<void>} resolved when the change is on the disk
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
          transaction.commit(); // it needs this page no more: the tab may be closed now
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
