// @ts-check
/** One tab per document: a tab keeps a Web Lock while the document is open. The browser releases it with the tab. */

import { emit } from "../shared/dom.js";

/** @typedef {import("./document.js").Document} Document */

export const OWN_WAIT = 2000; // ms to wait until the page before a reload releases its document's lock
const PREFIX = "polydraft.document."; // of the locks' names, before the document's id

/**
 * @param {string} id of a document
 * @param {AbortSignal | null} signal ends waiting for the lock; null: do not wait
 * @returns {Promise<(() => void) | null>} releases the lock; null if the lock was not acquired
 */
export function lockDocument(id, signal = null) {
  return new Promise((resolve) => {
    const how = signal ? { signal } : { ifAvailable: true };
    navigator.locks
      .request(PREFIX + id, how, (lock) => {
        if (!lock) return resolve(null);
        return new Promise((release) => resolve(() => release(undefined)));
      })
      .catch(() => resolve(null)); // the signal was aborted
  });
}

/** The documents that are open in some tab of this browser. @returns {Promise<Set<string>>} */
export async function openDocuments() {
  const { held = [] } = await navigator.locks.query();
  return new Set(held.flatMap(({ name }) => (name?.startsWith(PREFIX) ? [name.slice(PREFIX.length)] : [])));
}

/**
 * Run an action on a document that is not shown, with its lock. Throws if a tab has the document open.
 * @param {string} id
 * @param {() => Promise<void>} action
 */
export async function withLock(id, action) {
  const release = await lockDocument(id);
  if (!release) throw new Error("This document is open in another tab. Close it there first.");
  await action().finally(release);
}

/**
 * Run an action that shows a document, and release its lock if the action fails.
 * @template T
 * @param {(() => void) | null} release
 * @param {() => Promise<T>} action
 */
export async function orRelease(release, action) {
  try {
    return await action();
  } catch (error) {
    release?.();
    throw error;
  }
}

/** The lock of this tab's document, and waiting for that of a document that another tab has open. */
export class TabLock {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** Releases the document's lock; null if this tab has no lock. @type {(() => void) | null} */
    this.release = null;
    /** Stops waiting for a document that another tab has open. @type {AbortController | null} */
    this.waiting = null;
  }

  /** Release the lock for that of another document. @param {(() => void) | null} release */
  hold(release) {
    this.waiting?.abort();
    this.release?.();
    this.release = release;
  }

  /** Lock this tab's document, unless it is locked. @param {string} id */
  async acquire(id) {
    this.release ??= await lockDocument(id);
  }

  /** This tab's document has another id now. @param {string} id */
  async moveTo(id) {
    this.release?.();
    this.release = await lockDocument(id);
  }

  /**
   * Wait until the tab that has this document open releases its lock.
   * @param {Document} document
   * @param {(release: () => void, signal: AbortSignal) => void} acquired `signal`: whether this tab has stopped waiting
   */
  waitFor(document, acquired) {
    this.waiting?.abort();
    const { signal } = (this.waiting = new AbortController());
    this.showElsewhere(document);
    lockDocument(document.id, signal).then((release) => release && acquired(release, signal));
  }

  /** @param {Document | null} document that another tab has open; null: stop waiting for it */
  showElsewhere(document) {
    if (!document) this.waiting?.abort();
    emit(this.root, "pd-elsewhere", document);
  }
}
