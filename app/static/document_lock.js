// @ts-check
/** One tab per document: a tab keeps a Web Lock while the document is open. The browser releases it with the tab. */

const PREFIX = "polydraft.document."; // of the locks' names, before the document's id

/**
 * @param {string} id of a document
 * @param {AbortSignal | null} signal ends waiting for the lock; null: do not wait
 * @returns {Promise<(() => void) | null>} releases the lock; null if the lock was not acquired
 */
export function lockDocument(id, signal = null) {
  // In a browser without locks, saving still detects that the text was changed elsewhere.
  if (!navigator.locks) return Promise.resolve(() => {});
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
  const held = (await navigator.locks?.query())?.held ?? [];
  return new Set(held.flatMap(({ name }) => (name?.startsWith(PREFIX) ? [name.slice(PREFIX.length)] : [])));
}
